"""The user's choices for a cluster: its storage, its workspace, and storages that the user added.

Kept with the cluster in ``clusters.yaml``; of the embedded one, which is not in there, beside its data.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

from openpai_tasks.sdk.clusters.user_clusters import open_registry
from openpai_tasks.settings import credentials, layers
from openpai_tasks.settings.config import Settings
from openpai_tasks.settings.home import home, locked, write_private
from openpai_tasks.settings.registry import LOCAL, Cluster, is_embedded, storage_destination

NAMES = {"storage_name": "storage", "workspace": "workspace", "own_storages": "own_storages"}
"""Key in the file -> field of Cluster."""


def path() -> Path:
    """The file for the embedded cluster."""
    return home() / LOCAL / "choices.yaml"


def with_choices(cluster: Cluster) -> Cluster:
    """Return the embedded cluster with the choices that were made for it."""
    chosen = layers.read_defaults(path())
    rows = chosen.get("own_storages")
    own = tuple(dict(row) for row in rows if isinstance(row, dict)) if isinstance(rows, list) else ()
    storage, workspace = (str(chosen.get(key) or "") for key in ("storage_name", "workspace"))
    return dataclasses.replace(cluster, storage=storage, workspace=workspace, own_storages=own)


def change(settings: Settings, alias: str, edit: Callable[[Cluster], Cluster]) -> Cluster:
    """Change the choices with ``edit``; secrets of removed storages are deleted."""
    if not is_embedded(alias):
        return open_registry(settings).change(alias, edit)
    with locked(path()):
        before = with_choices(Cluster(LOCAL, ""))
        after = edit(before)
        _write(after)
    kept = {storage_destination(after, record) for record in after.own_storages}
    for record in before.own_storages:
        if (gone := storage_destination(before, record)) not in kept:
            credentials.forget(gone)
    return after


def _write(cluster: Cluster) -> None:
    import yaml

    record = {key: getattr(cluster, name) for key, name in NAMES.items()}
    kept = {key: list(value) if isinstance(value, tuple) else value for key, value in record.items() if value}
    write_private(path(), yaml.safe_dump(kept, sort_keys=False, allow_unicode=True))
