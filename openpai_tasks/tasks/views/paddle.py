"""What the commands for PaddleCloud print."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from openpai_tasks import render, sdk
from openpai_tasks.tasks.framework import terminal
from openpai_tasks.tasks.views import listings, submitting
from openpai_tasks.text.hints import command
from openpai_tasks.text.plurals import counted

if TYPE_CHECKING:
    from openpai_tasks.backends.paddlecloud.answers import PaddlePod
    from openpai_tasks.backends.paddlecloud.backend import PaddleBackend
    from openpai_tasks.paddlecloud.jobs import PaddleJobRow, QuotaRow
    from openpai_tasks.paddlecloud.package import Package
    from openpai_tasks.paddlecloud.pfs_places import PfsListing
    from openpai_tasks.render import TextTable
    from openpai_tasks.storage.copying.progress import Copied

NOTHING = "-"
TRAINER = "trainer"


def jobs_table(jobs: Sequence[PaddleJobRow]) -> TextTable:
    """The table of `get jobs`."""
    header = ("NAME", "ACTIVE", "SUCC", "FAIL", "START", "COMP", "PS_READY", "PS_TOTAL")
    rows: list[tuple[Any, ...]] = []
    for job in jobs:
        times = (_utc(job.started), _utc(job.completed))
        counts = (job.active, job.succeeded, job.failed, *times, job.ps_ready, job.ps_total)
        rows.append((job.name, *(counts if job.is_listed else (job.state, *[NOTHING] * 6))))
    return _table(header, rows)


def short_table(jobs: Sequence[PaddleJobRow]) -> TextTable:
    """The table of `jobs`."""
    header = ("NAMESPACE", "NAME", "DESIRED", "SUCCESSFUL", "AGE")
    rows: list[tuple[Any, ...]] = []
    for job in jobs:
        counts = (job.desired, job.succeeded) if job.is_listed else (NOTHING, job.state)
        rows.append((job.namespace, job.name, *counts, _age(job.age)))
    return _table(header, rows)


def workers_table(pods: Sequence[PaddlePod]) -> TextTable:
    header = ("NAME", "STATUS", "START", "EXIT_CODE", "MSG")
    rows: list[tuple[Any, ...]] = []
    for pod in pods:
        message = ": ".join(dict.fromkeys(filter(None, (pod.reason, pod.message))))
        rows.append((pod.name, pod.phase, _utc(pod.started), pod.exit_code, message))
    return _table(header, rows)


def quota_table(rows: Sequence[QuotaRow]) -> TextTable:
    return _table(("RESOURCE", "LIMIT", "USED"), [(row.resource, row.limit, row.used) for row in rows])


def _table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> TextTable:
    return render.TextTable(header, [[render.cell("", value) for value in row] for row in rows])


def _utc(milliseconds: int | None) -> str:
    """Format a time as Kubernetes does."""
    if milliseconds is None:
        return ""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return ""


def _age(seconds: float | None) -> str:
    """Format an age in its largest unit, as Kubernetes does."""
    if seconds is None:
        return ""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f}{unit}"
    return f"{seconds:.0f}s"


def show_logs(pods: Sequence[PaddlePod], text: str) -> None:
    """Print the pods of the job in one line, then the last lines of their output."""
    if pods:
        shown = ", ".join(f"({_quoted(pod.phase)}, {_quoted(pod.ip)})" for pod in pods)
        terminal.put(f"running pod list:  [{shown}]")
    terminal.put(text.removesuffix("\n"))


def follow_logs(client: PaddleBackend, job: str, lines: int) -> None:
    """Print the output of the trainers until the job ends; raise if it failed."""
    again = f"`{command('paddle.logs', job)} --follow` shows its output"
    with submitting.job_continues(job, again=again, stop=command("paddle.kill", job)):
        news, choice = sdk.diagnosis.JobReporter(client, terminal.say), sdk.logs.LogChoice(role=TRAINER)
        terminal.write_bytes(sdk.logs.read_output(client, job, choice, True, lines, news))
    sdk.jobs.check_succeeded(sdk.diagnosis.add_cause(client, sdk.jobs.wait(client, job)))


def _quoted(text: str) -> str:
    return "'" + render.cell("", text).replace("'", "") + "'"


def pfs_listings(found: Sequence[PfsListing]) -> str:
    """The files of each path, with the time, type and size of each."""
    shown = []
    for one in found:
        lines = [f"{render.cell('', one.path)} :"]
        wide = max((len(str(entry.size)) for entry in one.entries), default=0)
        for entry in one.entries:
            when, kind = render.cell("modified", entry.modified or None), "d" if entry.is_folder else "f"
            lines.append(f"{when:19} {kind} {entry.size:>{wide}} {render.cell('', entry.path)}")
        shown.append("\n".join(lines))
    return "\n\n".join(shown)


def names(found: Sequence[PfsListing]) -> str:
    """The name of each file, on its own line."""
    paths = (entry.path for one in found for entry in one.entries)
    return "\n".join(render.cell("", path.rpartition("/")[2]) for path in paths)


def show_preview(package: Package, folder: str, url: str, body: dict[str, Any]) -> None:
    """Show the files and the submission that would be sent."""
    for name, size in package.files:
        terminal.say(f"  {render.cell('', name)}  {render.size(size)}")
    total = f"{counted(len(package.files), 'file')}, {render.size(package.size)}"
    terminal.say(f"would upload {total} to {folder} and POST to {url}; nothing was sent")
    terminal.exact(render.format_values(body, (), "json") + "\n")


def file_lines(done: str, origin: str, verbose: bool) -> dict[str, str]:
    """Return how the lines about copied files begin and, if ``verbose``, those about unchanged ones."""
    lines = {"copied": f"[INFO]  {done} {origin}"}
    return lines | ({"skipped": f"[INFO]  Unchanged {origin}"} if verbose else {})


def copy_summary(copied: Copied) -> str:
    """The counts of a copy, whose failures are reported already."""
    return listings.describe_copy(copied).rpartition("\n")[2]


def report_failures(copied: Copied) -> None:
    """Print a line for each file that did not arrive."""
    for one in copied.failed:
        terminal.say(f"[ERROR]  {render.cell('path', one.path)}: {render.cell('reason', one.reason)}")
