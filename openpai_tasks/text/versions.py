"""Versions of this package on the two sides of a connection."""

from __future__ import annotations

from openpai_tasks import __version__


def is_compatible(version: str) -> bool:
    """Whether a server of this version understands this program: those with the same minor version do."""
    return version.split(".")[:2] == __version__.split(".")[:2]
