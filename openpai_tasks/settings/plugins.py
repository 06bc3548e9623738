"""Objects that other packages add by entry points: kinds of storage, of clusters, and engines."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


class Plugins(NamedTuple):
    """The objects by the name of their package, and a line about each that cannot be used."""

    found: tuple[tuple[str, Any], ...]
    problems: tuple[str, ...]


def load(group: str, kind: type, label: str) -> Plugins:
    """Load the entry points of a group, which must be of this type; ``label`` names them in messages."""
    return _load(group, kind, label, tuple(sys.path))


@functools.lru_cache(maxsize=8)
def _load(group: str, kind: type, label: str, path: tuple[str, ...]) -> Plugins:
    from importlib.metadata import entry_points

    found: list[tuple[str, Any]] = []
    problems: list[str] = []
    for point in sorted(entry_points(group=group), key=lambda point: (_package(point), point.name)):
        try:
            loaded = point.load()
            if not isinstance(loaded, kind):
                raise TypeError(f"{point.value} is not a {kind.__name__}")
        except Exception as err:  # code of other packages can raise anything
            why = " ".join(str(err).split()) or type(err).__name__
            what = f"the {label} {point.name!r} of the package {_package(point)}"
            problems.append(f"{what} cannot be loaded: {why}")
        else:
            found.append((_package(point), loaded))
    return Plugins(tuple(found), tuple(problems))


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else point.module
