"""Match a path to a handler: a table of routes, compared segment by segment.

As in OpenPAI's Express, case and a trailing slash do not matter. Segments are split before they are decoded,
so an encoded slash stays inside its parameter.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Set
from urllib.parse import unquote

from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol.routes import PREFIX
from openpai_tasks.server.api.context import Context
from openpai_tasks.server.api.request import Reply, Request

ANY = "ANY"


class RouteAccess(enum.Enum):
    """Who may call a route."""

    OPEN = "anyone"
    TOKEN = "any valid token"
    USER = "a person's token"
    TOKEN_ADMIN = "any valid token of an admin"
    ADMIN = "a person's token of an admin"


@dataclass(frozen=True)
class Route:
    method: str
    path: str
    access: RouteAccess
    handler: Callable[[Context, Request], Reply]
    profiles: Set[str]  # of the servers that have the route
    limit: str = ""  # the rate limit that counts its calls


@dataclass(frozen=True)
class Match:
    route: Route
    params: dict[str, str]


class Router:
    """Finds the first matching route of the table."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._routes: dict[int, list[tuple[tuple[str, ...], Route]]] = {}
        for route in routes:
            segments = split(route.path)
            self._routes.setdefault(len(segments), []).append((segments, route))

    def match(self, method: str, path: str) -> Match | None:
        wanted = "GET" if method == "HEAD" else method
        segments = split(path)
        for pattern, route in self._routes.get(len(segments), ()):
            params = _fit(pattern, segments)
            if params is not None and route.method in (wanted, ANY):
                return Match(route, params)
        return None


def local(path: str) -> str:
    """Return the path without the prefix of the cluster's proxy."""
    return path[len(PREFIX) :] if path.lower().startswith(f"{PREFIX}/") else path


def is_api(path: str) -> bool:
    """Whether the path belongs to the REST server, not to another service behind the cluster's proxy."""
    return path.lower().startswith("/api")


def split(path: str) -> tuple[str, ...]:
    return tuple(path.strip("/").split("/"))


def _fit(pattern: tuple[str, ...], segments: tuple[str, ...]) -> dict[str, str] | None:
    params = {}
    for expected, given in zip(pattern, segments, strict=True):
        if expected.startswith("{"):
            params[expected.strip("{}")] = unquote(given)
        elif expected.lower() != given.lower():
            return None
    return params if all(params.values()) else None
