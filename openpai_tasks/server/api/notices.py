"""What will not be as a submitted job asks for: said to the submitter, and kept as events of the job."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from openpai_tasks.protocol import JobDocument
from openpai_tasks.protocol.document.scripts import MOUNTS
from openpai_tasks.server.api.context import Context
from openpai_tasks.server.engines.base import image_not_used
from openpai_tasks.server.resources import NOTHING, Shortfall, shortfalls, start_demand
from openpai_tasks.server.state.records import NewEvent
from openpai_tasks.settings.engines import DEFAULT_IMAGES

ROOT = r"""PAI_MOUNT_ROOT["')\]}\-, +]*"""
"""The variable as a shell or Python puts it before a path."""


def notices(context: Context, document: JobDocument) -> list[NewEvent]:
    """Return the notices about a job, each with one line of text."""
    return [notice for check in CHECKS for notice in check(context, document)]


def missing_resources(context: Context, document: JobDocument) -> tuple[Shortfall, ...]:
    """Return what the machine has less of than the job asks for; engines that schedule refuse such jobs."""
    if context.engine.schedules:
        return ()
    cluster = document.virtual_cluster
    share = context.virtual_clusters.get(cluster, NOTHING)
    return shortfalls(start_demand(document), context.engine.capacity().total, cluster, share)


def _resources(context: Context, document: JobDocument) -> Iterator[NewEvent]:
    for one in missing_resources(context, document):
        yield NewEvent("Warning", "ResourcesMissing", one.warning)


def _memory(context: Context, document: JobDocument) -> Iterator[NewEvent]:
    limits = context.engine.memory
    if not limits.enforced and any(role.memory_mb and role.is_memory_asked for role in document.roles):
        yield NewEvent("Warning", "MemoryNotEnforced", f"the memory limit is not enforced: {limits.how}")


def _images(context: Context, document: JobDocument) -> Iterator[NewEvent]:
    """Name the images that are not used, except default ones, which nobody has chosen."""
    chosen = [role.image for role in document.roles if role.image not in DEFAULT_IMAGES]
    if chosen and not context.engine.uses_images:
        yield NewEvent("Warning", "ImageNotUsed", image_not_used(context.engine, chosen))


def _mounts(context: Context, document: JobDocument) -> Iterator[NewEvent]:
    """Name the storages that the commands look for where they are not mounted."""
    if context.engine.mounts_at_root or document.storages is None:
        return
    mounts = [(one.name, one.path) for one in document.storages]
    mounts = mounts or [(name, MOUNTS + name) for name in context.storages]
    text = "\n".join(document.entrypoints().values())
    lines = [
        f"the storage {name} is not at {path} here: write ${{PAI_MOUNT_ROOT-}}{path}, which works everywhere"
        for name, path in mounts
        if is_named(path, text) and not _is_same(path, context.storages[name].path)
    ]
    if lines:
        yield NewEvent("Warning", "StorageNotMounted", "; ".join(lines))


def _is_same(path: str, folder: Path) -> bool:
    """Whether the machine has the folder of a storage at its path in containers."""
    return os.path.exists(path) and os.path.samefile(path, folder)


def is_named(path: str, text: str) -> bool:
    """Whether the text has the path without the root of the mounts, and not as a part of another path."""
    if re.search(rf"{ROOT}\$", text):  # the commands add the root to a path in a variable
        return False
    found = re.finditer(rf"(?<![\w.~}}-]){re.escape(path)}(?![\w.-])", text)
    return any(not re.search(f"{ROOT}$", text[max(0, one.start() - 40) : one.start()]) for one in found)


CHECKS = (_resources, _memory, _images, _mounts)
