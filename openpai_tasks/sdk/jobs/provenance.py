"""What a submission is made from, and the part of that which travels with the job.

``extras.openpaiTasks`` of a job tells the commit, the hash of its sources, and where its files lie.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from openpai_tasks import __version__
from openpai_tasks.protocol.document.request import JobRequest
from openpai_tasks.sdk.jobs.git import Revision, revision

STAMP = "openpaiTasks"
"""The key of the job's extras that is ours."""


@dataclass(frozen=True)
class Origin:
    """What a submission was made from."""

    folder: Path  # the project; the record is kept in it
    command: str = ""
    sources: tuple[str, ...] = ()  # as they were named
    files: Mapping[str, str] = field(default_factory=dict)  # the hash of each file that goes along
    settings: Mapping[str, Any] = field(default_factory=dict)
    revision: Revision = field(default_factory=Revision)
    cloned_from: str = ""

    @property
    def source_hash(self) -> str:
        return total(self.files)


@dataclass(frozen=True)
class Stamp:
    """What a job carries in its extras about itself; no paths of the machine it came from."""

    version: str = ""
    commit: str = ""
    dirty: bool = False
    source_hash: str = ""
    source_folder: str = ""  # on the storage, in the user's part of it
    source_archive: str = ""  # likewise
    storage: str = ""
    workspace: str = ""
    cloned_from: str = ""


NOTHING = Stamp()


def origin_of_request(folder: Path, request: JobRequest, files: Mapping[str, str]) -> Origin:
    """What a request is made from; ``files`` are the hashes of what goes along."""
    known = {item.name: getattr(request, item.name) for item in dataclasses.fields(request) if item.repr}
    settings = json.loads(json.dumps(known, default=_plain))
    return Origin(folder, request.command, request.sources, dict(files), settings, revision(folder))


def origin_of_file(path: Path) -> Origin:
    """What a job file is made from: it takes nothing along."""
    here = Path.cwd()
    return Origin(here, settings={"file": os.path.relpath(path, here)}, revision=revision(here))


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {item.name: getattr(value, item.name) for item in dataclasses.fields(value) if item.repr}
    return dict(value) if isinstance(value, Mapping) else str(value)


def total(files: Mapping[str, str]) -> str:
    """One hash for all files and their names; empty for none."""
    if not files:
        return ""
    lines = "".join(f"{digest} {name}\0" for name, digest in sorted(files.items()))
    return "sha256:" + hashlib.sha256(lines.encode("utf-8", "surrogateescape")).hexdigest()


# What travels with the job


def stamped(document: dict[str, Any], origin: Origin, files: Stamp = NOTHING) -> dict[str, Any]:
    """The document with what is known of its origin in its extras; ``files`` tells where its files are."""
    stamp = dataclasses.replace(
        files,
        version=__version__,
        commit=origin.revision.commit,
        dirty=origin.revision.dirty,
        source_hash=origin.source_hash,
        cloned_from=origin.cloned_from,
    )
    return put(document, stamp)


def put(document: dict[str, Any], stamp: Stamp) -> dict[str, Any]:
    """The document with this stamp; what is empty is left out."""
    told = {_camel(name): value for name, value in dataclasses.asdict(stamp).items() if value}
    extras = document.get("extras")
    if extras is not None and not isinstance(extras, dict):
        return document  # the server will refuse it, and say so
    return {**document, "extras": {**(extras or {}), STAMP: told}}


def stamp_of(document: Mapping[str, Any]) -> Stamp:
    """What the job tells of itself; nothing for one that was not submitted by us."""
    extras = document.get("extras")
    told = extras.get(STAMP) if isinstance(extras, dict) else None
    if not isinstance(told, dict):
        return Stamp()
    fields = {item.name: told.get(_camel(item.name)) for item in dataclasses.fields(Stamp)}
    good = {name: value for name, value in fields.items() if isinstance(value, type(getattr(Stamp, name)))}
    return Stamp(**good)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.title, rest))
