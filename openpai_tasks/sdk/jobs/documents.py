"""The documents of jobs: as the cluster has them, and how two of them differ."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Any

from openpai_tasks import protocol
from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import ApiError, ConfigError
from openpai_tasks.protocol.document.shape import first_mismatch
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk.jobs import lookup

ORDER = (
    "protocolVersion",
    "name",
    "type",
    "version",
    "contributor",
    "description",
    "jobRetryCount",
    "prerequisites",
    "parameters",
    "secrets",
    "taskRoles",
    "instances",
    "completion",
    "dockerImage",
    "resourcePerInstance",
    "cpu",
    "memoryMB",
    "gpu",
    "commands",
    "deployments",
    "defaults",
    "extras",
)
"""The order in which people write the keys of a document; others follow by name."""

_RANK = {key: rank for rank, key in enumerate(ORDER)}


@dataclass(frozen=True)
class Difference:
    """How the document of job ``b`` differs from that of job ``a``, as lines of a unified diff."""

    a: str
    b: str
    same: bool
    lines: tuple[str, ...]


def job_document(client: Backend, name: str) -> tuple[JobInfo, dict[str, Any]]:
    """The job, and its document as version 2; the server has masked its secrets."""
    job = lookup.find(client, name)
    found = client.job_document(job.key)
    if not isinstance(found, dict):
        raise ConfigError(f"cluster {client.cluster.alias!r} keeps no document of job {name!r}")
    document = as_v2(found)
    if wrong := first_mismatch(document):
        where = f"cluster {client.cluster.alias!r}"
        raise ApiError(f"the document of job {name!r} on {where} is invalid: {wrong} has the wrong type")
    return job, document


def as_v2(document: dict[str, Any]) -> dict[str, Any]:
    """The document itself, or one of version 1 converted."""
    is_v1 = "jobName" in document and "protocolVersion" not in document
    return protocol.to_v2(protocol.validate_v1(document)) if is_v1 else document


def parse_reference(text: str) -> tuple[str | None, str]:
    """``cluster:name`` as the cluster's alias and the job's name; no alias where none is given."""
    alias, colon, name = text.rpartition(":")
    return (alias or None, name) if colon else (None, text)


def compare_jobs(left: Backend, a: str, right: Backend, b: str) -> Difference:
    """How two jobs differ; the order of keys is none."""
    texts = [
        protocol.dump(ordered(job_document(client, name)[1])) for client, name in ((left, a), (right, b))
    ]
    labels = (f"{left.cluster.alias}:{a}", f"{right.cluster.alias}:{b}")
    before, after = (text.splitlines() for text in texts)
    lines = tuple(difflib.unified_diff(before, after, *labels, lineterm=""))
    return Difference(*labels, not lines, lines)


def ordered(value: Any) -> Any:
    """The value with its keys in the usual order, at every level."""
    if isinstance(value, dict):
        return {key: ordered(value[key]) for key in sorted(value, key=lambda key: (_rank(key), str(key)))}
    return [ordered(item) for item in value] if isinstance(value, list) else value


def _rank(key: Any) -> int:
    return _RANK.get(str(key), len(ORDER))
