"""The storages of a cluster: browse, preview, download, upload, new folders, remove."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from starlette.responses import JSONResponse, Response

from openpai_tasks import sdk
from openpai_tasks.errors import ConfigError
from openpai_tasks.portal import previews
from openpai_tasks.portal.html import url
from openpai_tasks.portal.request import PortalRequest, redirect, whole_number
from openpai_tasks.sdk.files.operations import FOLDER, FileInfo
from openpai_tasks.sdk.files.storages import ClusterStorages
from openpai_tasks.settings.config import load_settings
from openpai_tasks.storage.location import PAI, Location, naming

PAGE_SIZE = 200
MOST = 100_000
"""Entries of a folder that are sorted; a longer folder is cut there."""
MOST_NAMES = 10_000
SORTS: dict[str, Callable[[FileInfo], Any]] = {
    "name": lambda one: one.name.casefold(),
    "size": lambda one: (one.size, one.name),
    "modified": lambda one: (one.modified, one.name),
}
UP, DOWN = "asc", "desc"


@dataclass(frozen=True)
class Query:
    """What the address of a folder asks for."""

    sort: str = "name"
    descending: bool = False
    offset: int = 0
    keyword: str = ""

    def address(self, **changes: Any) -> dict[str, Any]:
        """Return the query of an address for this folder with changes; defaults are left out."""
        values = {
            "sort": "" if self.sort == "name" else self.sort,
            "dir": DOWN if self.descending else "",
            "offset": self.offset or "",
            "q": self.keyword,
        }
        return values | changes

    def sorted_by(self, column: str) -> dict[str, Any]:
        """Return the query that sorts by a column, or the other way if it does already."""
        down = not self.descending if column == self.sort else column != "name"
        return self.address(sort="" if column == "name" else column, dir=DOWN if down else "", offset="")


@dataclass(frozen=True)
class Place:
    """A file or folder that an address names."""

    alias: str
    storage: str
    names: tuple[str, ...]
    location: Location
    is_read_only: bool

    @property
    def words(self) -> tuple[str, ...]:
        """The segments of its address."""
        return ("c", self.alias, "storage", self.storage, *self.names)

    def link(self, *names: str, **query: object) -> str:
        """Return its address, or that of something below it."""
        return url(*self.words, *names, **query)

    def change(self, action: str, up: int = 0) -> str:
        """Return the address of a change in this folder, or some folders further up."""
        names = self.names[: len(self.names) - up]
        return url("c", self.alias, f"storage.{action}", self.storage, *names, "")

    @property
    def title(self) -> str:
        return self.names[-1] if self.names else self.storage


def index(request: PortalRequest) -> Response:
    """List the storages."""
    request.session.storages.pop(request.alias, None)  # one may have been added
    return request.page("storages.html", storages=_book(request).rows(request.alias))


def page(request: PortalRequest) -> Response:
    """Show a folder or a file; or send the file, or what its preview needs."""
    place = _place(request)
    facts = sdk.files.file_facts(place.location)
    if facts.type == FOLDER:
        return _folder(request, place)
    with naming(place.location):
        shown = previews.show(place.location, place.title, facts.size, request.query.get("view"))
    if isinstance(shown, Response):
        return shown
    return request.page("storage_file.html", place=place, facts=facts, shown=shown)


def _folder(request: PortalRequest, place: Place) -> Response:
    query = _query(request)
    listed = list(itertools.islice(sdk.files.list_files([place.location]), MOST + 1))
    wanted = query.keyword.casefold()
    found = [one for one in listed[:MOST] if wanted in one.name.casefold()]
    found.sort(key=SORTS[query.sort], reverse=query.descending)
    found.sort(key=lambda one: one.type != FOLDER)
    return request.page(
        "storage_folder.html",
        place=place,
        query=query,
        files=found[query.offset : query.offset + PAGE_SIZE],
        total=len(found),
        page_size=PAGE_SIZE,
        is_cut=len(listed) > MOST,
    )


def upload(request: PortalRequest) -> Response:
    """Write one file, complete or not at all."""
    assert request.body is not None
    is_wanted = request.query.get("replace") == "yes"
    place = _place(request).location
    return JSONResponse({"size": sdk.files.upload(place, request.body.pieces, request.body.size, is_wanted)})


def check(request: PortalRequest) -> Response:
    """Return which files of an upload exist already."""
    try:
        paths = json.loads(request.form.get("paths", ""))
    except (ValueError, RecursionError):
        paths = None
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise ConfigError("expected a list of paths")
    if len(paths) > MOST_NAMES:
        raise ConfigError(f"too many paths: {len(paths)} of at most {MOST_NAMES}")
    folder = _place(request).location
    return JSONResponse({"existing": sdk.files.find_existing(folder, [path.split("/") for path in paths])})


def make_folder(request: PortalRequest) -> Response:
    place = _place(request)
    name = request.form.get("name", "").strip()
    if not name:
        raise ConfigError("enter a name for the new folder")
    inner = place.location.join(name)
    with naming(inner):
        inner.store.make_folder(inner.path)
    return redirect(*place.words, name)


def remove(request: PortalRequest) -> Response:
    """Remove the selected entries of a folder, or the file that the address names."""
    place = _place(request)
    names = [unquote(name) for name in request.lists.get("name", ())]  # forms change line breaks
    if not names:
        raise ConfigError("select what to remove first")
    sdk.files.remove(sdk.files.plan_exact_removals([place.location.join(name) for name in names]))
    return redirect(*place.words)


def _place(request: PortalRequest) -> Place:
    """Return what the address names; every segment is one name, so that none leads out of the storage."""
    names = tuple(request.params.get("rest", "").split("/"))
    names = names[:-1] if names[-1] == "" else names
    spec, store = _book(request).opened(request.alias, request.params["storage"])
    root = Location(store, "/", f"{PAI}{request.alias}/{spec.name}/")
    return Place(request.alias, spec.name, names, root.join(*names) if names else root, spec.read_only)


def _book(request: PortalRequest) -> ClusterStorages:
    """Return the open storages of the session; another user has nothing of what the owner has added."""
    session, alias = request.session, request.alias
    client = request.client
    if alias not in session.storages:
        settings = load_settings({"cluster_alias": alias})
        if session.only:
            settings = dataclasses.replace(settings, storage_mounts=())
        session.storages[alias] = ClusterStorages(settings, client=client if session.only else None)
    return session.storages[alias]


def _query(request: PortalRequest) -> Query:
    given = request.query
    sort = given.get("sort", "name")
    return Query(
        sort=sort if sort in SORTS else "name",
        descending=given.get("dir") == DOWN,
        offset=whole_number(given.get("offset", "")) or 0,
        keyword=given.get("q", ""),
    )
