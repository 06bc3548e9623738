"""The kinds of clusters: ours, which are a folder here and a row each, and those of other packages."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import NamedTuple, cast

from openpai_tasks.backends.base import Driver, ForeignClusters
from openpai_tasks.errors import ConfigError
from openpai_tasks.settings.plugins import PluginTable

ENTRY_POINTS = "openpai_tasks.backends"
"""Entry point group of other packages; the value of each entry point is a ``ClusterKind``."""


class ClusterKind(NamedTuple):
    """A kind of cluster; its type is the name in the table, which ``clusters.yaml`` and `--type` have."""

    label: str  # its name for users
    driver: str  # the module with the functions of ``Driver``
    has_generations: bool = False  # whether users know several
    by_ssh: bool = False  # whether our server is started there, with the engine of that name
    options: tuple[str, ...] = ()  # names for ``cluster.add --option NAME=VALUE``, kept in clusters.yaml
    file: str = ""  # the module whose ``foreign_clusters(taken)`` reads the file that another program has


_BACKENDS = "openpai_tasks.backends"
KINDS = PluginTable(
    {
        "openpai": ClusterKind("OpenPAI", f"{_BACKENDS}.openpai.driver", has_generations=True),
        "paddlecloud": ClusterKind(
            "PaddleCloud",
            f"{_BACKENDS}.paddlecloud.driver",
            has_generations=True,
            options=("datacenter",),
            file=f"{_BACKENDS}.paddlecloud.config_file",
        ),
        "slurm": ClusterKind("Slurm", f"{_BACKENDS}.slurm.driver", by_ssh=True),
    },
    ENTRY_POINTS,
    ClusterKind,
    "kind of cluster",
)
BY_SSH = next(type for type, kind in KINDS.ours.items() if kind.by_ssh)
"""The type of clusters that are added by the name of a machine."""


def foreign_clusters(taken: Iterable[str] = ()) -> ForeignClusters:
    """Return the clusters in files of other programs, with aliases that are not taken."""
    found = [
        importlib.import_module(kind.file).foreign_clusters(taken)
        for kind in KINDS.ours.values()
        if kind.file
    ]
    return ForeignClusters(
        tuple(cluster for one in found for cluster in one.clusters),
        tuple(problem for one in found for problem in one.problems),
    )


def driver(type: str) -> Driver:
    """Return the driver for clusters of this type."""
    if type not in KINDS:
        raise ConfigError(f"clusters of type {type!r} are not supported {KINDS.describe()}")
    try:
        return cast(Driver, importlib.import_module(KINDS[type].driver))
    except ImportError as err:
        if type in KINDS.ours:
            raise
        raise ConfigError(f"clusters of type {type!r} cannot be used: {err}") from err
