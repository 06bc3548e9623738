"""What a notebook job has written, brought next to the notebook, and what it tells."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openpai_tasks.client import Client
from openpai_tasks.errors import ConfigError, NotFound, PathError
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk import brought as ours_here
from openpai_tasks.sdk import documents, outputs, records
from openpai_tasks.sdk.notebook_runner import EXECUTED, STATE, source_of, visible
from openpai_tasks.sdk.notebooks import FORMATS, Mark, mark_of
from openpai_tasks.sdk.outputs import Outputs
from openpai_tasks.sdk.places import Mounts
from openpai_tasks.storage import copy as copying
from openpai_tasks.storage.copy import Copied
from openpai_tasks.storage.local import LocalStore
from openpai_tasks.storage.location import Location
from openpai_tasks.storage.plan import Errand
from openpai_tasks.storage.progress import Watch

NOTEBOOK, PAGE, PAPER = ".ipynb", ".html", ".pdf"

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b(?!\[)")


@dataclass(frozen=True)
class Result:
    """A file that was brought."""

    path: str
    size: int
    instead_of: str = ""
    """The path it should have had, which is taken by another file."""


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
    names = set(_ours(found.files, mark, job.final))
    ours = {file: entry for file, entry in found.files.items() if file in names}
    return Results(job, mark, dataclasses.replace(found, files=ours), len(found.files) - len(ours))


def _ours(files: Iterable[str], mark: Mark, is_over: bool = True) -> list[str]:
    """The notebook, and what was made of it, which is at the end; all else was written by the notebook.

    Of two that could be it, the one with the mark in its name is: the runner found the plain name taken.
    """
    found: dict[str, tuple[int, str]] = {}
    for file in files:
        extension = Path(file).suffix
        number = _number(file.removesuffix(extension), mark.stem)
        if number is not None and (extension == NOTEBOOK or (is_over and _is_made(extension, mark))):
            found[extension] = max(found.get(extension, (number, file)), (number, file))
    return [file for _, file in found.values()]


def _number(name: str, stem: str) -> int | None:
    if name == stem:
        return 0
    match = re.fullmatch(rf"{re.escape(stem)}\.{EXECUTED}(?:-(\d+))?", name)
    return int(match[1] or 1) if match else None


def _is_made(extension: str, mark: Mark) -> bool:
    formats = mark.options.formats
    if extension.removeprefix(".") in FORMATS:
        return extension.removeprefix(".") in formats
    return "script" in formats


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
    """Copy them into the folder as ``<notebook>.<job>.<format>``; beside a file there that is not ours."""
    if not results.outputs.files:
        raise NotFound(
            f"job {results.job.name!r} is {results.job.state} and has written no notebook yet", 404
        )
    if not folder.is_dir():
        raise PathError(f"no such folder: {folder}")
    here, store = LocalStore(), results.outputs.folder.store
    errands, brought = [], []
    for name, entry in results.outputs.files.items():
        wanted = folder / _name_here(name, results)
        path = ours_here.place(wanted)
        target = Location(here, str(path), str(path))
        errands.append(Errand(Location(store, entry.path, name), entry, target))
        brought.append(Result(str(path), entry.size, str(wanted) if path != wanted else ""))
    copied = copying.copy(errands, watch=watch)
    brought = [_once(result) for result in brought]
    ours_here.note(Path(result.path) for result in brought)
    return copied, brought


def _once(result: Result) -> Result:
    """Nothing is kept beside a file that is the same."""
    path, wanted = Path(result.path), Path(result.instead_of)
    try:
        if result.instead_of and wanted.is_file() and ours_here.digest(wanted) == ours_here.digest(path):
            path.unlink()
            return Result(str(wanted), result.size)
    except OSError:
        pass
    return result


def _name_here(name: str, results: Results) -> str:
    stem = results.mark.stem
    return f"{stem}.{results.job.name}{name[len(stem) :]}"


def page(brought: list[Result]) -> str:
    """The address of what shows best: the web page, else the PDF, else the notebook."""
    for suffix in (PAGE, PAPER, NOTEBOOK):
        for result in brought:
            if result.path.endswith(suffix):
                return Path(result.path).absolute().as_uri()
    return ""


def is_for_browsers(page: str) -> bool:
    """Whether a browser shows what is there."""
    return page.endswith((PAGE, PAPER))


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
