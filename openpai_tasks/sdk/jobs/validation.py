"""What a server would say of job files, without a server: every problem, with its place and line."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from openpai_tasks import protocol
from openpai_tasks.errors import ProtocolError
from openpai_tasks.protocol import Problem
from openpai_tasks.protocol.yaml.reader import Source


@dataclass(frozen=True)
class Verdict:
    """A job file, the version of the protocol it is in if that is known, and all that is wrong with it."""

    file: str
    valid: bool
    version: int | None = None
    problems: tuple[Problem, ...] = ()


def validate_file(path: Path) -> Verdict:
    """The file as the server of its version judges it: 0.14 for v1, 1.8 for v2."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as err:
        reason = err.strerror if isinstance(err, OSError) else "it is not UTF-8 text"
        return Verdict(str(path), False, None, (Problem("", f"cannot be read: {reason}"),))
    version = None
    try:
        v1 = as_v1(text)
        version = 2 if v1 is None else 1
        if v1 is None:
            protocol.validate(text)
        else:
            protocol.validate_v1(v1, _source(text))
    except ProtocolError as err:
        return Verdict(str(path), False, version, cast(tuple[Problem, ...], err.problems))
    return Verdict(str(path), True, version)


def check_verdicts(verdicts: Sequence[Verdict]) -> None:
    """Raise unless every file is valid."""
    wrong = [repr(one.file) for one in verdicts if not one.valid]
    if wrong:
        raise ProtocolError(f"{len(wrong)} of {len(verdicts)} job files not valid: {', '.join(wrong)}")


def as_v1(text: str) -> dict[str, Any] | None:
    """The document if it is of version 1, which has a ``jobName`` and no ``protocolVersion``."""
    try:
        found = json.loads(text)  # first: JSON may be indented with tabs, which YAML refuses
    except (ValueError, RecursionError):
        found = protocol.read(text).value
    is_v1 = isinstance(found, dict) and "jobName" in found and "protocolVersion" not in found
    return found if is_v1 else None


def _source(text: str) -> Source | None:
    """Where the parts of JSON text stand; none for the odd one that is no YAML, as with keys given twice."""
    with contextlib.suppress(ProtocolError):
        return protocol.read(text.replace("\t", " "))  # JSON has no tabs inside its strings
    return None
