"""Objects that other packages add by entry points: kinds of storage, of clusters, and engines."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


class Plugins(NamedTuple):
    """The objects by the name of their entry point, their packages, and a line about each that failed."""

    named: dict[str, Any]
    packages: dict[str, str]
    problems: tuple[str, ...]


def load(group: str, kind: type, label: str) -> Plugins:
    """Load the entry points of a group, which must be of this type; ``label`` names them in messages."""
    return _load(group, kind, label, tuple(sys.path))


@functools.lru_cache(maxsize=8)
def _load(group: str, kind: type, label: str, path: tuple[str, ...]) -> Plugins:
    from importlib.metadata import entry_points

    named: dict[str, Any] = {}
    packages: dict[str, str] = {}
    problems: list[str] = []
    for point in sorted(entry_points(group=group), key=lambda point: (_package(point), point.name)):
        try:
            loaded = point.load()
            if not isinstance(loaded, kind):
                raise TypeError(f"{point.value} is not of the type {kind.__name__}")
        except Exception as err:  # code of other packages can raise anything
            why = " ".join(str(err).split()) or type(err).__name__
            what = f"the {label} {point.name!r} of the package {_package(point)}"
            problems.append(f"{what} cannot be loaded: {why}")
        else:
            named[point.name], packages[point.name] = loaded, _package(point)
    return Plugins(named, packages, tuple(problems))


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else point.module


Row = TypeVar("Row")


class PluginTable(Mapping[str, Row]):
    """Rows by name: ours, then those of other packages.

    The other packages are loaded only for a name that is not ours, or to list all.
    """

    def __init__(self, ours: Mapping[str, Row], group: str, kind: type[Row], label: str) -> None:
        self.ours, self._group, self._kind, self._label = ours, group, kind, label

    def __getitem__(self, name: str) -> Row:
        return self.ours[name] if name in self.ours else self.added()[name]

    def __iter__(self) -> Iterator[str]:
        return iter([*self.ours, *(name for name in self.added() if name not in self.ours)])

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def added(self) -> dict[str, Row]:
        """Return the rows of other packages, by the name of their entry point."""
        return {name: row for name, row in self._load().named.items() if name not in self.ours}

    def describe(self, *more: str) -> str:
        """Return the end of a message about an unknown name: the known ones, and packages that failed."""
        return "; ".join([f"(known: {', '.join([*more, *self])})", *self._load().problems])

    def _load(self) -> Plugins:
        return load(self._group, self._kind, self._label)
