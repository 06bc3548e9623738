"""The paths of a job's own files in its document, changed when it moves to another name or storage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from openpai_tasks.protocol import scripts
from openpai_tasks.sdk.provenance import Stamp, put
from openpai_tasks.storage.workspace import jobs_folder


def moved(document: dict[str, Any], before: Stamp, after: Stamp) -> dict[str, Any]:
    """The document with the places of ``after`` in its first steps, its storages and its stamp."""
    pairs = {_inside(_jobs(before)): _inside(_jobs(after))}
    if before.source_folder and after.source_folder:
        pairs = {_inside(_sources(before)): _inside(_sources(after)), **pairs}

    def change(command: str) -> str:
        for old, new in pairs.items():
            if old in command:
                return command.replace(old, new)
        return command

    return put({**document, **_steps(document, change), **_storages(document, before, after)}, after)


def _jobs(stamp: Stamp) -> str:
    return f"/mnt/{stamp.storage}/{jobs_folder(stamp.workspace)}/"


def _sources(stamp: Stamp) -> str:
    return f"/mnt/{stamp.storage}/{stamp.source_folder}/."


def _inside(path: str) -> str:
    """The path as it stands in a command, without the quotes around it."""
    return scripts.mounted(path)[1:-1]


def _steps(document: dict[str, Any], change: Callable[[str], str]) -> dict[str, Any]:
    """What runs before the command, in every deployment."""
    deployments = document.get("deployments")
    if not deployments:
        return {}
    return {"deployments": [_deployment(one, change) for one in deployments]}


def _deployment(deployment: dict[str, Any], change: Callable[[str], str]) -> dict[str, Any]:
    roles = {
        name: {**role, "preCommands": [change(command) for command in role["preCommands"]]}
        if isinstance(role, dict) and role.get("preCommands")
        else role
        for name, role in deployment["taskRoles"].items()
    }
    return {**deployment, "taskRoles": roles}


def _storages(document: dict[str, Any], before: Stamp, after: Stamp) -> dict[str, Any]:
    extras = document.get("extras") or {}
    storages = extras.get("storages")
    if not isinstance(storages, list) or before.storage == after.storage:
        return {}
    renamed = [
        {**item, "name": after.storage}
        if isinstance(item, dict) and item.get("name") == before.storage
        else item
        for item in storages
    ]
    return {"extras": {**extras, "storages": renamed}}
