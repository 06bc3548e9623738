"""The table of kinds of clusters: a new kind is a folder next to this module and a row here."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from openpai_tasks.backends.base import Driver
from openpai_tasks.errors import ConfigError


class ClusterKind(NamedTuple):
    """A kind of cluster: its type in ``clusters.yaml``, its name for users, and how its driver is loaded."""

    type: str
    label: str
    driver: Callable[[], Driver]
    has_generations: bool = True  # whether users know several
    by_ssh: bool = False  # whether our server is started there, with the engine of that name


def _openpai() -> Driver:
    from openpai_tasks.backends.openpai import driver

    return driver


def _paddlecloud() -> Driver:
    from openpai_tasks.backends.paddlecloud import driver

    return driver


def _slurm() -> Driver:
    from openpai_tasks.backends.slurm import driver

    return driver


KINDS = {
    kind.type: kind
    for kind in (
        ClusterKind("openpai", "OpenPAI", _openpai),
        ClusterKind("paddlecloud", "PaddleCloud", _paddlecloud),
        ClusterKind("slurm", "Slurm", _slurm, has_generations=False, by_ssh=True),
    )
}


BY_SSH = next(kind.type for kind in KINDS.values() if kind.by_ssh)
"""The type of clusters that are added by the name of a machine."""


def driver(type: str) -> Driver:
    """Return the driver for clusters of this type."""
    if type not in KINDS:
        known = ", ".join(f"{kind.type} for {kind.label}" for kind in KINDS.values())
        raise ConfigError(f"clusters of type {type!r} are not supported (known types: {known})")
    return KINDS[type].driver()
