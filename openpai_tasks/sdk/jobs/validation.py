"""Validate job files without a server, and report every problem with its place and line."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from openpai_tasks import protocol
from openpai_tasks.errors import ProtocolError
from openpai_tasks.files.regular import read_limited, reason
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol import Problem
from openpai_tasks.protocol.yaml.reader import Source


@dataclass(frozen=True)
class FileVerdict:
    """A job file, its protocol version if known, and its problems."""

    file: str
    valid: bool
    version: int | None = None
    problems: tuple[Problem, ...] = ()


def validate_file(path: Path) -> FileVerdict:
    """Validate a file by the rules of the server for its version: 0.14 for v1, 1.8 for v2."""
    try:
        text = read_limited(path, is_named=True)
    except (OSError, UnicodeDecodeError) as err:
        return FileVerdict(str(path), False, None, (Problem("", f"cannot read it: {reason(err)}"),))
    return validate_text(text, str(path))


def validate_text(text: str, file: str = "") -> FileVerdict:
    """Validate the text of a job file by the same rules."""
    version, text = None, without_comments(text)
    try:
        v1 = as_v1(text)
        version = 2 if v1 is None else 1
        if v1 is None:
            protocol.validate(text)
        else:
            protocol.validate_v1(v1, _source(text))
    except ProtocolError as err:
        return FileVerdict(file, False, version, cast(tuple[Problem, ...], err.problems))
    return FileVerdict(file, True, version)


def check_verdicts(verdicts: Sequence[FileVerdict]) -> None:
    """Raise unless every file is valid."""
    wrong = [repr(one.file) for one in verdicts if not one.valid]
    if wrong:
        raise ProtocolError(f"{len(wrong)} of {len(verdicts)} job files are not valid: {', '.join(wrong)}")


_STRING_OR_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*')


def without_comments(text: str) -> str:
    """Return JSON without its ``//`` comments, as editors and OpenPAI's examples have them, line by line.

    Other text is returned as it is: in YAML, ``//`` may be part of a value.
    """
    if "//" not in text or _is_json(text):
        return text
    bare = _STRING_OR_COMMENT.sub(lambda found: "" if found[0].startswith("//") else found[0], text)
    return bare if _is_json(bare) else text


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def as_v1(text: str) -> dict[str, Any] | None:
    """Return the document if it is of version 1, which has a ``jobName`` and no ``protocolVersion``."""
    try:
        found = json.loads(text)  # JSON first, as it may have tabs, which YAML refuses
    except (ValueError, RecursionError):
        found = protocol.read(text).value
    is_v1 = isinstance(found, dict) and "jobName" in found and "protocolVersion" not in found
    return found if is_v1 else None


def _source(text: str) -> Source | None:
    """Return the positions in JSON text; None if it is not also YAML, as with duplicate keys."""
    with contextlib.suppress(ProtocolError):
        return protocol.read(text.replace("\t", " "))  # JSON has no tabs inside its strings
    return None
