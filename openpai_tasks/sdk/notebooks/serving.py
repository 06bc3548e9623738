"""A Jupyter server as a job: its submission, and what it is served with."""

from __future__ import annotations

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

from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import ConfigError
from openpai_tasks.protocol import JobRequest
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk import amounts
from openpai_tasks.sdk.files.job_folders import Mounts
from openpai_tasks.sdk.jobs.submission import Submission, prepare
from openpai_tasks.sdk.notebooks import origins as notebook_origins
from openpai_tasks.sdk.notebooks.origins import Origins
from openpai_tasks.sdk.notebooks.running import SUFFIX, Notebook, job_word, with_source
from openpai_tasks.sdk.payloads import notebook_runner, notebook_server
from openpai_tasks.sdk.payloads.notebook_server import PORT, SENT, TOKEN
from openpai_tasks.storage.job_files.sources import SourceFile, collect

MARK = "openpaiNotebookServer"
"""The key of a job's extras that says that it serves Jupyter, and which notebook was sent along."""
FOLDER = ".pai-jupyter"
"""Where in the job's working folder the server's program and its settings are."""
SERVER = Path(notebook_server.__file__)
SHORTEST = 16  # letters of a token
IDLE, NEVER = "2h", "never"

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


def serve_options(token: str, idle: str, limit: str, direct: bool) -> Options:
    """What the flags say; without a token a random one is made."""
    return Options(
        check_token(token) if token else secrets.token_urlsafe(32),
        0 if idle == NEVER else amounts.parse_seconds(idle, "--idle"),
        amounts.parse_seconds(limit, "--timeout") if limit else 0,
        direct,
    )


def check_token(token: str) -> str:
    if len(token) < SHORTEST or not _TOKEN.fullmatch(token):
        raise ConfigError(f"a token has at least {SHORTEST} letters, digits or any of . _ ~ -")
    return token


# The job


def plan_server(
    client: Backend,
    notebook: Notebook | None,
    given: Options,
    request: JobRequest,
    ssh_key: str,
    here: Path,
    mounts: Mounts = (),
) -> Submission:
    """The job that serves, with its program, the notebook and the sources; nothing is sent yet."""
    mark: dict[str, Any] = {"file": notebook.name} if notebook else {}
    mark |= {"direct": True} if given.direct else {}
    request = dataclasses.replace(
        request,
        command=shlex.join([request.python, f"{FOLDER}/{SERVER.name}", *given.words()]),
        name=request.name or f"{job_word(notebook.stem) if notebook else 'jupyter'}-$",
        ports={**request.ports, PORT: 1},
        secrets={**request.secrets, TOKEN: given.token},
        ssh_key="" if given.direct else ssh_key,
        extras={MARK: mark},
    )
    with tempfile.TemporaryDirectory() as folder:
        extra = _files(notebook, request.sources, here, Path(folder))
        made = prepare(client, request, here, mounts, extra)
    return with_source(made, os.path.relpath(notebook.path, here)) if notebook else made


def _files(notebook: Notebook | None, sources: tuple[str, ...], here: Path, folder: Path) -> list[SourceFile]:
    """The notebook as it is, the server's program, and the list of what is sent."""
    own, names = _own(notebook), {source.name for source in _sent(notebook, sources, here)}
    (folder / "sent").write_text(json.dumps(sorted(names)))
    runner = Path(notebook_runner.__file__)
    ours = {SERVER.name: SERVER, runner.name: runner, SENT: folder / "sent"}
    return own + [_source(path, f"{FOLDER}/{name}") for name, path in ours.items()]


def source_origins(notebook: Notebook | None, sources: tuple[str, ...], here: Path) -> Origins:
    """Where all that is sent came from, for what comes back."""
    return notebook_origins.origins(_sent(notebook, sources, here), here)


def _sent(notebook: Notebook | None, sources: tuple[str, ...], here: Path) -> list[SourceFile]:
    return [*collect(sources, here), *_own(notebook)]


def _own(notebook: Notebook | None) -> list[SourceFile]:
    return [_source(notebook.path, notebook.name)] if notebook else []


def _source(path: Path, name: str) -> SourceFile:
    return SourceFile(path, name, path.stat().st_size)


def mark_of(document: Mapping[str, Any]) -> Mark | None:
    """What a job serves; nothing for one that does not."""
    extras = document.get("extras")
    told = extras.get(MARK) if isinstance(extras, dict) else None
    if not isinstance(told, dict):
        return None
    return Mark(notebook_origins.notebook_name(told.get("file")), bool(told.get("direct")))


def check_mark(job: JobInfo, document: Mapping[str, Any]) -> Mark:
    """The same, where there must be one."""
    mark = mark_of(document)
    if mark is None:
        hint = "`notebook.fetch` brings what notebook.run has written"
        raise ConfigError(f"job {job.name!r} is none of notebook.serve ({hint})")
    return mark


def check_reconnect(job: JobInfo, document: Mapping[str, Any], direct: bool) -> Mark:
    """The same, for one that is to be reached by the node's own address if it listens there."""
    mark = check_mark(job, document)
    if direct and not mark.direct:
        raise ConfigError(f"job {job.name!r} was not started with --direct, so only a tunnel leads to it")
    return mark


# Its pages


def page(lab: bool, tree: bool, file: str) -> str:
    """Where the notebook is shown, by what the server has; nothing if it has no pages at all."""
    name = quote(file)
    if lab:
        return f"/lab/tree/{name}" if file else "/lab"
    if tree:
        return f"/notebooks/{name}" if file.endswith(SUFFIX) else "/tree"
    return ""
