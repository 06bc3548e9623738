"""The known clusters: which of them answer, switching to one, and the first page.

The addresses of OpenPAI's own portal, which other tools link to, lead to pages of ours.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from starlette.responses import Response

from openpai_tasks import sdk
from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import ConfigError
from openpai_tasks.portal.live import Event, Steps
from openpai_tasks.portal.request import PortalRequest, redirect
from openpai_tasks.sdk.clusters.known import ClusterRow
from openpai_tasks.sdk.clusters.resources import ClusterState
from openpai_tasks.settings.config import load_settings

ANSWER_SECONDS = 5.0
PAUSE_SECONDS = 15.0


def page(request: PortalRequest) -> Response:
    """List the clusters at once; their states follow."""
    request.session.last = request.session.last or _selected(request)
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


def _selected(request: PortalRequest) -> str:
    """Return the alias of the cluster to show: as the query says, the only one, or the selected one."""
    return request.query.get("cluster") or request.session.only or load_settings().cluster_alias


def first_page(request: PortalRequest) -> Response:
    return redirect("c", request.params.get("alias") or _selected(request), "jobs")


def job_detail(request: PortalRequest) -> Response:
    """``/job-detail.html?username=USER&jobName=NAME``."""
    user, name = request.query.get("username", ""), request.query.get("jobName", "")
    if not name:
        raise ConfigError("this address names no job: expected ?username=USER&jobName=NAME")
    return redirect("c", _selected(request), "jobs", f"{user}~{name}" if user else name)


def submit(request: PortalRequest) -> Response:
    return redirect("c", _selected(request), "submit")
