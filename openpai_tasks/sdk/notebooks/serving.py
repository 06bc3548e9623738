"""Plan a job that serves Jupyter."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import secrets
import shlex
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import ConfigError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol import JobRequest, fields
from openpai_tasks.protocol.document.scripts import INTERACTIVE
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk import amounts
from openpai_tasks.sdk.clusters import embedded
from openpai_tasks.sdk.files.job_folders import Mounts
from openpai_tasks.sdk.jobs.submission import Submission, prepare
from openpai_tasks.sdk.notebooks import origins as notebook_origins
from openpai_tasks.sdk.notebooks.notebook_file import Notebook
from openpai_tasks.sdk.notebooks.origins import Origins
from openpai_tasks.sdk.notebooks.running import add_source, job_name_stem, source_file
from openpai_tasks.sdk.payloads import notebook_runner, notebook_server
from openpai_tasks.sdk.payloads.notebook_server import PORT, SENT, TOKEN
from openpai_tasks.storage.job_files.sources import SourceFile, collect
from openpai_tasks.text import durations
from openpai_tasks.text.hints import command, option

MARK = "openpaiNotebookServer"
"""Key in a job's extras that marks a Jupyter server and names its notebook."""
FOLDER = ".pai-jupyter"
"""Folder of the server's program and settings in the job's working folder."""
SERVER = Path(notebook_server.__file__)
SHORTEST_TOKEN = 16  # characters

_TOKEN = re.compile(r"[A-Za-z0-9._~-]+")


@dataclass(frozen=True)
class ServeOptions:
    """Options for a server; 0 seconds means no limit."""

    token: str = field(repr=False)
    idle_seconds: int
    limit_seconds: int = 0
    direct: bool = False

    def words(self) -> list[str]:
        """Return the flags of the server's program, without the token."""
        words = ["--idle", str(self.idle_seconds)] if self.idle_seconds else []
        words += ["--limit", str(self.limit_seconds)] if self.limit_seconds else []
        return words + (["--direct"] if self.direct else [])


@dataclass(frozen=True)
class ServerMark:
    """The notebook and options in a server job's extras."""

    file: str = ""
    direct: bool = False


def serve_options(token: str, idle: str, limit: str, direct: bool) -> ServeOptions:
    """Build options from flags, with a random token by default."""
    return ServeOptions(
        check_token(token) if token else secrets.token_urlsafe(32),
        amounts.read("idle", amounts.idle_seconds, idle),
        amounts.read("timeout", durations.seconds, limit) if limit else 0,
        direct,
    )


def check_token(token: str) -> str:
    if not _TOKEN.fullmatch(token):
        raise ConfigError("invalid token: expected letters, digits and . _ ~ -")
    return token


def check_guessable(client: Backend, token: str, direct: bool) -> None:
    """Refuse a short token, except for a server that only users of this machine can reach."""
    if len(token) >= SHORTEST_TOKEN:
        return
    if direct or not embedded.runs_on_this_machine(client):
        raise ConfigError(
            f"invalid token: others could guess one of fewer than {SHORTEST_TOKEN} characters, which is "
            f"taken only for a server on this machine; leave out {option('token')} for a random one"
        )
    client.say(f"warning: other users of this machine could guess a token of {len(token)} characters")


# The job


def plan_server(
    client: Backend,
    notebook: Notebook | None,
    given: ServeOptions,
    request: JobRequest,
    ssh_key: str,
    here: Path,
    mounts: Mounts = (),
) -> Submission:
    """Prepare the server job with its program, the notebook and the sources; send nothing."""
    check_guessable(client, given.token, given.direct)
    mark: dict[str, Any] = {"file": notebook.name} if notebook else {}
    mark |= {"direct": True} if given.direct else {}
    request = dataclasses.replace(
        request,
        command=shlex.join([request.python, f"{FOLDER}/{SERVER.name}", *given.words()]),
        name=request.name or f"{job_name_stem(notebook.stem) if notebook else 'jupyter'}-$",
        ports={**request.ports, PORT: 1},
        environment={**request.environment, INTERACTIVE: "1"},
        secrets={**request.secrets, TOKEN: given.token},
        ssh_key="" if given.direct else ssh_key,
        extras={MARK: mark},
    )
    made = prepare(client, request, here, mounts, _files(notebook, request.sources, here))
    return add_source(made, os.path.relpath(notebook.path, here)) if notebook else made


def _files(notebook: Notebook | None, sources: tuple[str, ...], here: Path) -> list[SourceFile]:
    """Return the notebook, the server's program, and the sent files with their dates."""
    opened = _notebook_source(notebook)
    dates = {source.name: int(source.path.stat().st_mtime) for source in _sent(notebook, sources, here)}
    sent = SourceFile.from_bytes(json.dumps(dates, sort_keys=True).encode(), f"{FOLDER}/{SENT}")
    ours = (SERVER, Path(notebook_runner.__file__))
    return [*opened, *(source_file(path, f"{FOLDER}/{path.name}") for path in ours), sent]


def source_origins(notebook: Notebook | None, sources: tuple[str, ...], here: Path) -> Origins:
    """Return where the sent files came from, for a later pull."""
    return notebook_origins.find_origins(_sent(notebook, sources, here), here)


def _sent(notebook: Notebook | None, sources: tuple[str, ...], here: Path) -> list[SourceFile]:
    return [*collect(sources, here).files, *_notebook_source(notebook)]


def _notebook_source(notebook: Notebook | None) -> list[SourceFile]:
    return [source_file(notebook.path, notebook.name)] if notebook else []


def read_server_mark(document: Mapping[str, Any]) -> ServerMark | None:
    """Read the mark from a job's document; None if it is not a server."""
    mark = fields.mapping(document.get("extras")).get(MARK)
    if not isinstance(mark, dict):
        return None
    return ServerMark(notebook_origins.safe_notebook_name(mark.get("file")), bool(mark.get("direct")))


def require_server_mark(job: JobInfo, document: Mapping[str, Any]) -> ServerMark:
    """Read the mark, or raise if the job is not a server."""
    mark = read_server_mark(document)
    if mark is None:
        hint = f"for results of notebook.run use `{command('notebook.fetch', job.name)}`"
        raise ConfigError(f"job {job.name!r} was not started by notebook.serve; {hint}")
    return mark


def check_reconnect(job: JobInfo, document: Mapping[str, Any], direct: bool) -> ServerMark:
    """Read the mark, and raise if ``direct`` is wanted but the server does not allow it."""
    mark = require_server_mark(job, document)
    if direct and not mark.direct:
        raise ConfigError(
            f"job {job.name!r} was not started with --direct, so it can only be reached by tunnel"
        )
    return mark
