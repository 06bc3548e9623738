"""Adapt a job's document to another storage: how it fetches sources and saves outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from openpai_tasks.protocol.document import job_storage
from openpai_tasks.protocol.document.job_storage import Home, Mounted
from openpai_tasks.sdk.jobs.provenance import STAMP, Stamp, put_stamp

Document = dict[str, Any]


def relocate(document: Document, home: Home, archive: str, stamp: Stamp) -> Document:
    """Replace the steps, commands, storages and stamp by those for the new storage."""

    def step(command: str) -> str:
        if job_storage.is_output(command):
            return home.output()
        return home.fetch(archive) if job_storage.is_fetch(command) else command

    storages = _storages(document, home)
    return put_stamp({**document, **_steps(document, step), **_commands(document, home), **storages}, stamp)


def _steps(document: Document, change: Callable[[str], str]) -> Document:
    """Change the commands that run before the job's, in every deployment."""
    deployments = document.get("deployments")
    if not deployments:
        return {}
    return {"deployments": [_deployment(one, change) for one in deployments]}


def _deployment(deployment: Document, change: Callable[[str], str]) -> Document:
    roles = {
        name: {**role, "preCommands": [change(command) for command in role["preCommands"]]}
        if isinstance(role, dict) and role.get("preCommands")
        else role
        for name, role in deployment["taskRoles"].items()
    }
    return {**deployment, "taskRoles": roles}


def _commands(document: Document, home: Home) -> Document:
    roles = document["taskRoles"]
    return {
        "taskRoles": {
            name: {**role, "commands": home.around(job_storage.inner(role["commands"]))}
            for name, role in roles.items()
        }
    }


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
