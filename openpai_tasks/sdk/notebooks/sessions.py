"""Local records of Jupyter servers that were started from this machine.

``~/.openpai/notebooks/<cluster>/<job>.json`` has the token, until the job is seen to have ended, and the
paths of the notebook and the sources.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterable
from dataclasses import field
from pathlib import Path
from typing import Any

from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import ConfigError, NotFound, PaiError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol import states
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk.notebooks.origins import Origins
from openpai_tasks.settings.home import home, write_private


@dataclass(frozen=True)
class SavedSession:
    """A server's token and the local paths of its notebook and sources."""

    token: str = field(repr=False)
    file: str = ""  # notebook's name in the job
    path: str = ""  # notebook's path on this machine
    origins: Origins = field(default_factory=Origins)


def save_session(client: Backend, job: JobInfo, session: SavedSession) -> None:
    """Save a session in a private file."""
    write_private(_path(client, job.key), json.dumps(dataclasses.asdict(session)) + "\n")


def load_session(client: Backend, job: JobInfo) -> SavedSession | None:
    """Load the session, if it was saved on this machine."""
    return _read(_path(client, job.key))


def _read(path: Path) -> SavedSession | None:
    names = {item.name for item in dataclasses.fields(SavedSession)}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        found = {name: value for name, value in content.items() if name in names and isinstance(value, str)}
        return SavedSession(**found, origins=_origins(content.get("origins")))
    except (OSError, ValueError, TypeError, AttributeError, KeyError):
        return None


def _origins(value: Any) -> Origins:
    """Read origins, which files of earlier versions lack, or have without digests."""
    if not isinstance(value, dict):
        return Origins()
    sent = value["sent"] if "sent" in value else dict.fromkeys(value["hidden"], "")
    return Origins(str(value["folder"]), dict(value["elsewhere"]), dict(sent))


def token_of(client: Backend, job: JobInfo) -> str:
    """Return the token of a server that was started from this machine; empty if the job has ended."""
    found = load_session(client, job)
    if job.final:
        return ""
    if found is None or not found.token:
        raise ConfigError(
            f"the token of job {job.name!r} is not stored on this machine; pass it with --token-file FILE"
        )
    return found.token


def forget_token(client: Backend, job: JobInfo) -> None:
    """Delete the token of a server that has ended, but keep its origins for a pull."""
    found = load_session(client, job)
    if found and found.token:
        save_session(client, job, dataclasses.replace(found, token=""))


def forget_ended(client: Backend, jobs: Iterable[JobInfo]) -> None:
    """Delete the tokens of those of the given jobs that have ended or are stopping."""
    folder = _folder(client)
    with contextlib.suppress(PaiError, OSError):  # the tokens then stay
        there = set(os.listdir(folder)) if folder.is_dir() else set()
        for job in jobs if there else ():
            if (job.final or job.state == states.STOPPING) and _path(client, job.key).name in there:
                forget_token(client, job)


def forget_all_ended(client: Backend) -> None:
    """Delete the tokens of all servers started from here that have ended."""
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
        forget_token(client, job)


def redirect_file(client: Backend, job: JobInfo) -> Path:
    """Return the file that redirects a browser to the server, which keeps the token off command lines."""
    return _path(client, job.key).with_suffix(".html")


def _folder(client: Backend) -> Path:
    return home() / "notebooks" / client.cluster.unique_name


def _path(client: Backend, key: str) -> Path:
    return _folder(client) / f"{key.replace('/', '_')}.json"
