"""Adapt a job's document to another storage: how it fetches sources and saves outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from openpai_tasks.protocol.document import job_storage, kept_files
from openpai_tasks.protocol.document.job_storage import Home, Mounted
from openpai_tasks.sdk.jobs.provenance import STAMP, Stamp, put_stamp

Document = dict[str, Any]


def relocate(document: Document, home: Home, archive: str, stamp: Stamp) -> Document:
    """Replace the steps, commands, storages and stamp by those for the new storage."""

    def step(command: str) -> str:
        if job_storage.is_output(command):
            return home.output(kept_files.read_mark(command))
        return home.fetch(archive) if job_storage.is_fetch(command) else command

    def moved(steps: list[str]) -> list[str]:
        return [step(command) for command in steps]

    storages = _storages(document, home)
    return put_stamp(
        {
            **document,
            **_steps(document, moved),
            **_commands(document, home, kept_patterns(document)),
            **storages,
        },
        stamp,
    )


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

    return {**document, **_steps(document, changed)}


def _steps(document: Document, change: Callable[[list[str]], list[str]]) -> Document:
    """Change the commands that run before the job's, in every deployment."""
    deployments = document.get("deployments")
    if not deployments:
        return {}
    return {"deployments": [_deployment(one, change) for one in deployments]}


def _deployment(deployment: Document, change: Callable[[list[str]], list[str]]) -> Document:
    roles = {
        name: {**role, "preCommands": change(role["preCommands"])}
        if isinstance(role, dict) and role.get("preCommands")
        else role
        for name, role in deployment["taskRoles"].items()
    }
    return {**deployment, "taskRoles": roles}


def _commands(document: Document, home: Home, patterns: tuple[str, ...]) -> Document:
    roles = document["taskRoles"]
    return {
        "taskRoles": {
            name: {**role, "commands": home.around(job_storage.inner(role["commands"]), patterns)}
            for name, role in roles.items()
        }
    }


def kept_patterns(document: Document) -> tuple[str, ...]:
    """Return the patterns of files that the job keeps."""
    steps = _all_steps(document)
    return next((kept_files.read_mark(step) for step in steps if job_storage.is_output(step)), ())


def _all_steps(document: Document) -> list[str]:
    roles = [role for one in document.get("deployments") or () for role in one["taskRoles"].values()]
    return [step for role in roles if isinstance(role, dict) for step in role.get("preCommands") or ()]


def _storages(document: Document, home: Home) -> Document:
    """Replace the old stamp's storage by the new one, or remove it if nothing is mounted."""
    extras = document.get("extras") or {}
    before = extras.get(STAMP, {}).get("storage") if isinstance(extras.get(STAMP), dict) else None
    wanted = home.storage if isinstance(home, Mounted) else None
    found = [item for item in extras.get("storages") or () if item != {"name": before}]
    if wanted and {"name": wanted} not in found:
        found.insert(0, {"name": wanted})
    rest = {name: value for name, value in extras.items() if name != "storages"}
    return {"extras": {**rest, "storages": found} if found else rest}
