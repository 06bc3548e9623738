"""A Jupyter server as a job: the draft of it, what is kept of it here, and what it is served with."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import secrets
import shlex
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from openpai_tasks.client import Client
from openpai_tasks.config import Settings
from openpai_tasks.errors import ConfigError, NotFound, PaiError
from openpai_tasks.home import home, write_private
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk import keys, notebook_runner, notebook_server, wishes
from openpai_tasks.sdk.notebook_server import PORT, SENT, TOKEN
from openpai_tasks.sdk.notebooks import SUFFIX, Notebook, job_word
from openpai_tasks.sdk.places import Mounts
from openpai_tasks.sdk.submission import Draft, draft
from openpai_tasks.sdk.wishes import Wish
from openpai_tasks.storage.sources import Source, collect

MARK = "openpaiNotebookServer"
"""The key of a job's extras that says that it serves Jupyter, and which notebook was sent along."""
FOLDER = ".pai-jupyter"
"""Where in the job's working folder the server's program and its settings are."""
SERVER = Path(notebook_server.__file__)
SHORTEST = 16  # letters of a token
NEVER = "never"

_TOKEN = re.compile(r"[A-Za-z0-9._~-]+")


@dataclass(frozen=True)
class Options:
    """How it is served; 0 seconds are no limit."""

    token: str = field(repr=False)
    idle_seconds: int
    limit_seconds: int = 0
    direct: bool = False

    def words(self) -> list[str]:
        """The flags of the server's program; the token is none of them."""
        words = ["--idle", str(self.idle_seconds)] if self.idle_seconds else []
        words += ["--limit", str(self.limit_seconds)] if self.limit_seconds else []
        return words + (["--direct"] if self.direct else [])


@dataclass(frozen=True)
class Mark:
    """What a job says of itself as a server."""

    file: str = ""
    direct: bool = False


@dataclass(frozen=True)
class Kept:
    """What is known here, and only here, of a server: its token, and where the notebook was."""

    token: str = field(repr=False)
    file: str = ""  # the notebook's name in the job
    path: str = ""  # and its path on this machine


def options(token: str, idle: str, limit: str, direct: bool) -> Options:
    """What the flags say; without a token a random one is made."""
    if token and (len(token) < SHORTEST or not _TOKEN.fullmatch(token)):
        raise ConfigError(f"a token has at least {SHORTEST} letters, digits or any of . _ ~ -")
    return Options(
        token or secrets.token_urlsafe(32),
        0 if idle == NEVER else wishes.seconds(idle, "--idle"),
        wishes.seconds(limit, "--timeout") if limit else 0,
        direct,
    )


# The job


def plan(
    client: Client,
    notebook: Notebook | None,
    given: Options,
    wish: Wish,
    settings: Settings,
    here: Path,
    mounts: Mounts = (),
) -> Draft:
    """The job that serves, with its program, the notebook and the sources; nothing is sent yet."""
    wish = dataclasses.replace(
        wish,
        command=shlex.join([settings.python, f"{FOLDER}/{SERVER.name}", *given.words()]),
        name=wish.name or f"{job_word(notebook.stem) if notebook else 'jupyter'}-$",
        ports=(*wish.ports, PORT),
        secrets={**wish.secrets, TOKEN: given.token},
        ssh_key="" if given.direct else keys.public_key(settings),
    )
    told: dict[str, Any] = {"file": notebook.name} if notebook else {}
    told |= {"direct": True} if given.direct else {}
    spec = dataclasses.replace(wishes.spec(wish, settings), extras={MARK: told})
    with tempfile.TemporaryDirectory() as folder:
        extra = _files(notebook, settings.sources, here, Path(folder))
        made = draft(client, spec, settings.sources, settings.workspace, here, None, mounts, extra)
    own = (os.path.relpath(notebook.path, here),) if notebook else ()
    origin = dataclasses.replace(made.origin, sources=(*settings.sources, *own))
    return dataclasses.replace(made, origin=origin)


def _files(notebook: Notebook | None, sources: tuple[str, ...], here: Path, folder: Path) -> list[Source]:
    """The notebook as it is, the server's program, and the list of what is sent."""
    own = [_source(notebook.path, notebook.name)] if notebook else []
    names = {source.name for source in [*collect(sources, here), *own]}
    (folder / "sent").write_text(json.dumps(sorted(names)))
    runner = Path(notebook_runner.__file__)
    ours = {SERVER.name: SERVER, runner.name: runner, SENT: folder / "sent"}
    return own + [_source(path, f"{FOLDER}/{name}") for name, path in ours.items()]


def _source(path: Path, name: str) -> Source:
    return Source(path, name, path.stat().st_size)


def mark_of(document: Mapping[str, Any]) -> Mark | None:
    """What a job serves; nothing for one that does not."""
    extras = document.get("extras")
    told = extras.get(MARK) if isinstance(extras, dict) else None
    if not isinstance(told, dict):
        return None
    file = told.get("file")
    return Mark(file if isinstance(file, str) else "", bool(told.get("direct")))


def check_mark(job: JobInfo, document: Mapping[str, Any]) -> Mark:
    """The same, where there must be one."""
    mark = mark_of(document)
    if mark is None:
        hint = "`notebook.fetch` brings what notebook.run has written"
        raise ConfigError(f"job {job.name!r} is none of notebook.serve ({hint})")
    return mark


# What is kept here


def keep(client: Client, job: JobInfo, given: Options, notebook: Notebook | None) -> Kept:
    """Write down what a later call needs, for this user's eyes only."""
    kept = Kept(given.token, notebook.name, str(notebook.path)) if notebook else Kept(given.token)
    _write(_path(client, job), kept)
    return kept


def _write(path: Path, kept: Kept) -> None:
    write_private(path, json.dumps(dataclasses.asdict(kept)) + "\n")


def kept(client: Client, job: JobInfo) -> Kept | None:
    """What was written down on this machine, if it was."""
    return _read(_path(client, job))


def _read(path: Path) -> Kept | None:
    names = {item.name for item in dataclasses.fields(Kept)}
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        found = {name: value for name, value in told.items() if name in names and isinstance(value, str)}
        return Kept(**found)
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def token_of(client: Client, job: JobInfo) -> str:
    """The token of a server that was started from this machine."""
    found = kept(client, job)
    if job.final:
        return ""  # there is no server any more
    if found is None or not found.token:
        raise ConfigError(
            f"the token of job {job.name!r} is not known on this machine: give it with --token-file"
        )
    return found.token


def forget(client: Client, job: JobInfo) -> None:
    """Forget the token of a server that is over; where its notebook belongs is still needed."""
    path, found = _path(client, job), kept(client, job)
    if found and found.token:
        _write(path, dataclasses.replace(found, token=""))


def forget_all(client: Client) -> None:
    """The same for every server that was started from here, and has ended while nobody looked."""
    for path in _folder(client).glob("*.json"):
        found = _read(path)
        if found and found.token:
            with contextlib.suppress(PaiError):
                _forget_ended(client, path)


def _forget_ended(client: Client, path: Path) -> None:
    try:
        job = client.job(path.stem)
    except NotFound:
        path.unlink(missing_ok=True)
        return
    if job.final:
        forget(client, job)


def door(client: Client, job: JobInfo) -> Path:
    """The file that leads a browser to the server, so that no token is among the words of a process."""
    return _path(client, job).with_suffix(".html")


def write_door(path: Path, url: str) -> str:
    """Write it; the address to open."""
    address = json.dumps(url).replace("<", "\\u003c")
    lines = ["<!DOCTYPE html>", '<meta charset="utf-8">', "<title>Jupyter</title>"]
    lines += ['<meta name="referrer" content="no-referrer">', f"<script>location.replace({address})</script>"]
    write_private(path, "\n".join(lines) + "\n")
    return path.as_uri()


def _folder(client: Client) -> Path:
    return home() / "notebooks" / client.cluster.alias


def _path(client: Client, job: JobInfo) -> Path:
    return _folder(client) / f"{job.key.replace('/', '_')}.json"


# Its pages


def page(lab: bool, tree: bool, file: str) -> str:
    """Where the notebook is shown, by what the server has; nothing if it has no pages at all."""
    name = quote(file)
    if lab:
        return f"/lab/tree/{name}" if file else "/lab"
    if tree:
        return f"/notebooks/{name}" if file.endswith(SUFFIX) else "/tree"
    return ""
