"""Remove files; likely mistakes are refused before anything is removed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence

from openpai_tasks.errors import ConfigError, Denied, NoSuchPath, NotFound, PathError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.sdk.files.operations import locate
from openpai_tasks.settings import home
from openpai_tasks.storage import patterns
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.location import Book, Location, has_empty_name, naming
from openpai_tasks.storage.store import Entry, is_below, join, parent
from openpai_tasks.text.hints import command, option


@dataclass(frozen=True)
class Removal:
    """A file or folder to remove."""

    place: Location
    is_full: bool
    """Whether it is a folder that is not empty."""
    doubt: str = ""
    """Why it may not be what was meant, and what to do if it was."""

    @property
    def is_guess(self) -> bool:
        return bool(self.doubt)


def plan_removals(texts: Sequence[str], book: Book, recursive: bool) -> list[Removal]:
    """Return the files and folders to remove, each once, all checked before anything is removed."""
    for text in texts:
        _check_names(text)
    found = {_key(one.place): one for text in texts for one in _find(text, book)}
    _check_folders_in_use(found)
    for removal in found.values():
        if removal.is_full and not recursive:
            raise PathError(
                f"{removal.place.url} is a folder that is not empty; {option('recursive')} removes it all"
            )
    return [removal for key, removal in found.items() if not _is_in_another(key, found)]


def plan_exact_removals(places: Sequence[Location]) -> list[Removal]:
    """Return the removals of exactly these files and whole folders: a ``*`` in a name is no pattern."""
    found: dict[str, Removal] = {}
    for place in places:
        if place.is_root:
            raise Denied(f"{place.url}: the root of a storage is never removed", 403)
        with naming(place):
            found[_key(place)] = _removal(place, _existing(place))
    _check_folders_in_use(found)
    return list(found.values())


def _is_in_another(key: str, found: Mapping[str, Removal]) -> bool:
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


def check_guesses(removals: Sequence[Removal], only_remote: bool = False) -> None:
    """Raise for likely mistakes if the user cannot be asked; ``only_remote``: and for local files."""
    for removal in removals:
        if removal.doubt:
            raise ConfigError(removal.doubt)
        if only_remote and not removal.place.url.startswith("pai://"):
            stop = command("job.stop", removal.place.name)
            raise ConfigError(
                f"{removal.place.url}: a file of this machine, and no terminal to ask on; --yes removes it "
                f"(`{stop}` stops a job)"
            )


def _find(text: str, book: Book) -> list[Removal]:
    """Return the entry with exactly this name, else those that match the pattern."""
    place = locate(text, book)
    if place.is_root or place.is_content:
        raise Denied(f"{place.url}: the root of a storage, `.` and `..` are never removed", 403)
    with naming(place):
        entry = _entry(place)
        if entry is not None:
            return [_removal(place, entry)]
        _check_pattern(place)
        return [_removal(match, _existing(match), _doubt(place, match)) for match in patterns.sources(place)]


def _doubt(pattern: Location, match: Location) -> str:
    """``home/*`` is what ``home/$EMPTY*`` becomes; and ``b[1]`` may be meant as a name."""
    if _is_at_the_root(pattern):
        why = "a pattern in the root of a storage: is a variable empty?"
        return f"{pattern.url}: {why} --yes removes what it matches"
    return f"{match.url} matches only as a pattern; --yes removes it" if "[" in pattern.path else ""


def _removal(place: Location, entry: Entry, doubt: str = "") -> Removal:
    is_folder = entry.is_folder and not entry.is_link
    if place.is_folder and not is_folder:
        raise PathError(f"{place.url} is not a folder: leave out the slash at its end to remove it")
    return Removal(place, is_folder and next(place.store.list(place.path), None) is not None, doubt)


def _existing(place: Location) -> Entry:
    entry = _entry(place)
    if entry is None:
        raise NoSuchPath(f"{place.url}: no such file or folder")
    return entry


def _entry(place: Location) -> Entry | None:
    """Return the entry of this name; a symlink that is broken or leads out of the storage is only listed."""
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
    """Return a unique key of the entry; a symlink differs from its target."""
    return join(place.store.address(parent(place.path)), place.name)


def _check_names(text: str) -> None:
    """``a//b`` is what ``a/$EMPTY/b`` becomes."""
    if not text:
        raise PathError("an empty path is not removed: is a variable empty?")
    if has_empty_name(text):
        raise PathError(f"{text!r} has an empty name in it and is not removed: is a variable empty?")


def _check_pattern(place: Location) -> None:
    """``/*`` is what ``$EMPTY/*`` becomes."""
    if place.url.startswith("/") and _is_at_the_root(place):
        raise Denied(f"{place.url}: a pattern in / is not removed: is a variable empty?", 403)


def _is_at_the_root(place: Location) -> bool:
    """Whether the first of its names is a pattern."""
    return patterns.MAGIC.search(place.path.split("/")[1]) is not None


def _check_folders_in_use(found: Mapping[str, Removal]) -> None:
    """Refuse to remove the home folder, the settings, the current folder, or a folder above them."""
    for what, folder in _folders_in_use():
        for address in _addresses(folder):
            for key, removal in found.items():
                if is_below(address, key):
                    raise Denied(f"{removal.place.url}: it contains {what}, so it is never removed", 403)


def _folders_in_use() -> Iterator[tuple[str, str]]:
    yield "your home folder", os.path.expanduser("~")
    yield "the folder of your settings", str(home.home())
    yield "the folder of the embedded cluster", str(home.home() / "local")
    with contextlib.suppress(FileNotFoundError):  # another process has removed it
        yield "the folder that you are in", os.getcwd()


def _addresses(folder: str) -> Iterable[str]:
    """Return the address of the folder, and that of its name if it is a symlink."""
    here = LocalStore()
    if not os.path.isabs(folder):
        return ()
    return here.address(folder), join(here.address(parent(folder)), os.path.basename(folder.rstrip("/")))
