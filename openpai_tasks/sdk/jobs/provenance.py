"""What a submission was made from, and the stamp about it in the job's document.

``extras.openpaiTasks`` of a job has the commit, the hash of its sources, and the location of its files.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from openpai_tasks import __version__
from openpai_tasks.backends.base import Backend
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol import environment
from openpai_tasks.protocol.document.request import JobRequest
from openpai_tasks.sdk.git import Revision, revision
from openpai_tasks.settings.digests import sha256

STAMP = "openpaiTasks"
"""Our key in the job's extras."""


@dataclass(frozen=True)
class Origin:
    """What a submission was made from."""

    folder: Path  # the project, where the record is saved
    command: str = ""
    sources: tuple[str, ...] = ()  # as given
    files: Mapping[str, str] = field(default_factory=dict)  # hash of each file that is sent
    settings: Mapping[str, Any] = field(default_factory=dict)
    revision: Revision = field(default_factory=Revision)
    cloned_from: str = ""

    @property
    def source_hash(self) -> str:
        return total_hash(self.files)


@dataclass(frozen=True)
class Stamp:
    """What a job's extras say about its origin, without local paths."""

    version: str = ""
    commit: str = ""
    dirty: bool = False
    source_hash: str = ""
    source_folder: str = ""  # on the storage, in the user's part of it
    source_archive: str = ""  # likewise
    storage: str = ""
    workspace: str = ""
    cloned_from: str = ""


NO_STAMP = Stamp()


def origin_of_request(folder: Path, request: JobRequest, files: Mapping[str, str]) -> Origin:
    """Return the origin of a request; ``files`` are the hashes of the files to send."""
    known = {item.name: getattr(request, item.name) for item in dataclasses.fields(request) if item.repr}
    settings = json.loads(json.dumps(known, default=_plain))
    return Origin(folder, request.command, request.sources, dict(files), settings, revision(folder))


def origin_of_file(path: Path) -> Origin:
    """Return the origin of a job file, which has no files to send."""
    here = Path.cwd()
    return Origin(here, settings={"file": os.path.relpath(path, here)}, revision=revision(here))


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {item.name: getattr(value, item.name) for item in dataclasses.fields(value) if item.repr}
    return dict(value) if isinstance(value, Mapping) else str(value)


def submitter_environment(client: Backend) -> dict[str, str]:
    """Return the variables that the embedded cluster runs the job with; other clusters get none."""
    if not client.runs_here:
        return {}
    found = environment.select(os.environ)
    if len(environment.encode(found)) > environment.LIMIT:
        client.say("PATH and the like are too long to send: the job has those of the embedded cluster")
        return {}
    return found


def total_hash(files: Mapping[str, str]) -> str:
    """Hash all files with their names; empty if there are none."""
    if not files:
        return ""
    lines = "".join(f"{digest} {name}\0" for name, digest in sorted(files.items()))
    return "sha256:" + sha256(lines.encode("utf-8", "surrogateescape"))


# The stamp


def add_stamp(document: dict[str, Any], origin: Origin, files: Stamp = NO_STAMP) -> dict[str, Any]:
    """Add a stamp with the origin to the document; ``files`` has the location of its files."""
    stamp = dataclasses.replace(
        files,
        version=__version__,
        commit=origin.revision.commit,
        dirty=origin.revision.dirty,
        source_hash=origin.source_hash,
        cloned_from=origin.cloned_from,
    )
    return put_stamp(document, stamp)


def put_stamp(document: dict[str, Any], stamp: Stamp) -> dict[str, Any]:
    """Put the stamp into the document, without empty fields."""
    fields = {_camel(name): value for name, value in dataclasses.asdict(stamp).items() if value}
    extras = document.get("extras")
    if extras is not None and not isinstance(extras, dict):
        return document  # the server will refuse it
    return {**document, "extras": {**(extras or {}), STAMP: fields}}


def read_stamp(document: Mapping[str, Any]) -> Stamp:
    """Read the stamp from a document; empty for jobs that were not submitted by us."""
    extras = document.get("extras")
    stamp = extras.get(STAMP) if isinstance(extras, dict) else None
    if not isinstance(stamp, dict):
        return Stamp()
    fields = {item.name: stamp.get(_camel(item.name)) for item in dataclasses.fields(Stamp)}
    good = {name: value for name, value in fields.items() if isinstance(value, type(getattr(Stamp, name)))}
    return Stamp(**good)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.title, rest))
