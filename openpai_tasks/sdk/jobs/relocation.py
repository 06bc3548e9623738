"""Adapt a job's document to another storage: how it fetches sources and saves outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from openpai_tasks.protocol.document import job_storage, kept_files
from openpai_tasks.protocol.document.job_storage import Home, MountedFolder
from openpai_tasks.sdk.jobs.provenance import Stamp, put_stamp, read_stamp

Document = dict[str, Any]


def relocate(document: Document, home: Home, archive: str, stamp: Stamp) -> Document:
    """Replace the steps, commands, storages and stamp by those for the new storage."""

    def step(command: str) -> str:
        if job_storage.is_output(command):
            return home.output(kept_files.read_mark(command))
        return home.fetch(archive) if job_storage.is_fetch(command) else command

    patterns = kept_patterns(document)
    roles = {
        name: {**role, "commands": home.around(job_storage.unwrap(role["commands"]), patterns)}
        for name, role in document["taskRoles"].items()
    }
    moved = {**_change_steps(document, lambda steps: list(map(step, steps))), "taskRoles": roles}
    return put_stamp({**moved, "extras": _extras(document, home)}, stamp)


EARLIER_JOBS = 10  # at most, as each resubmission of a resubmission adds one


def earlier_jobs(document: Document) -> list[str]:
    """Return the jobs whose checkpoints the job finds, the latest first."""
    return next((jobs for jobs in map(job_storage.read_earlier, _all_steps(document)) if jobs), [])


def keeps_output(document: Document) -> bool:
    """Whether the job has an output folder, and so can find checkpoints of other jobs."""
    return any(map(job_storage.is_output, _all_steps(document)))


def with_earlier_jobs(document: Document, jobs: Sequence[str]) -> Document:
    """Let the job find the checkpoints of these jobs and of no others."""

    def changed(steps: list[str]) -> list[str]:
        others = [step for step in steps if job_storage.read_earlier(step) is None]
        at = next((at for at, step in enumerate(others) if job_storage.is_output(step)), None)
        if at is None or not jobs:
            return others
        return [*others[:at], job_storage.earlier_step(jobs[:EARLIER_JOBS]), *others[at:]]

    return _change_steps(document, changed)


def _change_steps(document: Document, change: Callable[[list[str]], list[str]]) -> Document:
    """Change the commands that run before the job's, in every deployment."""

    def change_role(role: Any) -> Any:
        if not isinstance(role, dict) or not role.get("preCommands"):
            return role
        return {**role, "preCommands": change(role["preCommands"])}

    if not document.get("deployments"):
        return document
    deployments = [
        {**one, "taskRoles": {name: change_role(role) for name, role in one["taskRoles"].items()}}
        for one in document["deployments"]
    ]
    return {**document, "deployments": deployments}


def kept_patterns(document: Document) -> tuple[str, ...]:
    """Return the patterns of files that the job keeps."""
    steps = _all_steps(document)
    return next((kept_files.read_mark(step) for step in steps if job_storage.is_output(step)), ())


def _all_steps(document: Document) -> list[str]:
    roles = [role for one in document.get("deployments") or () for role in one["taskRoles"].values()]
    return [step for role in roles if isinstance(role, dict) for step in role.get("preCommands") or ()]


def _extras(document: Document, home: Home) -> Document:
    """Return the extras with the new storage instead of the old stamp's, or with none if none is mounted."""
    extras = document.get("extras") or {}
    before = read_stamp(document).storage
    wanted = home.storage if isinstance(home, MountedFolder) else None
    found = [item for item in extras.get("storages") or () if item != {"name": before}]
    if wanted and {"name": wanted} not in found:
        found.insert(0, {"name": wanted})
    rest = {name: value for name, value in extras.items() if name != "storages"}
    return {**rest, "storages": found} if found else rest
