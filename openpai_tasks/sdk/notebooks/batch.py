"""Turn a job that serves a notebook into one that runs it: same document, different command."""

from __future__ import annotations

import dataclasses
import io
import re
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import ConfigError, NotFound
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol.document import scripts
from openpai_tasks.protocol.document.roles import PLUGINS
from openpai_tasks.protocol.document.ssh_plugin import SSH
from openpai_tasks.sdk.files.job_folders import Mounts
from openpai_tasks.sdk.jobs import unmasking
from openpai_tasks.sdk.jobs.resubmission import Original
from openpai_tasks.sdk.notebooks import pull, running, serving
from openpai_tasks.sdk.notebooks.notebook_file import SUFFIX, Notebook, read_notebook
from openpai_tasks.sdk.notebooks.running import RunOptions
from openpai_tasks.sdk.notebooks.serving import FOLDER, SERVER
from openpai_tasks.sdk.payloads.notebook_runner import visible
from openpai_tasks.sdk.payloads.notebook_server import PORT, TOKEN
from openpai_tasks.storage.job_files.archive import iter_files, pack
from openpai_tasks.storage.job_files.sources import SourceFile
from openpai_tasks.text.hints import command

_SERVER_CALL = re.compile(
    rf"{re.escape(FOLDER)}/{re.escape(SERVER.name)}(?: --(?:idle|limit) \d+| --direct)*"
)
_TOKEN_EXPORTS = {scripts.step(scripts.export_secret(TOKEN, sample)) for sample in ("plain", "'")}


@dataclass(frozen=True)
class Batch:
    """A job to run, and the notebook it runs if it is not the one that the job was sent with."""

    original: Original
    notebook: Notebook | None = None
    remarks: tuple[str, ...] = ()


def batch_from_server(source: Backend, original: Original, mounts: Mounts) -> Batch:
    """Make a batch job of a server job, with notebook and sources as it last saved them."""
    ways = f"`{command('notebook.pull', original.name)}`, then `{command('notebook.resubmit')} FILE`"
    try:
        saved = pull.find_changes(source, f"{original.user}~{original.name}", mounts)
    except NotFound as err:
        raise ConfigError(f"{err}; once it has: {ways}") from err
    if original.archive is None:
        raise ConfigError(f"cannot read the sources of job {original.name!r} here; use {ways}")
    saved_files = pull.read_changes(saved)
    file = _notebook_file(original, saved_files, ways)
    with tempfile.TemporaryDirectory() as folder:
        sent = (
            (info.name, content, info.mode)
            for info, content in iter_files(original.archive.content)
            if not info.name.startswith(f"{FOLDER}/")  # the server's
        )
        changed = ((name, io.BytesIO(content), 0o644) for name, content in saved_files.items())
        sources = _write_sources(sent, Path(folder, "sent"))
        sources |= _write_sources(changed, Path(folder, "saved"))
        found = read_notebook(str(sources[file].path), Path(folder))
        notebook = dataclasses.replace(found, name=file)
        sources |= {one.name: one for one in running.job_files(notebook, Path(folder))}
        archive = pack(list(sources.values()))
    origin = dataclasses.replace(original.origin, files=archive.files)
    batch = dataclasses.replace(original, archive=archive, origin=origin)
    note = "is too large to be saved; it runs without its latest changes"
    remarks = tuple(f"{visible(name)} {note}" for name in saved.large)
    if not saved.is_latest:
        remarks += (f"job {original.name} is not answering; it runs without its latest changes",)
    return Batch(run_instead_of_serve(batch, file), notebook, remarks)


def run_instead_of_serve(original: Original, file: str, given: RunOptions | None = None) -> Original:
    """Replace the server call by a run of the notebook, and drop what only the server needs."""
    given = given or RunOptions()
    known = tuple(name for name in original.secrets if name != TOKEN)
    document, call = original.document, running.runner_call(file, given)
    roles = {name: _role(role, call) for name, role in document["taskRoles"].items()}
    if all(role["commands"] == document["taskRoles"][name]["commands"] for name, role in roles.items()):
        raise ConfigError(f"cannot run job {original.name!r} as a batch job: its command was changed with -u")
    document = {**document, "taskRoles": roles, "extras": _extras(document["extras"], file, given)}
    document["deployments"] = _without_token(document.get("deployments") or [])
    if not unmasking.secret_names(document, known):
        document.pop("secrets", None)
    return dataclasses.replace(original, document=document, secrets=known)


def _role(role: dict[str, Any], call: str) -> dict[str, Any]:
    needs = dict(role["resourcePerInstance"])
    ports = {name: count for name, count in (needs.pop("ports", None) or {}).items() if name != PORT}
    commands = [_SERVER_CALL.sub(lambda _: call, text) for text in role["commands"]]
    return {**role, "resourcePerInstance": needs | ({"ports": ports} if ports else {}), "commands": commands}


def _extras(extras: dict[str, Any], file: str, given: RunOptions) -> dict[str, Any]:
    """Replace the server's mark by that of a run, and drop the ssh plugin."""
    rest = {name: value for name, value in extras.items() if name not in (serving.MARK, PLUGINS)}
    plugins = [one for one in extras.get(PLUGINS) or () if one.get("plugin") != SSH]
    return {
        **rest,
        **({PLUGINS: plugins} if plugins else {}),
        running.MARK: running.run_mark(file, given),
    }


def _without_token(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_token(item) for key, item in value.items()}
    if isinstance(value, list):
        return [
            _without_token(item) for item in value if not (isinstance(item, str) and item in _TOKEN_EXPORTS)
        ]
    return value


# Files


def _notebook_file(original: Original, saved_files: dict[str, bytes], ways: str) -> str:
    """Return the notebook that was opened, else the only notebook that was saved."""
    mark = serving.read_server_mark(original.document)
    if mark and mark.file:
        return mark.file
    found = [name for name in saved_files if name.endswith(SUFFIX)]
    if len(found) != 1:
        saved = ", ".join(found) or "no notebook"
        raise ConfigError(f"job {original.name!r} has saved {saved}; choose one: {ways}")
    return found[0]


def _write_sources(files: Iterable[tuple[str, IO[bytes], int]], folder: Path) -> dict[str, SourceFile]:
    """Write files, given by name, content and mode, to a new folder; return them by name."""
    folder.mkdir()
    sources = {}
    for number, (name, content, mode) in enumerate(files):
        path = folder / str(number)
        with path.open("wb") as file:
            shutil.copyfileobj(content, file)
        path.chmod(mode & 0o777 | 0o600)
        sources[name] = running.source_file(path, name)
    return sources
