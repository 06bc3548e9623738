"""Read job documents from a cluster, compare them, and validate job files without a server."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from openpai_tasks import protocol
from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import ApiError, ConfigError, PathError, ProtocolError
from openpai_tasks.files.regular import read_limited, reason
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol import Problem
from openpai_tasks.protocol.document.folding import fold, own_commands
from openpai_tasks.protocol.document.shape import first_mismatch
from openpai_tasks.protocol.fields import count, mapping, rows, text
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.protocol.yaml.reader import Source
from openpai_tasks.sdk.jobs import lookup
from openpai_tasks.sdk.jobs.records import Record, mask_secrets

ORDER = (
    *("protocolVersion", "name", "type", "version", "contributor", "description", "jobRetryCount"),
    *("prerequisites", "parameters", "secrets"),
    *("taskRoles", "instances", "completion", "dockerImage", "resourcePerInstance"),
    *("cpu", "memoryMB", "gpu", "commands"),
    *("deployments", "defaults", "extras"),
)
"""The usual order of keys in a document; others follow by name."""

_STRING_OR_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*')


@dataclass(frozen=True)
class Difference:
    """A unified diff from the document of job ``a`` to that of job ``b``."""

    a: str
    b: str
    same: bool
    lines: tuple[str, ...]


def job_document(client: Backend, name: str | JobInfo) -> tuple[JobInfo, dict[str, Any]]:
    """Return the job and its document in version 2, with secrets masked by the server."""
    job = lookup.find(client, name) if isinstance(name, str) else name
    found = client.job_document(job.key)
    if not isinstance(found, dict):
        raise ConfigError(f"cluster {client.cluster.alias!r} has no document of job {job.name!r}")
    document = as_v2(found)
    if wrong := first_mismatch(document):
        where = f"cluster {client.cluster.alias!r}"
        raise ApiError(f"the document of job {job.name!r} on {where} is invalid: {wrong} has the wrong type")
    return job, document


def recorded_document(record: Record) -> dict[str, Any]:
    """Return the document of a record in version 2; the record may have come with the folder."""
    found = protocol.read(record.document).value
    document = as_v2(found) if isinstance(found, dict) else {}
    if wrong := first_mismatch(document):
        what = f"the recorded document of job {record.name!r}"
        raise ConfigError(f"{what} is invalid: {wrong} has the wrong type")
    return document


def as_v2(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document, converted if it is of version 1."""
    return protocol.to_v2(protocol.validate_v1(document)) if _is_v1(document) else document


def _is_v1(document: dict[str, Any]) -> bool:
    return "jobName" in document and "protocolVersion" not in document


def parse_reference(text: str) -> tuple[str | None, str]:
    """Split ``cluster:name`` into the alias, if any, and the job's name."""
    alias, colon, name = text.rpartition(":")
    return (alias or None, name) if colon else (None, text)


@dataclass(frozen=True)
class RoleSummary:
    """What a role runs: the user's own command, the image, and the resources of each of its tasks."""

    name: str
    command: str
    image: str
    instances: int
    cpu: int
    gpu: int
    memory_mb: int


def describe_roles(document: dict[str, Any]) -> list[RoleSummary]:
    """Return a summary of each role; none for a document that cannot be read."""
    try:
        document = as_v2(document)
    except ProtocolError:
        return []
    images = {one.get("name"): text(one.get("uri")) for one in rows(document.get("prerequisites"))}
    roles = {str(name): mapping(role) for name, role in mapping(document.get("taskRoles")).items()}
    found = []
    for name, command in own_commands(document).items():
        role = roles[name]
        asked = {key: count(value) for key, value in mapping(role.get("resourcePerInstance")).items()}
        amounts = (asked.get(key, 0) for key in ("cpu", "gpu", "memoryMB"))
        image = images.get(text(role.get("dockerImage")), "")
        found.append(RoleSummary(name, command, image, count(role.get("instances", 1)), *amounts))
    return found


def compare_jobs(left: Backend, a: str, right: Backend, b: str, is_folded: bool = True) -> Difference:
    """Compare two jobs' documents, ignoring the order of keys; passwords are masked in both.

    Generated shell is folded, unless nothing else differs.
    """
    documents = [job_document(client, name)[1] for client, name in ((left, a), (right, b))]
    labels = (f"{left.cluster.alias}:{a}", f"{right.cluster.alias}:{b}")
    lines = _diff(list(map(fold, documents)), labels) if is_folded else ()
    lines = lines or _diff(documents, labels)
    return Difference(*labels, not lines, lines)


def _diff(pair: Sequence[dict[str, Any]], labels: tuple[str, str]) -> tuple[str, ...]:
    import difflib

    before, after = (protocol.dump(sort_keys(mask_secrets(one))).splitlines() for one in pair)
    return tuple(difflib.unified_diff(before, after, *labels, lineterm=""))


def fold_text(text: str) -> str:
    """Return a valid document as text without generated shell; unchanged if it has none."""
    document = protocol.read(text).value
    folded = fold(document)
    return text if folded == document else protocol.dump(folded)


def sort_keys(value: Any) -> Any:
    """Sort keys in the usual order at every level."""
    if isinstance(value, dict):
        return {key: sort_keys(value[key]) for key in sorted(value, key=_rank)}
    return [sort_keys(item) for item in value] if isinstance(value, list) else value


def _rank(key: Any) -> tuple[int, str]:
    name = str(key)
    return ORDER.index(name) if name in ORDER else len(ORDER), name


# Validation: every problem is reported with its place and line


@dataclass(frozen=True)
class FileVerdict:
    """A job file, its protocol version if known, and its problems."""

    file: str
    valid: bool
    version: int | None = None
    problems: tuple[Problem, ...] = ()


class UnreadableFile(FileVerdict):
    """A job file that cannot be read."""


def validate_file(path: Path) -> FileVerdict:
    """Validate a file by the rules of the server for its version: 0.14 for v1, 1.8 for v2."""
    try:
        text = read_limited(path, is_named=True)
    except (OSError, UnicodeDecodeError) as err:
        return UnreadableFile(str(path), False, None, (Problem("", f"cannot read it: {reason(err)}"),))
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
    wrong = [one for one in verdicts if not one.valid]
    count, names = f"{len(wrong)} of {len(verdicts)} job files", ", ".join(repr(one.file) for one in wrong)
    if any(not isinstance(one, UnreadableFile) for one in wrong):
        raise ProtocolError(f"{count} are not valid: {names}")
    if wrong:
        raise PathError(f"{count} cannot be read: {names}")


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
    return found if isinstance(found, dict) and _is_v1(found) else None


def _source(text: str) -> Source | None:
    """Return the positions in JSON text; None if it is not also YAML, as with duplicate keys."""
    with contextlib.suppress(ProtocolError):
        return protocol.read(text.replace("\t", " "))  # JSON has no tabs inside its strings
    return None
