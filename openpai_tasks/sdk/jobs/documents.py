"""Read job documents from a cluster and compare them."""

from __future__ import annotations

import difflib
from typing import Any

from openpai_tasks import protocol
from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import ApiError, ConfigError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol.document.shape import first_mismatch
from openpai_tasks.protocol.models import JobInfo
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


@dataclass(frozen=True)
class Difference:
    """A unified diff from the document of job ``a`` to that of job ``b``."""

    a: str
    b: str
    same: bool
    lines: tuple[str, ...]


def job_document(client: Backend, name: str) -> tuple[JobInfo, dict[str, Any]]:
    """Return the job and its document in version 2, with secrets masked by the server."""
    job = lookup.find(client, name)
    found = client.job_document(job.key)
    if not isinstance(found, dict):
        raise ConfigError(f"cluster {client.cluster.alias!r} has no document of job {name!r}")
    document = as_v2(found)
    if wrong := first_mismatch(document):
        where = f"cluster {client.cluster.alias!r}"
        raise ApiError(f"the document of job {name!r} on {where} is invalid: {wrong} has the wrong type")
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
    is_v1 = "jobName" in document and "protocolVersion" not in document
    return protocol.to_v2(protocol.validate_v1(document)) if is_v1 else document


def parse_reference(text: str) -> tuple[str | None, str]:
    """Split ``cluster:name`` into the alias, if any, and the job's name."""
    alias, colon, name = text.rpartition(":")
    return (alias or None, name) if colon else (None, text)


def compare_jobs(left: Backend, a: str, right: Backend, b: str) -> Difference:
    """Compare two jobs' documents, ignoring the order of keys; passwords are masked in both."""
    documents = (job_document(client, name)[1] for client, name in ((left, a), (right, b)))
    texts = [protocol.dump(sort_keys(mask_secrets(document))) for document in documents]
    labels = (f"{left.cluster.alias}:{a}", f"{right.cluster.alias}:{b}")
    before, after = (text.splitlines() for text in texts)
    lines = tuple(difflib.unified_diff(before, after, *labels, lineterm=""))
    return Difference(*labels, not lines, lines)


def sort_keys(value: Any) -> Any:
    """Sort keys in the usual order at every level."""
    if isinstance(value, dict):
        return {key: sort_keys(value[key]) for key in sorted(value, key=_rank)}
    return [sort_keys(item) for item in value] if isinstance(value, list) else value


def _rank(key: Any) -> tuple[int, str]:
    name = str(key)
    return ORDER.index(name) if name in ORDER else len(ORDER), name
