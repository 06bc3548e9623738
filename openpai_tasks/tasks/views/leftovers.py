"""What jobs left on a storage or in a cluster, for people to read."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from openpai_tasks import render
from openpai_tasks.errors import ConfigError
from openpai_tasks.tasks.framework import prompts
from openpai_tasks.tasks.framework.screen import say_view
from openpai_tasks.text.plurals import counted

if TYPE_CHECKING:
    from openpai_tasks.backends.base import Backend, RemovedJob, RemovedOrphan
    from openpai_tasks.render import Page, TextTable
    from openpai_tasks.sdk.files.cleaning import (
        CleanupResult,
        Folder,
        JobLeftovers,
        KeptFile,
        Leftovers,
        PartsCleanup,
    )


def table(jobs: Sequence[JobLeftovers]) -> TextTable:
    rows = [
        {
            "job": job.name,
            "state": job.state,
            "age": _age(job.age),
            "source": render.size(job.source),
            "output": render.size(job.output),
            "files": job.files,
            "other": render.size(job.other),
            "archive": [sha256[:12] for sha256 in job.archives],
        }
        for job in jobs
    ]
    return render.rows(rows, ("job", "state", "age", "source", "output", "files", "other", "archive"))


def _age(seconds: float) -> str:
    return f"{seconds / 86400:.0f}d" if seconds >= 2 * 86400 else render.duration(seconds)


def usage(found: Leftovers) -> Page:
    shared = [one for one in found.archives if len(one.jobs) > 1]
    unused = [one for one in found.archives if not one.jobs]
    size = render.size(sum(one.size for one in found.archives))
    archives = f"{counted(len(found.archives), 'archive')} of sources, {size}"
    archives += f", {len(shared)} of them shared by several jobs" if shared else ""
    archives += f", {len(unused)} unused" if unused else ""
    total = f"{counted(len(found.jobs), 'job')}; {archives}; {render.size(found.total)} in all"
    lines = [_other_folder(one) for one in found.others] + [f"{render.cell('url', found.url)}: {total}"]
    return render.Page([table(found.jobs), *lines] if found.jobs else lines, spaced=False)


def _other_folder(folder: Folder) -> str:
    files = counted(folder.files, "file")
    return f"not a job's: {render.cell('name', folder.name)} ({files}, {render.size(folder.size)})"


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
        confirm(removed_orphans(found), f"remove {many}?", problem)
    return client.clean_orphans(preview=False)


def confirm(view: TextTable, question: str, problem: str) -> None:
    """Show what would be removed, and ask; raise the problem if there is no terminal to ask on."""
    if not sys.stdin.isatty():
        raise ConfigError(problem)
    say_view(view)
    prompts.confirm(question)
