"""Find the OpenPAI server, and its generation, at an address that a user types."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import field
from typing import Any

from openpai_tasks.backends.http import addresses
from openpai_tasks.backends.http.connection import ProbeAnswer
from openpai_tasks.backends.openpai.endpoints import Client
from openpai_tasks.errors import Unreachable
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol import routes
from openpai_tasks.protocol.fields import text
from openpai_tasks.settings.credentials import Credentials
from openpai_tasks.settings.registry import Cluster

PROBE_SECONDS = 10.0
DESCRIBES = ("name", "version", "launcherType", "engine", "authnMethod")
"""The fields of a server's description that are stored."""
OUTAGES = (429, 502, 503, 504)  # a busy server, or a proxy whose server is down
PASTED = re.compile(r"/rest-server(/.*)?$|/api/v[12](/.*)?$|/[^/]*\.html$")
"""Paths that users copy with the address: that of the REST server, or a page of the web portal."""


@dataclass(frozen=True)
class FoundServer:
    """The REST server at an address, and how it describes itself."""

    uri: str
    prefix: str
    generation: str
    info: dict[str, Any] = field(default_factory=dict)
    wants_token: bool = False  # OIDC (AAD): users cannot log in with a password


def candidates(address: str) -> tuple[str, ...]:
    """Return the addresses to try, best first; without a scheme, https and then http."""
    return addresses.candidates(address, PASTED)


def discover(alias: str, address: str, verify: bool | str, seconds: float = PROBE_SECONDS) -> FoundServer:
    """Find the OpenPAI server at the address; never fall back to http for an untrusted certificate."""
    return addresses.first_answer(
        candidates(address), lambda uri: _ask(Cluster(alias, uri, verify=verify), seconds)
    )


def learn(cluster: Cluster, seconds: float = PROBE_SECONDS) -> Cluster:
    """Complete the record of a cluster with its description; raise if the cluster has moved."""
    server = discover(cluster.alias, cluster.uri, cluster.verify, seconds)
    addresses.check_same(cluster, server.uri)
    return dataclasses.replace(cluster, prefix=server.prefix, generation=server.generation, info=server.info)


def _ask(cluster: Cluster, seconds: float) -> FoundServer:
    """Try the address behind the reverse proxy, then without it."""
    answers = []
    for prefix in (routes.PREFIX, ""):
        client = _client(cluster, cluster.uri, prefix, seconds)
        answer = _probe(client, routes.INFO)
        moved = addresses.without_path(answer.url, prefix + routes.INFO)
        if moved and moved != cluster.uri:  # mostly http to https: a password must go there directly
            client = _client(cluster, moved, prefix, seconds)
        server = recognise(client, answer)
        if server:
            return server
        answers.append(answer.status)
    raise Unreachable(
        f"{cluster.uri} answers, but not as an OpenPAI server does"
        f" (HTTP {answers[0]} for {routes.PREFIX}{routes.INFO})"
    )


def _probe(client: Client, path: str) -> ProbeAnswer:
    """Probe a path; raise during an outage, which does not show what kind of server it is."""
    answer = client.probe(path)
    if answer.status not in OUTAGES:
        return answer
    from http import HTTPStatus  # slow to load

    cluster, status = client.cluster, f"HTTP {answer.status} {HTTPStatus(answer.status).phrase}"
    raise Unreachable(f"no OpenPAI server answers at {cluster.rest}{path} now: {status}; try again later")


def _client(cluster: Cluster, uri: str, prefix: str, seconds: float) -> Client:
    there = Cluster(cluster.alias, uri, verify=cluster.verify, prefix=prefix)
    return Client(there, Credentials(), timeout=min(seconds, PROBE_SECONDS))


def recognise(client: Client, info: ProbeAnswer) -> FoundServer | None:
    """Return the server if it is OpenPAI; older generations are recognised by missing routes."""
    if _describes(info):
        return _server(client, _generation(client, info.body), info.body)
    first = _probe(client, routes.INFO_V1)
    if _describes(first):
        return _server(client, "0.18", first.body)
    greets = first.status == 200 and "PAI RESTful API" in str(first.body)
    if greets and _is_unrouted(_probe(client, routes.JOBS)):
        return _server(client, "0.14", {})
    return None


def _describes(answer: ProbeAnswer) -> bool:
    return answer.status == 200 and isinstance(answer.body, dict) and "launcherType" in answer.body


def _generation(client: Client, info: dict[str, Any]) -> str:
    """Derive the generation from the version or, without one, from routes that 1.3 added and 1.1 removed."""
    number = re.match(r"v?(\d{1,9})\.(\d{1,9})", text(info.get("version")))
    if number:
        return "1.8" if (int(number[1]), int(number[2])) >= (1, 1) else "0.18"
    has_events = not _is_unrouted(_probe(client, routes.JOB_EVENTS.format(job="nobody~nothing")))
    return "1.8" if has_events or _is_unrouted(_probe(client, routes.VIRTUAL_CLUSTERS_V1)) else "0.18"


def _is_unrouted(answer: ProbeAnswer) -> bool:
    return answer.status == 404 and isinstance(answer.body, dict) and answer.body.get("code") == "NoApiError"


def _server(client: Client, generation: str, info: dict[str, Any]) -> FoundServer:
    way_in = info.get("authnMethod")
    if way_in is None:
        authn = _probe(client, routes.AUTHN_INFO_V1).body
        way_in = authn.get("authn_type") if isinstance(authn, dict) else None
    cluster = client.cluster
    known = {key: text(info.get(key)) for key in DESCRIBES if text(info.get(key))}
    return FoundServer(cluster.uri, cluster.prefix, generation, known, text(way_in).upper() == "OIDC")
