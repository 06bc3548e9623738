"""The known clusters: which of them answer, and switching to one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from starlette.responses import Response

from openpai_tasks import sdk
from openpai_tasks.backends.base import Backend
from openpai_tasks.portal.live import Event, Steps
from openpai_tasks.portal.pages import legacy
from openpai_tasks.portal.request import PortalRequest
from openpai_tasks.sdk.clusters.known import ClusterRow
from openpai_tasks.sdk.clusters.resources import ClusterState
from openpai_tasks.settings.config import load_settings

ANSWER_SECONDS = 5.0
PAUSE_SECONDS = 15.0


def page(request: PortalRequest) -> Response:
    """List the clusters at once; their states follow."""
    request.session.last = request.session.last or legacy.selected(request)
    return request.page("clusters.html", **_values(request, {}))


def live(request: PortalRequest) -> Steps:
    """Send the states of the clusters as they answer."""
    known: dict[str, ClusterState] = {}
    while True:
        for state in sdk.clusters.ask_clusters(_connections(request), ANSWER_SECONDS):
            if known.get(state.alias) != state:
                known[state.alias] = state
                values = _values(request, known)
                yield Event("html", {"clusters": request.fragment("clusters_table.html", **values)})
        yield PAUSE_SECONDS


def _values(request: PortalRequest, states: Mapping[str, ClusterState]) -> dict[str, Any]:
    return {"clusters": _clusters(request), "states": states}


def _clusters(request: PortalRequest) -> list[ClusterRow]:
    """Return the clusters that the session may use: one signed in with a password has only its own."""
    only = request.session.only
    return [one for one in sdk.clusters.list_clusters(load_settings()) if only in ("", one.alias)]


def _connections(request: PortalRequest) -> dict[str, Callable[[], Backend]]:
    session = request.session
    if session.only:
        return {session.only: lambda: session.client(session.only)}
    settings = dataclasses.replace(load_settings(), http_timeout=ANSWER_SECONDS)

    def connect(alias: str) -> Callable[[], Backend]:
        return lambda: sdk.clusters.connect(settings, alias)

    return {one.alias: connect(one.alias) for one in _clusters(request)}
