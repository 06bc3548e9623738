"""What a notebook job has written, brought next to the notebook, and what it tells."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from openpai_tasks.backends.openpai import Client
from openpai_tasks.errors import ConfigError, NotFound, PaiError, PathError
from openpai_tasks.protocol.document import scripts
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk.files.job_folders import Mounts
from openpai_tasks.sdk.jobs import documents, outputs, records
from openpai_tasks.sdk.jobs.outputs import Outputs
from openpai_tasks.sdk.notebooks import downloads as ours_here
from openpai_tasks.sdk.notebooks.running import Mark, mark_of
from openpai_tasks.sdk.notebooks.summary import Told, told
from openpai_tasks.sdk.payloads.notebook_runner import EXECUTED
from openpai_tasks.sdk.payloads.notebook_server import digest_of
from openpai_tasks.storage.copying import copy as copying
from openpai_tasks.storage.copying.copy import Copied, CopyFailure
from openpai_tasks.storage.copying.plan import Errand
from openpai_tasks.storage.copying.progress import Watch
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.location import Location

NOTEBOOK, PAGE, PAPER = ".ipynb", ".html", ".pdf"
LONGEST = 255 - len(".remote-999")  # bytes of a name, with room for that of a file beside it
STEM, REST = 40, 24  # of them, that the name of a notebook has in any case, and what comes behind the job's


@dataclass(frozen=True)
class Result:
    """A file that was brought."""

    path: str
    size: int
    instead_of: str = ""
    """The path it should have had, which is taken by another file."""


@dataclass(frozen=True)
class Results:
    """What there is of a notebook job until now."""

    job: JobInfo
    mark: Mark
    outputs: Outputs
    notebook: str
    """The name of the executed notebook; empty as long as there is none."""
    is_limited: bool
    """Whether the job has a time limit of its own."""


@dataclass(frozen=True)
class Brought:
    """What became of them: the files that are here now, what the notebook tells, and how many others are."""

    copied: Copied
    files: list[Result]
    told: Told | None
    others: int


def find(client: Client, name: str, mounts: Mounts = ()) -> Results:
    """The job and its results on the storage."""
    job, document = documents.of_job(client, name)
    mark = mark_of(document)
    if mark is None:
        raise ConfigError(f"job {job.name!r} runs no notebook; `job.outputs {job.name}` shows its files")
    found = outputs.find(client, job.key, mounts)
    commands = [text for role in document["taskRoles"].values() for text in role["commands"]]
    return Results(job, mark, found, _executed(found.files, mark), any(map(scripts.is_limited, commands)))


def _executed(files: Iterable[str], mark: Mark) -> str:
    """The notebook that the runner has written.

    Of two that could be it, the one with the mark in its name is: the runner found the plain name taken.
    """
    found = {_number(file, mark): file for file in files if file.endswith(NOTEBOOK)}
    return max(((number, file) for number, file in found.items() if number is not None), default=(0, ""))[1]


def _number(file: str, mark: Mark) -> int | None:
    """Which name of a result it is, 0 for the plain one; nothing for no such name."""
    name = file.removesuffix(Path(file).suffix)
    if name == mark.stem:
        return 0
    match = re.fullmatch(rf"{re.escape(mark.stem)}\.{EXECUTED}(?:-(\d+))?", name)
    return int(match[1] or 1) if match else None


def folder_of(here: Path, cluster: str, results: Results) -> Path:
    """Where the notebook is: by the record of its submission, else by its name; else here."""
    record = records.find(here, results.job.name, cluster)
    named = [here / source for source in record.sources] if record else []
    named += [here / results.mark.file]
    for path in map(os.path.normpath, named):
        if Path(path).name == Path(results.mark.file).name and Path(path).is_file():
            return Path(path).parent
    return here


def bring(results: Results, folder: Path, watch: Watch | None = None) -> Brought:
    """Copy them into the folder as ``<notebook>.<job>.<format>``; beside a file there that is not ours.

    The notebook comes first, as it says what was made of it: all else was written by the notebook itself.
    """
    if not results.notebook:
        job = results.job
        late = when_it_ends(results.outputs, job)
        raise NotFound(f"job {job.name!r} is {job.state} and has written no notebook yet{late}", 404)
    if not folder.is_dir():
        raise PathError(f"no such folder: {folder}")
    arrived = [_one(results, results.notebook, folder, watch)]
    said = told(_content(results, arrived[0][1]))
    made = [name for name in said.files if _is_made(name, results)] if said else []
    arrived += [_one(results, name, folder, watch) for name in made]
    others = len(results.outputs.files) - len(arrived)
    here = [result for _, result in arrived if result]
    ours_here.note(Path(result.path) for result in here)
    return Brought(_sum(copied for copied, _ in arrived), here, said, others)


def _is_made(name: str, results: Results) -> bool:
    is_there = name in results.outputs.files and name != results.notebook
    return is_there and _number(name, results.mark) is not None


def _content(results: Results, own: Result | None) -> bytes:
    """The notebook, read where it is if it could not be brought; nothing if that cannot be either."""
    try:
        return Path(own.path).read_bytes() if own else results.outputs.read(results.notebook)
    except (OSError, PaiError):
        return b""


def _one(results: Results, name: str, folder: Path, watch: Watch | None) -> tuple[Copied, Result | None]:
    """Bring a file: how that went, and the file, if it is here now."""
    entry, wanted = results.outputs.files[name], folder / _name_here(name, results)
    source = Location(results.outputs.folder.store, entry.path, name)
    try:
        path = ours_here.place(wanted)
        copied = copying.copy(
            [Errand(source, entry, Location(LocalStore(), str(path), str(path)))], watch=watch
        )
    except PaiError as err:
        return Copied(failed=(CopyFailure(name, str(err)),)), None
    if copied.failed:
        return copied, None
    return copied, _once(Result(str(path), entry.size, str(wanted) if path != wanted else ""))


def _sum(parts: Iterable[Copied]) -> Copied:
    all_of = list(parts)
    return Copied(
        sum(one.files for one in all_of),
        sum(one.bytes for one in all_of),
        sum(one.skipped for one in all_of),
        failed=tuple(failure for one in all_of for failure in one.failed),
        seconds=sum(one.seconds for one in all_of),
    )


def when_it_ends(found: Outputs, job: JobInfo) -> str:
    """Why there is nothing yet, where the storage is the reason."""
    is_late = not job.final and found.folder.store.kind == "hdfs"
    return "; to HDFS it is written when the job ends" if is_late else ""


def _once(result: Result) -> Result:
    """Nothing is kept beside a file that is the same."""
    path, wanted = Path(result.path), Path(result.instead_of)
    try:
        if result.instead_of and wanted.is_file() and digest_of(wanted) == digest_of(path):
            path.unlink()
            return Result(str(wanted), result.size)
    except OSError:
        pass
    return result


def _name_here(name: str, results: Results) -> str:
    """The name with the job's in it, each as far as there is room."""
    stem, job = results.mark.stem, results.job.name
    rest = name[len(stem) :]
    room = LONGEST - len(".") - max(REST, len(_encoded(rest)))  # the same for a notebook and its page
    stem = _shortened(stem, max(STEM, room - len(_encoded(job))))
    return f"{stem}.{_shortened(job, room - len(_encoded(stem)))}{rest}"


def _shortened(text: str, size: int) -> str:
    """The beginning of a text that has more bytes, and a mark that is always the same for this one."""
    content = _encoded(text)
    if len(content) <= size:
        return text
    mark = f"~{hashlib.sha256(content).hexdigest()[:8]}"
    return content[: size - len(mark)].decode("utf-8", "ignore") + mark


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


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
