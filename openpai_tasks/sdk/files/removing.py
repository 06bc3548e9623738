"""Remove files; what is likely a mistake is refused before anything is removed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from openpai_tasks.errors import ConfigError, Denied, NotFound, PathError
from openpai_tasks.settings import home
from openpai_tasks.storage import patterns
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.location import Book, Location, has_empty_name, locate, naming
from openpai_tasks.storage.store import Entry, is_below, join, parent


@dataclass(frozen=True)
class Removal:
    """A file or folder to remove."""

    place: Location
    is_full: bool
    """It is a folder with something in it."""
    doubt: str = ""
    """Why it may not be what was meant, and what to do if it was."""

    @property
    def is_guess(self) -> bool:
        return bool(self.doubt)


def removals(texts: Sequence[str], book: Book, recursive: bool) -> list[Removal]:
    """The files and folders of these paths, each once, all checked before anything is removed."""
    for text in texts:
        _refuse_empty_names(text)
    found = {_key(one.place): one for text in texts for one in _named(text, book)}
    _refuse_folders_in_use(found)
    for removal in found.values():
        if removal.is_full and not recursive:
            raise PathError(f"{removal.place.url} is a folder that is not empty; --recursive removes it all")
    return [removal for key, removal in found.items() if not _goes_with_another(key, found)]


def _goes_with_another(key: str, found: Mapping[str, Removal]) -> bool:
    """Whether it is in a folder that is removed too."""
    above = key
    while above != parent(above):
        above = parent(above)
        if above in found and found[above].is_full:
            return True
    return False


def remove(removals: Sequence[Removal]) -> None:
    for removal in removals:
        with naming(removal.place):
            removal.place.store.remove(removal.place.path, recursive=removal.is_full)


def refuse_guesses(removals: Sequence[Removal]) -> None:
    """Refuse what may be a mistake where the user cannot be asked."""
    for removal in removals:
        if removal.doubt:
            raise ConfigError(removal.doubt)


def _named(text: str, book: Book) -> list[Removal]:
    """What has exactly this name, else what the pattern matches."""
    place = locate(text, book)
    if place.is_root or place.is_content:
        raise Denied(f"{place.url}: the root of a storage, `.` and `..` are never removed", 403)
    with naming(place):
        return _matching(place)


def _matching(place: Location) -> list[Removal]:
    entry = _itself(place)
    if entry is not None:
        return [_removal(place, entry)]
    _refuse_patterns_at_the_root(place)
    return [_removal(match, _existing(match), _doubt(place, match)) for match in patterns.sources(place)]


def _doubt(pattern: Location, match: Location) -> str:
    """``home/*`` is what ``home/$EMPTY*`` becomes; and ``b[1]`` may be meant as a name."""
    if _is_at_the_root(pattern):
        why = "a pattern in the root of a storage: is a variable empty?"
        return f"{pattern.url}: {why} --yes removes what it fits"
    return f"{match.url} only fits the pattern; --yes removes it" if "[" in pattern.path else ""


def _removal(place: Location, entry: Entry, doubt: str = "") -> Removal:
    is_folder = entry.is_folder and not entry.is_link
    if place.is_folder and not is_folder:
        raise PathError(f"{place.url} is not a folder: leave out the slash at its end to remove it")
    return Removal(place, is_folder and next(place.store.list(place.path), None) is not None, doubt)


def _existing(place: Location) -> Entry:
    entry = _itself(place)
    if entry is None:
        raise NotFound(f"{place.url}: no such file or folder", 404)
    return entry


def _itself(place: Location) -> Entry | None:
    """What has this name; a link that leads nowhere, or out of the storage, only its folder tells of."""
    try:
        entry = place.store.stat(place.path)
    except PathError:
        entry = None
    return entry or _link(place)


def _link(place: Location) -> Entry | None:
    try:
        beside = place.store.list(parent(place.path))
        return next((entry for entry in beside if entry.is_link and entry.name == place.name), None)
    except (NotFound, Denied):
        return None


def _key(place: Location) -> str:
    """One name for the thing itself; a link is not what it leads to."""
    return join(place.store.address(parent(place.path)), place.name)


def _refuse_empty_names(text: str) -> None:
    """``a//b`` is what ``a/$EMPTY/b`` becomes."""
    if not text:
        raise PathError("an empty path is not removed: is a variable empty?")
    if has_empty_name(text):
        raise PathError(f"{text!r} has an empty name in it and is not removed: is a variable empty?")


def _refuse_patterns_at_the_root(place: Location) -> None:
    """``/*`` is what ``$EMPTY/*`` becomes."""
    if place.url.startswith("/") and _is_at_the_root(place):
        raise Denied(f"{place.url}: a pattern in / is not removed: is a variable empty?", 403)


def _is_at_the_root(place: Location) -> bool:
    """Whether the first of its names is a pattern."""
    return patterns.MAGIC.search(place.path.split("/")[1]) is not None


def _refuse_folders_in_use(found: Mapping[str, Removal]) -> None:
    """What holds a folder that its owner would miss at once: ``~``, and with it all above, is soon typed."""
    for what, folder in _folders_in_use():
        for address in _addresses(folder):
            for key, removal in found.items():
                if is_below(address, key):
                    raise Denied(f"{removal.place.url}: {what} is there, so it is never removed", 403)


def _folders_in_use() -> Iterator[tuple[str, str]]:
    yield "your home folder", os.path.expanduser("~")
    yield "the folder of your settings", str(home.home())
    yield "the folder of the embedded cluster", str(home.home() / "local")
    with contextlib.suppress(FileNotFoundError):  # somebody else has removed it
        yield "the folder that you are in", os.getcwd()


def _addresses(folder: str) -> Iterable[str]:
    """Of the folder, and of its name where that is a link."""
    here = LocalStore()
    if not os.path.isabs(folder):
        return ()
    return here.address(folder), join(here.address(parent(folder)), os.path.basename(folder.rstrip("/")))
