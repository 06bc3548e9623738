"""Records of submissions in ``.openpai/jobs/<name>/``, without secrets, so that they can be repeated."""

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
from pathlib import Path
from typing import Any

from openpai_tasks import protocol
from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import ConfigError
from openpai_tasks.files.regular import LARGEST_LIST, read_limited
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol.document.masking import STARS
from openpai_tasks.protocol.document.shape import Shape, first_mismatch
from openpai_tasks.protocol.json_text import parse
from openpai_tasks.protocol.routes import job_key
from openpai_tasks.sdk.files.job_folders import cluster_mark
from openpai_tasks.sdk.git import Revision
from openpai_tasks.sdk.jobs.provenance import Origin, read_stamp
from openpai_tasks.settings import trust
from openpai_tasks.settings.digests import sha256
from openpai_tasks.settings.home import home, locked, write_private
from openpai_tasks.settings.trust import ConfinedSources
from openpai_tasks.storage.job_files.sources import SourceFile

FORMAT = 1
MOST_CHOICES = 1000  # jobs whose chosen secrets are kept

SHAPE: Shape = {
    **dict.fromkeys(("name", "user", "cluster", "uri", "command", "commit"), str),
    **dict.fromkeys(("source_hash", "cloned_from", "document"), str),
    **{"submitted": int, "dirty": bool, "settings": dict, "archive": (str,), "format": (int,)},
    **{"sources": [str], "secrets": [str], "files": {"*": str}},
}

_NAME = re.compile(r"[A-Za-z0-9_-]+")

log = logging.getLogger("openpai_tasks")


@dataclass(frozen=True)
class Record:
    """A recorded submission."""

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
    secrets: tuple[str, ...]  # names only
    document: str
    archive: str = ""  # of its sources, on the storage
    format: int = FORMAT

    @property
    def text(self) -> str:
        """The content of its file."""
        return json.dumps(dataclasses.asdict(self), indent=2, ensure_ascii=False) + "\n"

    def origin(self, folder: Path) -> Origin:
        """Return what a repetition from this folder is made from."""
        revision = Revision(self.commit, self.dirty)
        first = self.cloned_from or self.name
        return Origin(folder, self.command, self.sources, self.files, self.settings, revision, first)


def save_record(client: Backend, text: str, origin: Origin | None, chosen: Iterable[str] = ()) -> None:
    """Record a successful submission, with the secrets that the user chose; only warn if that fails."""
    if origin is None:
        return
    record = _record(client, text, origin)
    path = _folder(origin.folder, record.name) / "record.json"
    try:
        with locked(path):
            if path.exists():  # of an earlier job of that name, or on another cluster
                os.replace(path, path.with_name(f"record-{path.stat().st_mtime_ns}.json"))
            write_private(path, record.text)
        save_chosen_secrets(client, record.name, record.text, chosen)
    except (ConfigError, OSError) as err:
        log.warning("warning: the job was submitted, but cannot be recorded: %s", err)


def _record(client: Backend, text: str, origin: Origin) -> Record:
    document = protocol.read(text).value
    masked, secrets = mask_secrets(document), document.get("secrets") or {}
    return Record(
        name=str(document.get("name") or document["jobName"]),  # v1 documents are sent unchanged
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
        document=text if masked == document else protocol.dump(masked),
        archive=read_stamp(document).source_archive,
    )


def mask_secrets(document: dict[str, Any]) -> dict[str, Any]:
    """Mask secrets and registry passwords, which servers do show."""
    found = [_without_password(item) for item in document.get("prerequisites") or ()]
    hidden: dict[str, Any] = {"prerequisites": found} if found else {}
    return {**document, **hidden, **({"secrets": STARS} if "secrets" in document else {})}


def _without_password(item: dict[str, Any]) -> dict[str, Any]:
    auth = item.get("auth")
    if not isinstance(auth, dict) or not auth.get("password") or "<%" in str(auth["password"]):
        return item
    return {**item, "auth": {**auth, "password": STARS}}


def remember_sources(folder: Path, sources: Sequence[str], found: Iterable[SourceFile]) -> None:
    """Remember sources outside of the folder that the user named, so that a record may repeat them."""
    file = str(folder / ".openpai" / "jobs")
    claims = trust.sources_claims(file, sources, folder)
    confined = ConfinedSources.within(str(folder), sources)
    if any(not confined.boundary_of(source.path, folder) for source in found):
        claims.append(trust.links_claim(file, sources))
    trust.remember(trust.untrusted(claims))


def trusted_sources(record: Record, folder: Path) -> tuple[str, ...]:
    """Return a record's sources; refuse those outside of the folder that the user never named here.

    The record itself may have come with the folder.
    """
    file = str(folder / ".openpai" / "jobs")
    doubted = trust.untrusted(trust.sources_claims(file, record.sources, folder))
    if doubted:
        flags = shlex.join(word for claim in doubted for word in ("--sources", claim.part))
        why = f"the record of job {record.name!r} names sources outside of this folder"
        raise ConfigError(f"{why}; submit the job again, with `{flags}` if you want to send them")
    return trust.confine_sources(file, record.sources)


def find_record(folder: Path, name: str, cluster: str | None = None) -> Record | None:
    """Return the newest record of the job, on any cluster unless one is given."""
    if not _NAME.fullmatch(name):
        return None
    found = [_load(path) for path in _folder(folder, name).glob("record*.json")]
    fitting = [record for record in found if cluster in (None, record.cluster)]
    return max(fitting, key=lambda record: record.submitted, default=None)


def last_submitted(folder: Path, cluster: str) -> str | None:
    """Return the name of the job that was submitted last from the folder to the cluster."""
    paths = (folder / ".openpai" / "jobs").glob("*/record.json")
    for _, path in sorted(((path.stat().st_mtime_ns, path) for path in paths), reverse=True):
        with contextlib.suppress(ConfigError):
            if _load(path).cluster == cluster and _NAME.fullmatch(path.parent.name):
                return path.parent.name
    return None


def read_all(folder: Path) -> Iterator[Record]:
    """Yield all readable records of a project."""
    for path in (folder / ".openpai" / "jobs").glob("*/record*.json"):
        with contextlib.suppress(ConfigError):
            yield _load(path)


def cluster_records(folder: Path, cluster: str) -> list[Record]:
    """Return the newest record of each job that was submitted from here to the cluster."""
    names = sorted(path.name for path in (folder / ".openpai" / "jobs").glob("*"))
    found = (find_record(folder, name, cluster) for name in names)
    return [record for record in found if record is not None]


def _load(path: Path) -> Record:
    names = {item.name for item in dataclasses.fields(Record)}
    try:
        fields = parse(read_limited(path, LARGEST_LIST))
        if wrong := first_mismatch(fields, SHAPE):
            raise ValueError(wrong)
        record = Record(**{key: value for key, value in fields.items() if key in names})
    except (OSError, ValueError, RecursionError) as err:
        raise ConfigError(f"{path} is not a valid record of a submission; remove it") from err
    return dataclasses.replace(record, sources=tuple(record.sources), secrets=tuple(record.secrets))


def _folder(project: Path, name: str) -> Path:
    return project / ".openpai" / "jobs" / name


# The names of secrets that the user chose for jobs, in ``~/.openpai/chosen_secrets.json``.
#
# A job's document may be somebody else's, and so may a record that came with a folder. When a job is
# submitted again, only names in this file, or given again, are read from the environment.


def save_chosen_secrets(client: Backend, name: str, record: str, names: Iterable[str]) -> None:
    """Save the names that the user chose for a job, and the digest of the text of its record."""
    if chosen := sorted(names):
        with locked(_choices_path()):
            known = _read_choices()
            known.pop(_choice_key(client, name), None)
            known[_choice_key(client, name)] = (_digest(record), chosen)
            kept = dict(list(known.items())[-MOST_CHOICES:])
            write_private(_choices_path(), json.dumps(kept, indent=1) + "\n")


def chosen_secrets(client: Backend, user: str, name: str, record: str | None = None) -> frozenset[str]:
    """Return the names that the user chose for a job; none if ``record`` is not the text of its record."""
    if user != client.user:
        return frozenset()
    digest, names = _read_choices().get(_choice_key(client, name), ("", []))
    return frozenset(names if record is None or _digest(record) == digest else ())


def _choice_key(client: Backend, name: str) -> str:
    return f"{cluster_mark(client.cluster)} {job_key(client.user, name)}"


def _digest(record: str) -> str:
    return sha256(record.encode("utf-8", "surrogateescape"))


def _choices_path() -> Path:
    return home() / "chosen_secrets.json"


def _read_choices() -> dict[str, tuple[str, list[str]]]:
    """Return the digest of the record and the chosen names of each job."""
    path = _choices_path()
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
        return {job: (str(digest), [str(name) for name in names]) for job, (digest, names) in known.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as err:
        raise ConfigError(f"cannot read {path}; remove it to be asked for the secrets of jobs") from err
