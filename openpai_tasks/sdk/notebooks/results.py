"""Find a notebook job's results and download them next to the notebook."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import ConfigError, NotFound, PaiError, PathError
from openpai_tasks.files.regular import open_regular
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol import fields
from openpai_tasks.protocol.document import scripts
from openpai_tasks.protocol.json_text import parse
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk.files.job_folders import Mounts
from openpai_tasks.sdk.jobs import documents, outputs, records
from openpai_tasks.sdk.jobs.outputs import Outputs
from openpai_tasks.sdk.notebooks import downloads
from openpai_tasks.sdk.notebooks.running import RunMark, read_run_mark
from openpai_tasks.sdk.payloads.notebook_runner import (
    COLOUR,
    CONTROL,
    EXECUTED,
    STATE,
    digest_of,
    visible,
)
from openpai_tasks.storage.copying import copy as copying
from openpai_tasks.storage.copying.copy import Copied, CopyFailure
from openpai_tasks.storage.copying.plan import CopyItem
from openpai_tasks.storage.copying.progress import Watch
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.location import Location
from openpai_tasks.text.hints import command

FAILED, RUNNING, DONE = "failed", "running", "done"
NOTEBOOK, PAGE, PDF = ".ipynb", ".html", ".pdf"
LARGEST = 1 << 30  # bytes of a notebook whose summary is read
LONGEST_NAME = 255 - len(".remote-999")  # bytes, with room for the suffix of a file beside it
SHORTEST_STEM, EXTENSION_ROOM = 40, 24  # bytes kept for the notebook's name, and for what follows the job's


@dataclass(frozen=True)
class DownloadedFile:
    """A downloaded file."""

    path: str
    size: int
    instead_of: str = ""
    """The intended path, if another file is there."""


@dataclass(frozen=True)
class Results:
    """What a notebook job has written so far."""

    job: JobInfo
    mark: RunMark
    outputs: Outputs
    notebook: str
    """The name of the executed notebook; empty until there is one."""
    is_limited: bool
    """Whether the job's command has a time limit."""


@dataclass(frozen=True)
class RunSummary:
    """How far a notebook ran; if a cell failed, its source and its coloured traceback."""

    state: str
    cell: int
    of: int
    reason: str = ""
    source: str = ""
    traceback: str = ""
    files: tuple[str, ...] = ()
    """Names of the files it was converted to, itself included."""


@dataclass(frozen=True)
class DownloadedResults:
    """The downloaded files, the notebook's summary, and the number of other outputs."""

    copied: Copied
    files: list[DownloadedFile]
    summary: RunSummary | None
    others: int


def find_results(client: Backend, name: str, mounts: Mounts = ()) -> Results:
    """Find the job's results on the storage."""
    job, document = documents.job_document(client, name)
    mark = read_run_mark(document)
    if mark is None:
        hint = f"list its files with `{command('job.outputs', job.name)}`"
        raise ConfigError(f"job {job.name!r} runs no notebook; {hint}")
    found = outputs.find_outputs(client, job.key, mounts)
    commands = [text for role in document["taskRoles"].values() for text in role["commands"]]
    return Results(
        job, mark, found, _executed_notebook(found.files, mark), any(map(scripts.time_limit, commands))
    )


def _executed_notebook(files: Iterable[str], mark: RunMark) -> str:
    """Return the name of the notebook that the runner has written.

    Prefer the marked name: the runner uses it when the plain name is taken.
    """
    found = {_name_number(file, mark): file for file in files if file.endswith(NOTEBOOK)}
    return max(((number, file) for number, file in found.items() if number is not None), default=(0, ""))[1]


def _name_number(file: str, mark: RunMark) -> int | None:
    """Return which of the result names it is, 0 for the plain one; None for any other name."""
    name = file.removesuffix(Path(file).suffix)
    if name == mark.stem:
        return 0
    match = re.fullmatch(rf"{re.escape(mark.stem)}\.{EXECUTED}(?:-(\d+))?", name)
    return int(match[1] or 1) if match else None


def results_folder(here: Path, cluster: str, results: Results) -> Path:
    """Return the notebook's folder by the submission record, else by its name, else ``here``."""
    record = records.find_record(here, results.job.name, cluster)
    named = [here / source for source in record.sources] if record else []
    named += [here / results.mark.file]
    for path in map(os.path.normpath, named):
        if Path(path).name == Path(results.mark.file).name and Path(path).is_file():
            return Path(path).parent
    return here


def download_results(results: Results, folder: Path, watch: Watch | None = None) -> DownloadedResults:
    """Copy the results into the folder as ``<notebook>.<job>.<format>``, never over a file that is not ours.

    The notebook comes first, as it lists what it was converted to; other files are the notebook's own output.
    """
    if not results.notebook:
        job = results.job
        late = late_upload_note(results.outputs, job)
        raise NotFound(f"job {job.name!r} is {job.state} and has written no notebook yet{late}", 404)
    if not folder.is_dir():
        raise PathError(f"no such folder: {folder}")
    arrived = [_download(results, results.notebook, folder, watch)]
    summary = read_summary(_content(results, arrived[0][1]))
    for name in summary.files if summary else ():
        if (
            name in results.outputs.files
            and name != results.notebook
            and _name_number(name, results.mark) is not None
        ):
            arrived.append(_download(results, name, folder, watch))
    others = len(results.outputs.files) - len(arrived)
    here = [result for _, result in arrived if result]
    downloads.remember(Path(result.path) for result in here)
    return DownloadedResults(_total(copied for copied, _ in arrived), here, summary, others)


def _content(results: Results, own: DownloadedFile | None) -> bytes:
    """Read the downloaded notebook, else the remote one; empty if both fail."""
    try:
        if own is None:
            return results.outputs.read(results.notebook, LARGEST)
        with open_regular(own.path) as file:
            return file.read(LARGEST)
    except (OSError, PaiError):
        return b""


def _download(
    results: Results, name: str, folder: Path, watch: Watch | None
) -> tuple[Copied, DownloadedFile | None]:
    """Download a file; return the outcome and the file, if it arrived."""
    entry, wanted = results.outputs.files[name], folder / _local_name(name, results)
    source = Location(results.outputs.folder.store, entry.path, name)
    try:
        path = downloads.free_path(wanted)
        copied = copying.copy(
            [CopyItem(source, entry, Location(LocalStore(), str(path), str(path)))], watch=watch
        )
    except PaiError as err:
        return Copied(failed=(CopyFailure(name, str(err)),)), None
    if copied.failed:
        return copied, None
    return copied, _without_duplicate(
        DownloadedFile(str(path), entry.size, str(wanted) if path != wanted else "")
    )


def _total(parts: Iterable[Copied]) -> Copied:
    all_of = list(parts)
    return Copied(
        sum(one.files for one in all_of),
        sum(one.bytes for one in all_of),
        sum(one.skipped for one in all_of),
        failed=tuple(failure for one in all_of for failure in one.failed),
        seconds=sum(one.seconds for one in all_of),
    )


def late_upload_note(found: Outputs, job: JobInfo) -> str:
    """Say that outputs arrive late, if the storage is the reason."""
    is_late = not job.final and found.folder.store.kind == "hdfs"
    return "; on HDFS, outputs appear when the job ends" if is_late else ""


def _without_duplicate(result: DownloadedFile) -> DownloadedFile:
    """Remove the download if the file at the intended path is identical."""
    path, wanted = Path(result.path), Path(result.instead_of)
    try:
        if result.instead_of and wanted.is_file() and digest_of(wanted) == digest_of(path):
            path.unlink()
            return DownloadedFile(str(wanted), result.size)
    except OSError:
        pass
    return result


def _local_name(name: str, results: Results) -> str:
    """Insert the job's name, shortening both as needed."""
    stem, job = results.mark.stem, results.job.name
    rest = name[len(stem) :]
    room = (
        LONGEST_NAME - len(".") - max(EXTENSION_ROOM, len(_encoded(rest)))
    )  # the same for a notebook and its page
    stem = _shortened(stem, max(SHORTEST_STEM, room - len(_encoded(job))))
    return f"{stem}.{_shortened(job, room - len(_encoded(stem)))}{rest}"


def _shortened(text: str, size: int) -> str:
    """Cut text to ``size`` bytes, ending in a hash of the whole."""
    content = _encoded(text)
    if len(content) <= size:
        return text
    mark = f"~{hashlib.sha256(content).hexdigest()[:8]}"
    return content[: size - len(mark)].decode("utf-8", "ignore") + mark


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def best_page(files: list[DownloadedFile]) -> str:
    """Return the URI of the web page, else the PDF, else the notebook."""
    for suffix in (PAGE, PDF, NOTEBOOK):
        for result in files:
            if result.path.endswith(suffix):
                return Path(result.path).absolute().as_uri()
    return ""


def is_for_browsers(page: str) -> bool:
    """Return whether a browser can show the file."""
    return page.endswith((PAGE, PDF))


# The summary of a run, read from the executed notebook


def read_summary(content: bytes) -> RunSummary | None:
    """Read the summary; None if the notebook is damaged."""
    try:
        read = fields.mapping(parse(content))
    except ValueError:
        return None
    note, cells = fields.mapping(read.get("metadata")).get(STATE), read.get("cells")
    if not isinstance(note, dict) or not isinstance(cells, list):
        return None
    index = fields.whole(note.get("index"))
    if "index" in note and (index is None or not 0 <= index < len(cells)):
        return None
    failed = fields.mapping(cells[index]) if index is not None and note.get("state") == FAILED else {}
    return RunSummary(
        fields.text(note.get("state")),
        fields.count(note.get("cell")),
        fields.count(note.get("of")),
        visible(fields.text(note.get("reason"))),
        "\n".join(map(visible, _source(failed).splitlines())),
        _traceback(failed),
        fields.texts(note.get("files")),
    )


def _source(cell: dict[str, Any]) -> str:
    """Return the cell's source, which is a string or a list of lines."""
    return fields.text(cell.get("source")) or "".join(fields.texts(cell.get("source")))


def _traceback(cell: dict[str, Any]) -> str:
    found = [output for output in fields.rows(cell.get("outputs")) if output.get("output_type") == "error"]
    return "\n".join(line for output in found for line in fields.texts(output.get("traceback")))


def plain_traceback(traceback: str, has_colours: bool) -> str:
    """Remove terminal control sequences from a traceback, except colours if wanted."""
    return "\n".join(_plain(line, has_colours) for line in traceback.splitlines())


def _plain(line: str, has_colours: bool) -> str:
    if not has_colours:
        return visible(CONTROL.sub("", line))
    parts = COLOUR.split(line)
    marks = [*COLOUR.findall(line), ""]
    return "".join(visible(CONTROL.sub("", part)) + mark for part, mark in zip(parts, marks, strict=True))
