"""What is known here, and only here, of the Jupyter servers that were started from this machine.

``~/.openpai/notebooks/<cluster>/<job>.json`` has the token, until somebody sees that the job is over, and
where the notebook and the sources were.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import ConfigError, NotFound, PaiError
from openpai_tasks.protocol import states
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk.notebooks.origins import Origins
from openpai_tasks.settings.home import home, write_private


@dataclass(frozen=True)
class SavedSession:
    """A server's token, and where its notebook and its sources were."""

    token: str = field(repr=False)
    file: str = ""  # the notebook's name in the job
    path: str = ""  # and its path on this machine
    origins: Origins = field(default_factory=Origins)


def save_session(client: Backend, job: JobInfo, kept: SavedSession) -> None:
    """Write down what a later call needs, for this user's eyes only."""
    _write(_path(client, job.key), kept)


def _write(path: Path, kept: SavedSession) -> None:
    write_private(path, json.dumps(dataclasses.asdict(kept)) + "\n")


def kept(client: Backend, job: JobInfo) -> SavedSession | None:
    """What was written down on this machine, if it was."""
    return _read(_path(client, job.key))


def _read(path: Path) -> SavedSession | None:
    names = {item.name for item in dataclasses.fields(SavedSession)}
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        found = {name: value for name, value in told.items() if name in names and isinstance(value, str)}
        return SavedSession(**found, origins=_origins(told.get("origins")))
    except (OSError, ValueError, TypeError, AttributeError, KeyError):
        return None


def _origins(told: Any) -> Origins:
    """What an earlier version has not written down is not known."""
    if not isinstance(told, dict):
        return Origins()
    return Origins(str(told["folder"]), dict(told["elsewhere"]), tuple(told["hidden"]))


def token_of(client: Backend, job: JobInfo) -> str:
    """The token of a server that was started from this machine."""
    found = kept(client, job)
    if job.final:
        return ""  # there is no server any more
    if found is None or not found.token:
        raise ConfigError(
            f"the token of job {job.name!r} is not known on this machine: give it with --token-file"
        )
    return found.token


def forget(client: Backend, job: JobInfo) -> None:
    """Forget the token of a server that is over; where its notebook belongs is still needed."""
    path, found = _path(client, job.key), kept(client, job)
    if found and found.token:
        _write(path, dataclasses.replace(found, token=""))


def forget_ended(client: Backend, jobs: Iterable[JobInfo]) -> None:
    """The same for those of these jobs that are over or about to be; for whoever looks at jobs anyway."""
    folder = _folder(client)
    with contextlib.suppress(PaiError, OSError):  # it is kept then, as before
        there = set(os.listdir(folder)) if folder.is_dir() else set()
        for job in jobs if there else ():
            if (job.final or job.state == states.STOPPING) and _path(client, job.key).name in there:
                forget(client, job)


def forget_all_ended(client: Backend) -> None:
    """The same for every server that was started from here, and has ended while nobody looked."""
    for path in _folder(client).glob("*.json"):
        found = _read(path)
        if found and found.token:
            with contextlib.suppress(PaiError):
                _forget_ended(client, path)


def _forget_ended(client: Backend, path: Path) -> None:
    try:
        job = client.job(path.stem)
    except NotFound:
        path.unlink(missing_ok=True)
        return
    if job.final:
        forget(client, job)


def door_file(client: Backend, job: JobInfo) -> Path:
    """The file that leads a browser to the server, so that no token is among the words of a process."""
    return _path(client, job.key).with_suffix(".html")


def write_door(path: Path, url: str) -> str:
    """Write it; the address to open."""
    address = json.dumps(url).replace("<", "\\u003c")
    lines = ["<!DOCTYPE html>", '<meta charset="utf-8">', "<title>Jupyter</title>"]
    lines += ['<meta name="referrer" content="no-referrer">', f"<script>location.replace({address})</script>"]
    write_private(path, "\n".join(lines) + "\n")
    return path.as_uri()


def _folder(client: Backend) -> Path:
    return home() / "notebooks" / client.cluster.shelf


def _path(client: Backend, key: str) -> Path:
    return _folder(client) / f"{key.replace('/', '_')}.json"
