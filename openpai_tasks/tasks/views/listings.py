"""Files, copies and what jobs left behind, for people to read; long lists are printed as they arrive."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from openpai_tasks import render
from openpai_tasks.errors import ConfigError
from openpai_tasks.tasks.framework import prompts, screen, terminal
from openpai_tasks.text.plurals import counted

if TYPE_CHECKING:
    from openpai_tasks.backends.base import Backend, RemovedJob, RemovedOrphan
    from openpai_tasks.render import Page, TextTable
    from openpai_tasks.sdk.files.cleaning import (
        CleanupResult,
        JobLeftovers,
        KeptFile,
        Leftovers,
        PartsCleanup,
    )
    from openpai_tasks.sdk.files.operations import FileInfo, StorageUsage
    from openpai_tasks.sdk.files.removing import Removal
    from openpai_tasks.storage.copying.progress import Copied
    from openpai_tasks.storage.copying.walk import WalkedEntry
    from openpai_tasks.storage.packing.pack import Packed

SORT_LIMIT = 10_000
"""The most names that are sorted; a longer list is printed in the order it arrives."""
NARROW = 60  # columns of a terminal that has no room for the time of each file
COLUMNS = ("name", "type", "size", "modified", "link", "url")
USAGE = ("size", "files", "folders", "url")


def show_files(found: Iterator[FileInfo], output: str) -> None:
    """Print a line for each file as it arrives; other formats wait for all of them."""
    if output != "table":
        terminal.put(render.format_values(sorted(found, key=lambda info: info.name), COLUMNS, output))
        return
    first = list(itertools.islice(found, SORT_LIMIT))
    if len(first) < SORT_LIMIT:
        first.sort(key=lambda info: info.name)
    is_narrow = sys.stdout.isatty() and terminal.size(sys.stdout).columns < NARROW
    for info in itertools.chain(first, found):
        terminal.put(_file_line(info, is_narrow))


def show_usage(found: Iterator[StorageUsage], output: str) -> None:
    """Print a row for each entry of a folder and, last, one for the folder; a long list as it arrives."""
    rows = list(itertools.islice(found, SORT_LIMIT if output == "table" else None))
    if len(rows) < SORT_LIMIT or output != "table":
        rows[:-1] = sorted(rows[:-1], key=lambda row: row.url)
    if output == "table":
        screen.print_view(render.table(rows, USAGE))
    else:
        terminal.put(render.format_values(rows, USAGE, output))
    for row in found:
        terminal.put("  ".join(render.cell(name, getattr(row, name)) for name in USAGE))


def _file_line(info: FileInfo, is_narrow: bool) -> str:
    """Return size, time and name; a narrow terminal shows the date only."""
    size = "-" if info.type == "folder" else render.size(info.size)
    wide = len("2026-01-31" if is_narrow else "2026-01-31 12:00:00")
    changed = render.when(info.modified)[:wide] if info.modified else "-"
    mark = "/" if info.type == "folder" else ""
    return f"{size:>10}  {changed:>{wide}}  {render.cell('name', info.name)}{mark}"


def show_tree(url: str, found: Iterable[tuple[str, WalkedEntry]], output: str) -> None:
    """Print a folder and everything below it; as data, one row for each entry."""
    if output != "table":
        rows = [
            {
                "path": item.name,
                "depth": item.depth,
                "type": "folder" if item.entry.is_folder else "file",
                "size": item.entry.size,
                "modified": item.entry.mtime_ms,
            }
            for _, item in found
        ]
        terminal.put(render.format_values(rows, ("path", "type", "size"), output))
        return
    terminal.put(render.cell("name", url))
    for bars, item in found:
        mark = "/" if item.entry.is_folder else ""
        terminal.put(f"{bars}{render.cell('name', item.entry.name)}{mark}")


def describe_copy(copied: Copied) -> str:
    """Summarise a copy in one line, after a line for each failure."""
    parts = [f"{copied.files} copied ({render.size(copied.bytes)})", f"{copied.skipped} skipped"]
    parts += [f"{copied.removed} removed"] if copied.removed else []
    parts += [f"{len(copied.failed)} failed", f"{copied.seconds:.1f}s"]
    where = f"; target: {render.cell('url', copied.target)}" if copied.target else ""
    lines = [
        f"failed {render.cell('path', one.path)}: {render.cell('reason', one.reason)}"
        for one in copied.failed
    ]
    return "\n".join([*lines, ("preview: " if copied.preview else "") + ", ".join(parts) + where])


def describe_pack(made: Packed) -> str:
    """Summarise a pack in one line."""
    shards = counted(made.shards, "shard")
    size, whole = render.size(made.bytes), render.size(made.packed_bytes)
    return f"{made.files} packed ({size}) into {shards} ({whole}), {made.seconds:.1f}s"


def confirm_removals(removals: Sequence[Removal], ask_all: bool = False) -> None:
    """Ask before removing folders that are not empty, or names that matched only as a pattern with ``[``."""
    asked = [one for one in removals if ask_all or one.is_full or one.is_guess]
    words = [render.cell("url", one.place.url) + " and everything in it" * one.is_full for one in asked]
    if words:
        prompts.confirm(f"remove {', '.join(words)}?")


def leftovers_table(jobs: Sequence[JobLeftovers]) -> TextTable:
    rows = [
        {
            "job": job.name,
            "state": job.state,
            "age": f"{job.age / 86400:.0f}d" if job.age >= 2 * 86400 else render.duration(job.age),
            "source": render.size(job.source),
            "output": render.size(job.output),
            "files": job.files,
            "other": render.size(job.other),
            "archive": [sha256[:12] for sha256 in job.archives],
        }
        for job in jobs
    ]
    return render.rows(rows, ("job", "state", "age", "source", "output", "files", "other", "archive"))


def storage_usage(found: Leftovers) -> Page:
    shared = [one for one in found.archives if len(one.jobs) > 1]
    unused = [one for one in found.archives if not one.jobs]
    size = render.size(sum(one.size for one in found.archives))
    archives = f"{counted(len(found.archives), 'archive')} of sources, {size}"
    archives += f", {len(shared)} of them shared by several jobs" if shared else ""
    archives += f", {len(unused)} unused" if unused else ""
    total = f"{counted(len(found.jobs), 'job')}; {archives}; {render.size(found.total)} in all"
    lines = []
    for one in found.others:
        amount = f"{counted(one.files, 'file')}, {render.size(one.size)}"
        lines.append(f"not a job's: {render.cell('name', one.name)} ({amount})")
    lines.append(f"{render.cell('url', found.url)}: {total}")
    return render.Page([leftovers_table(found.jobs), *lines] if found.jobs else lines, spaced=False)


def cleaned(found: CleanupResult) -> str:
    verb = "would be removed" if found.preview else "removed"
    lines = [f"{verb}: {render.cell('name', name)}" for name in found.jobs]
    lines += [f"{verb}: sources {sha256[:12]}" for sha256 in found.archives]
    lines += _kept(found.kept)
    jobs, archives = counted(len(found.jobs), "job"), counted(len(found.archives), "archive")
    return "\n".join([*lines, f"{jobs}, {archives}, {render.size(found.size)} {verb}"])


def cleaned_parts(found: PartsCleanup) -> str:
    verb = "would be removed" if found.preview else "removed"
    lines = [f"{verb}: {render.cell('url', url)}" for url in found.removed]
    lines += _kept((*found.kept, *found.failed))
    files = counted(len(found.removed), "unfinished file")
    return "\n".join([*lines, f"{files}, {render.size(found.size)} {verb}"])


def _kept(files: Sequence[KeptFile]) -> list[str]:
    return [f"kept: {render.cell('name', one.name)}: {render.cell('reason', one.reason)}" for one in files]


def removed_jobs(jobs: Sequence[RemovedJob]) -> TextTable:
    """The finished jobs that a cluster has removed, or would remove."""
    rows = [
        {"job": job.name, "ended": render.when(job.ended or 0), "size": render.size(job.size)} for job in jobs
    ]
    return render.rows(rows, ("job", "ended", "size"))


def removed_orphans(orphans: Sequence[RemovedOrphan]) -> TextTable:
    """What embedded clusters that are gone have left."""
    rows = [{"name": one.name, "job": one.job, "home": one.home} for one in orphans]
    return render.rows(rows, ("name", "job", "home"))


def clean_orphans(client: Backend, preview: bool, yes: bool) -> Sequence[RemovedOrphan]:
    """Remove what embedded clusters that are gone have left; unless ``yes``, show it and ask before."""
    found = client.clean_orphans(preview=True)
    if not found or preview:
        return found
    if not yes:
        many = counted(len(found), "orphan")
        problem = f"{many} not removed: add --yes to remove or --preview to list them"
        confirm_cleanup(removed_orphans(found), f"remove {many}?", problem)
    return client.clean_orphans(preview=False)


def confirm_cleanup(view: TextTable, question: str, problem: str) -> None:
    """Show what would be removed, and ask; raise the problem if there is no terminal to ask on."""
    if not sys.stdin.isatty():
        raise ConfigError(problem)
    screen.say_view(view)
    prompts.confirm(question)
