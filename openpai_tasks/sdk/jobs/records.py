"""What was submitted from a project, so that it can be repeated; no secrets (``.openpai/jobs/<name>/``)."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
import re
import shlex
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openpai_tasks import protocol
from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import ConfigError
from openpai_tasks.protocol.document.masking import STARS
from openpai_tasks.sdk.jobs.git import Revision
from openpai_tasks.sdk.jobs.provenance import Origin, stamp_of
from openpai_tasks.settings import trust
from openpai_tasks.settings.home import locked, write_private
from openpai_tasks.settings.trust import Fenced
from openpai_tasks.storage.job_files.sources import SourceFile

FORMAT = 1

_NAME = re.compile(r"[A-Za-z0-9_-]+")

log = logging.getLogger("openpai_tasks")


@dataclass(frozen=True)
class Record:
    """A submission as it was kept."""

    name: str
    user: str
    cluster: str
    uri: str
    submitted: int
    command: str
    commit: str
    dirty: bool
    sources: tuple[str, ...]
    source_hash: str
    files: dict[str, str]
    settings: dict[str, Any]
    cloned_from: str
    secrets: tuple[str, ...]  # their names only
    document: str
    archive: str = ""  # of its sources, on the storage
    format: int = FORMAT

    @property
    def revision(self) -> Revision:
        return Revision(self.commit, self.dirty)


def keep(client: Backend, text: str, origin: Origin | None) -> None:
    """Write down a submission that the cluster took; a folder that cannot be written to is no failure."""
    if origin is None:
        return
    record = _record(client, protocol.read(text).value, origin)
    path = _folder(origin.folder, record.name) / "record.json"
    try:
        with locked(path):
            if path.exists():  # of a job of the same name, on another cluster or before
                os.replace(path, path.with_name(f"record-{path.stat().st_mtime_ns}.json"))
            write_private(path, json.dumps(dataclasses.asdict(record), indent=2, ensure_ascii=False) + "\n")
    except (ConfigError, OSError) as err:
        log.warning("warning: the job is submitted, but no record of it could be kept: %s", err)


def _record(client: Backend, document: dict[str, Any], origin: Origin) -> Record:
    secrets = document.get("secrets") or {}
    return Record(
        name=str(document.get("name") or document["jobName"]),  # a v1 document may be sent as it is
        user=client.user,
        cluster=client.cluster.alias,
        uri=client.cluster.uri,
        submitted=int(time.time() * 1000),
        command=origin.command,
        commit=origin.revision.commit,
        dirty=origin.revision.dirty,
        sources=origin.sources,
        source_hash=origin.source_hash,
        files=dict(origin.files),
        settings=dict(origin.settings),
        cloned_from=origin.cloned_from,
        secrets=tuple(map(str, secrets)),
        document=protocol.dump(masked(document)),
        archive=stamp_of(document).source_archive,
    )


def masked(document: dict[str, Any]) -> dict[str, Any]:
    """The document without secrets, and without passwords of registries, which servers do show."""
    found = [_without_password(item) for item in document.get("prerequisites") or ()]
    hidden: dict[str, Any] = {"prerequisites": found} if found else {}
    return {**document, **hidden, **({"secrets": STARS} if "secrets" in document else {})}


def _without_password(item: dict[str, Any]) -> dict[str, Any]:
    auth = item.get("auth")
    if not isinstance(auth, dict) or not auth.get("password") or "<%" in str(auth["password"]):
        return item
    return {**item, "auth": {**auth, "password": STARS}}


def note_sources(folder: Path, sources: Sequence[str], found: Iterable[SourceFile]) -> None:
    """Remember that the user named sources that lead out of the folder: a record may repeat them."""
    file = str(folder / ".openpai" / "jobs")
    claims = trust.sources_claims(file, sources, folder)
    fence = Fenced.within(str(folder), sources)
    if any(not fence.holds(source.path, folder) for source in found):
        claims.append(trust.links_claim(file, sources))
    trust.remember(trust.untrusted(claims))


def sources_of(record: Record, folder: Path) -> tuple[str, ...]:
    """The sources of a record, which may have come with the folder: they lead out of it only if noted."""
    file = str(folder / ".openpai" / "jobs")
    doubted = trust.untrusted(trust.sources_claims(file, record.sources, folder))
    if doubted:
        told = shlex.join(word for claim in doubted for word in ("--sources", claim.part))
        why = f"the record of job {record.name!r} names sources outside of this folder"
        raise ConfigError(f"{why}; submit anew, with `{told}` if you want them along")
    return trust.fence_sources(file, record.sources)


def find(folder: Path, name: str, cluster: str | None = None) -> Record | None:
    """The newest record of a job of that name, on that cluster if one is named."""
    if not _NAME.fullmatch(name):
        return None
    found = [_load(path) for path in _folder(folder, name).glob("record*.json")]
    fitting = [record for record in found if cluster in (None, record.cluster)]
    return max(fitting, key=lambda record: record.submitted, default=None)


def every(folder: Path) -> Iterator[Record]:
    """All that can be read of the records of a project."""
    for path in (folder / ".openpai" / "jobs").glob("*/record*.json"):
        with contextlib.suppress(ConfigError):
            yield _load(path)


def of_cluster(folder: Path, cluster: str) -> list[Record]:
    """The newest record of each job that was submitted from here to that cluster."""
    names = sorted(path.name for path in (folder / ".openpai" / "jobs").glob("*"))
    found = (find(folder, name, cluster) for name in names)
    return [record for record in found if record is not None]


def _load(path: Path) -> Record:
    names = {item.name for item in dataclasses.fields(Record)}
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        record = Record(**{key: value for key, value in told.items() if key in names})
    except (OSError, ValueError, TypeError, AttributeError) as err:
        raise ConfigError(f"{path} is not a record of a submission; remove it") from err
    return dataclasses.replace(record, sources=tuple(record.sources), secrets=tuple(record.secrets))


def _folder(project: Path, name: str) -> Path:
    return project / ".openpai" / "jobs" / name
