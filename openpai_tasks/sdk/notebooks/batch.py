"""A job that serves a notebook, turned into one that runs it: the same document, another command."""

from __future__ import annotations

import dataclasses
import re
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openpai_tasks.backends.openpai import Client
from openpai_tasks.errors import ConfigError, NotFound
from openpai_tasks.protocol.document import scripts
from openpai_tasks.sdk.files.job_folders import Mounts
from openpai_tasks.sdk.jobs import unmasking
from openpai_tasks.sdk.jobs.resubmission import Original
from openpai_tasks.sdk.notebooks import pull, running, serving
from openpai_tasks.sdk.notebooks.running import SUFFIX, Notebook, Options
from openpai_tasks.sdk.notebooks.serving import FOLDER, SERVER
from openpai_tasks.sdk.payloads.notebook_runner import visible
from openpai_tasks.sdk.payloads.notebook_server import PORT, TOKEN
from openpai_tasks.storage.job_files.archive import Archive, pack
from openpai_tasks.storage.job_files.sources import SourceFile

PLUGINS = "com.microsoft.pai.runtimeplugin"
SSH = "ssh"

_SERVES = re.compile(rf"{re.escape(FOLDER)}/{re.escape(SERVER.name)}(?: --(?:idle|limit) \d+| --direct)*")
_TOKENS = {scripts.step(scripts.export_secret(TOKEN, sample)) for sample in ("plain", "'")}


@dataclass(frozen=True)
class Batch:
    """The job to run, and the notebook that it runs."""

    original: Original
    notebook: Notebook
    remarks: tuple[str, ...] = ()


def last_kept(source: Client, original: Original, mounts: Mounts) -> Batch:
    """A served job as a batch job: its notebook and sources as it has last kept them."""
    ways = f"`notebook.pull {original.name}`, then `notebook.resubmit FILE`"
    try:
        saved = pull.find(source, f"{original.user}~{original.name}", mounts)
    except NotFound as err:
        raise ConfigError(f"{err}; when it has: {ways}") from err
    if original.archive is None:
        raise ConfigError(f"the sources of job {original.name!r} cannot be read here: {ways}")
    kept = pull.contents(saved)
    file = _file(original, kept, ways)
    with tempfile.TemporaryDirectory() as folder:
        sources = {one.name: one for one in _sent(original.archive, Path(folder, "sent"))}
        sources |= {one.name: one for one in _written(kept, Path(folder, "kept"))}
        found = running.read(str(sources[file].path), Path(folder))
        notebook = dataclasses.replace(found, name=file)
        sources |= {one.name: one for one in running.files(notebook, Path(folder))}
        archive = pack(list(sources.values()))
    origin = dataclasses.replace(original.origin, files=archive.files)
    batch = dataclasses.replace(original, archive=archive, origin=origin)
    told = "is run without its last changes: it is too large for them to be kept"
    return Batch(instead(batch, file), notebook, tuple(f"{visible(name)} {told}" for name in saved.large))


def instead(original: Original, file: str, given: Options | None = None) -> Original:
    """The job with the notebook run in place of served; what only the server needs is left out."""
    given = given or Options()
    known = tuple(name for name in original.secrets if name != TOKEN)
    document, call = original.document, running.call(file, given)
    roles = {name: _role(role, call) for name, role in document["taskRoles"].items()}
    if all(role["commands"] == document["taskRoles"][name]["commands"] for name, role in roles.items()):
        raise ConfigError(
            f"the command of job {original.name!r} was changed (-u), so it cannot be run instead"
        )
    document = {**document, "taskRoles": roles, "extras": _extras(document["extras"], file, given)}
    document["deployments"] = _without_token(document.get("deployments") or [])
    if not unmasking.names(document, known):
        document.pop("secrets", None)
    return dataclasses.replace(original, document=document, secrets=known)


def _role(role: dict[str, Any], call: str) -> dict[str, Any]:
    needs = dict(role["resourcePerInstance"])
    ports = {name: count for name, count in (needs.pop("ports", None) or {}).items() if name != PORT}
    commands = [_SERVES.sub(lambda _: call, text) for text in role["commands"]]
    return {**role, "resourcePerInstance": needs | ({"ports": ports} if ports else {}), "commands": commands}


def _extras(extras: dict[str, Any], file: str, given: Options) -> dict[str, Any]:
    """Its mark is another one, and nobody needs to get in."""
    rest = {name: value for name, value in extras.items() if name not in (serving.MARK, PLUGINS)}
    plugins = [one for one in extras.get(PLUGINS) or () if one.get("plugin") != SSH]
    return {
        **rest,
        **({PLUGINS: plugins} if plugins else {}),
        running.MARK: running.mark(file, given),
    }


def _without_token(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_token(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_token(item) for item in value if not (isinstance(item, str) and item in _TOKENS)]
    return value


# Its files


def _file(original: Original, kept: dict[str, bytes], ways: str) -> str:
    """The notebook that was opened; of a server without one, the only one that it has kept."""
    mark = serving.mark_of(original.document)
    if mark and mark.file:
        return mark.file
    found = [name for name in kept if name.endswith(SUFFIX)]
    if len(found) != 1:
        told = f"has kept {', '.join(found)}" if found else "has kept no notebook"
        raise ConfigError(f"job {original.name!r} {told}; choose one: {ways}")
    return found[0]


def _sent(archive: Archive, folder: Path) -> Iterator[SourceFile]:
    """What the job was sent with, less the server."""
    folder.mkdir()
    archive.content.seek(0)
    with tarfile.open(fileobj=archive.content, mode="r:gz", errors="surrogateescape") as tar:
        for number, info in enumerate(tar):
            content = tar.extractfile(info) if info.isfile() else None
            if content and not info.name.startswith(f"{FOLDER}/"):
                yield _source(folder / str(number), info.name, content.read(), info.mode)


def _written(kept: dict[str, bytes], folder: Path) -> Iterator[SourceFile]:
    folder.mkdir()
    for number, (name, content) in enumerate(kept.items()):
        yield _source(folder / str(number), name, content, 0o644)


def _source(path: Path, name: str, content: bytes, mode: int) -> SourceFile:
    path.write_bytes(content)
    path.chmod(mode & 0o777 | 0o600)
    return SourceFile(path, name, len(content))
