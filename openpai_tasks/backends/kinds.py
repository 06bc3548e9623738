"""The kinds of clusters: ours, which are a folder here and a row each, and those of other packages."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable
from typing import NamedTuple, cast

from openpai_tasks.backends.base import Driver, ForeignClusters
from openpai_tasks.errors import ConfigError
from openpai_tasks.settings.plugins import PluginTable
from openpai_tasks.settings.registry import Cluster

ENTRY_POINTS = "openpai_tasks.backends"
"""Entry point group of other packages; the value of each entry point is a ``ClusterKind``."""


class ClusterKind(NamedTuple):
    """A kind of cluster; its type is the name in the table, which ``clusters.yaml`` and `--type` have."""

    label: str  # its name for users
    driver: str  # the module with the functions of ``Driver``
    has_generations: bool = False  # whether users know several
    by_ssh: bool = False  # whether our server is started there; with the engine of that name, if there is one
    options: tuple[str, ...] = ()  # names for ``cluster.add --option NAME=VALUE``, kept in clusters.yaml
    file: str = ""  # the module whose ``foreign_clusters(taken)`` reads the file that another program has
    other_name: str = ""  # the option with the cluster's name on the server, which also selects it
    path_root: str = ""  # of absolute paths on these clusters, which ``find_path`` of the driver reads


_BACKENDS = "openpai_tasks.backends"
KINDS = PluginTable(
    {
        "openpai": ClusterKind("OpenPAI", f"{_BACKENDS}.openpai.driver", has_generations=True),
        "paddlecloud": ClusterKind(
            "PaddleCloud",
            f"{_BACKENDS}.paddlecloud.driver",
            has_generations=True,
            options=("datacenter", "usercert", "userkey"),
            other_name="datacenter",
            file=f"{_BACKENDS}.paddlecloud.config_file",
            path_root="/pfs",
        ),
        "ssh": ClusterKind("ssh", f"{_BACKENDS}.ssh.driver", by_ssh=True, options=("engine",)),
        "slurm": ClusterKind("Slurm", f"{_BACKENDS}.ssh.driver", by_ssh=True),
    },
    ENTRY_POINTS,
    ClusterKind,
    "kind of cluster",
)
BY_SSH = tuple(type for type, kind in KINDS.ours.items() if kind.by_ssh)
"""The types of clusters that are added by the name of a machine."""


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


def find_path(
    path: str, clusters: Callable[[], Iterable[Cluster]], embedded_user: Callable[[], str] | None
) -> str:
    """Return an absolute path that belongs to a kind of cluster as ``ALIAS/STORAGE/PATH``.

    Return "" for a path of this machine, which may have a folder of that name. ``embedded_user`` starts the
    embedded cluster and returns its user; None if only the given clusters may be used.
    """
    for type, kind in KINDS.ours.items():
        if kind.path_root and path.startswith(f"{kind.path_root}/") and not os.path.lexists(kind.path_root):
            own = [cluster for cluster in clusters() if cluster.kind == type]
            return str(importlib.import_module(kind.driver).find_path(path, own, embedded_user))
    return ""


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
