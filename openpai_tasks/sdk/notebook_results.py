"""What a notebook job has written, brought next to the notebook, and what it tells."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openpai_tasks.client import Client
from openpai_tasks.errors import ConfigError, NotFound, PathError
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk import documents, outputs, records
from openpai_tasks.sdk.notebook_runner import STATE, source_of, visible
from openpai_tasks.sdk.notebooks import FORMATS, Mark, mark_of
from openpai_tasks.sdk.outputs import Outputs
from openpai_tasks.sdk.places import Mounts
from openpai_tasks.storage import copy as copying
from openpai_tasks.storage.copy import Copied
from openpai_tasks.storage.local import LocalStore
from openpai_tasks.storage.location import Location
from openpai_tasks.storage.plan import Errand
from openpai_tasks.storage.progress import Watch

NOTEBOOK, PAGE = ".ipynb", ".html"

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b(?!\[)")


@dataclass(frozen=True)
class Result:
    """A file that was brought."""

    path: str
    size: int


@dataclass(frozen=True)
class Told:
    """How far the notebook came; the failing cell and its traceback, with colours, if one failed."""

    state: str
    cell: int
    of: int
    reason: str = ""
    source: str = ""
    traceback: str = ""


@dataclass(frozen=True)
class Results:
    """What there is of a notebook job until now."""

    job: JobInfo
    mark: Mark
    outputs: Outputs
    others: int
    """Files in the output folder that the notebook itself wrote there."""

    @property
    def names(self) -> list[str]:
        return list(self.outputs.files)


def find(client: Client, name: str, mounts: Mounts = ()) -> Results:
    """The job and its results on the storage."""
    job, document = documents.of_job(client, name)
    mark = mark_of(document)
    if mark is None:
        raise ConfigError(f"job {job.name!r} runs no notebook; `job.outputs {job.name}` shows its files")
    found = outputs.find(client, job.key, mounts)
    ours = {file: entry for file, entry in found.files.items() if _is_ours(file, mark)}
    return Results(job, mark, dataclasses.replace(found, files=ours), len(found.files) - len(ours))


def _is_ours(file: str, mark: Mark) -> bool:
    """Whether it is the notebook, or what was made of it."""
    path = Path(file)
    if len(path.parts) > 1 or path.stem != mark.stem:
        return False
    known = {NOTEBOOK, *(f".{name}" for name in FORMATS)}
    return path.suffix in known or "script" in mark.options.formats


def folder_of(here: Path, cluster: str, results: Results) -> Path:
    """Where the notebook is: by the record of its submission, else by its name; else here."""
    record = records.find(here, results.job.name, cluster)
    named = [here / source for source in record.sources] if record else []
    named += [here / results.mark.file]
    for path in map(os.path.normpath, named):
        if Path(path).name == Path(results.mark.file).name and Path(path).is_file():
            return Path(path).parent
    return here


def bring(results: Results, folder: Path, watch: Watch | None = None) -> tuple[Copied, list[Result]]:
    """Copy them into the folder as ``<notebook>.<job>.<format>``, which is never the notebook itself."""
    if not results.outputs.files:
        raise NotFound(
            f"job {results.job.name!r} is {results.job.state} and has written no notebook yet", 404
        )
    if not folder.is_dir():
        raise PathError(f"no such folder: {folder}")
    here, store = LocalStore(), results.outputs.folder.store
    errands, brought = [], []
    for name, entry in results.outputs.files.items():
        path = folder / _name_here(name, results)
        target = Location(here, str(path), str(path))
        errands.append(Errand(Location(store, entry.path, name), entry, target))
        brought.append(Result(str(path), entry.size))
    return copying.copy(errands, watch=watch), brought


def _name_here(name: str, results: Results) -> str:
    stem = results.mark.stem
    return f"{stem}.{results.job.name}{name[len(stem) :]}"


def page(brought: list[Result]) -> str:
    """The address of what a browser can show, if there is something."""
    paths = [Path(result.path) for result in brought if result.path.endswith(PAGE)]
    return paths[0].absolute().as_uri() if paths else ""


def can_show() -> bool:
    """Whether a person sits here whose browser could open something."""
    has_display = sys.platform != "linux" or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
    return has_display and sys.stderr is not None and sys.stderr.isatty()


def told(brought: list[Result]) -> Told | None:
    """What the executed notebook says of its run."""
    path = next((result.path for result in brought if result.path.endswith(NOTEBOOK)), None)
    if path is None:
        return None
    try:
        content = json.loads(Path(path).read_bytes())
        note, cells = content["metadata"][STATE], content["cells"]
        cell: dict[str, Any] = cells[note["index"]] if "index" in note else {}
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None
    failed = cell if note.get("state") == "failed" else {}
    return Told(
        str(note.get("state")),
        int(note.get("cell", 0)),
        int(note.get("of", 0)),
        visible(str(note.get("reason", ""))),
        "\n".join(map(visible, source_of(failed).splitlines())),
        _traceback(failed),
    )


def _traceback(cell: dict[str, Any]) -> str:
    found = [output for output in cell.get("outputs", ()) if output.get("output_type") == "error"]
    return "\n".join(str(line) for output in found for line in output.get("traceback", ()))


def plain(text: str, has_colours: bool) -> str:
    """A traceback as a terminal may show it: with its colours or without, and nothing else that steers."""
    return "\n".join(_plain(line, has_colours) for line in text.splitlines())


def _plain(line: str, has_colours: bool) -> str:
    if not has_colours:
        return visible(_SEQUENCE.sub("", line))
    parts = _COLOUR.split(line)
    marks = [*_COLOUR.findall(line), ""]
    return "".join(visible(_SEQUENCE.sub("", part)) + mark for part, mark in zip(parts, marks, strict=True))
