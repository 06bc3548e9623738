"""The ``Driver`` of OpenPAI: find the server, identify the user, log in, and read what the user may use."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from dataclasses import field
from typing import Any

from openpai_tasks.backends.base import Ask, Say
from openpai_tasks.backends.http import addresses
from openpai_tasks.backends.http.connection import ProbeAnswer
from openpai_tasks.backends.openpai.endpoints import Client
from openpai_tasks.errors import ApiError, ConfigError, Denied, NotFound, Unreachable
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol import routes
from openpai_tasks.protocol.fields import text, texts
from openpai_tasks.settings.credentials import Credentials, token_claims
from openpai_tasks.settings.registry import Cluster

connect = Client
REFUSALS = {
    "IncorrectPasswordError": "the password of user {user!r} is wrong",
    "NoUserError": "there is no user {user!r}",
}
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

    def update(self, cluster: Cluster) -> Cluster:
        """Return the record of the cluster with what was found."""
        return dataclasses.replace(
            cluster, uri=self.uri, prefix=self.prefix, generation=self.generation, info=self.info
        )


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
    return server.update(cluster)


def sign_in(
    cluster: Cluster, known: Credentials, ask: Ask, say: Say, timeout: float, typed: bool = False
) -> tuple[Cluster, Credentials]:
    """Find the server, log in, and return the updated cluster and the credentials that worked.

    Credentials that were not ``typed`` for this login are not sent to a server that has moved.
    """
    server = discover(cluster.alias, cluster.uri, cluster.verify, timeout)
    if known and not typed:
        addresses.check_known(cluster, candidates(cluster.uri), server.uri)
    user, known = identify(cluster, known, server, ask)
    addresses.warn_unencrypted(server.uri, say)
    cluster = dataclasses.replace(server.update(cluster), user=user)
    return complete(Client(cluster, known, timeout=timeout, say=say), known)


def complete(client: Client, known: Credentials) -> tuple[Cluster, Credentials]:
    """Log in, and add what the user may use to the record of the cluster."""
    record = _log_in(client, known)
    known = dataclasses.replace(known, token=client.token())
    parts, storages = _virtual_clusters(client, record), _storages(client)
    return dataclasses.replace(client.cluster, virtual_clusters=parts, storages=storages), known


def identify(cluster: Cluster, known: Credentials, server: FoundServer, ask: Ask) -> tuple[str, Credentials]:
    """Return the user's name, given or read from the token, and the credentials, asked for if missing."""
    claimed = token_claims(known.token)
    name = text(claimed.get("username"))
    if "/" in name or not name.isprintable():
        raise ConfigError(f"the token names the user {name!r}, which is not a valid name")
    if cluster.user and name and name != cluster.user:
        raise ConfigError(f"the token belongs to user {name!r}, not to {cluster.user!r}")
    if server.wants_token and not known.token:
        raise ConfigError(
            f"{server.uri} signs users in with OIDC (AAD), not a password: copy a token from its web portal"
            " and give it with --token-file or OPENPAI_TOKEN"
        )
    user = cluster.user or name
    if not user:
        raise ConfigError(f"no user name for {server.uri}: give it with --user")
    if not known:
        checked = f" (checked with {cluster.verify})" if isinstance(cluster.verify, str) else ""
        known = Credentials(password=ask(f"password of {user} at {server.uri}{checked}: "))
    return user, dataclasses.replace(known, application=bool(claimed.get("application")))


def _log_in(client: Client, known: Credentials) -> dict[str, Any]:
    """Log in and return the record of the user, which only the user may read."""
    try:
        if not known.token:
            client.login(client.user, known.password)
        return client.user_info(client.user)
    except ApiError as err:
        reason = REFUSALS.get(err.code, "").format(user=client.user)
        if err.status == 401:
            reason = f"it does not accept the token of user {client.user!r} (expired or revoked?)"
        if not reason:
            raise
        raise Denied(f"cannot log in to {client.cluster.uri}: {reason}", err.status, err.code) from err


def _virtual_clusters(client: Client, record: dict[str, Any]) -> tuple[str, ...]:
    """Return the virtual clusters granted to the user, or all of them if the server does not say."""
    granted = record.get("virtualCluster")
    if isinstance(granted, str):
        granted = [name.strip() for name in granted.split(",")]
    return tuple(filter(None, texts(granted))) or tuple(client.virtual_clusters())


def _storages(client: Client) -> tuple[dict[str, Any], ...]:
    """Return names and types only, as details contain account keys; servers without storages have HDFS."""
    with contextlib.suppress(NotFound):
        if client.dialect.storages:
            return tuple(map(_short, client.storage_rows()))
    webhdfs = f"{client.cluster.uri}/webhdfs/api/v1"
    return ({"name": "hdfs", "type": "hdfs", "default": True, "data": {"webhdfs": webhdfs}},)


def _short(row: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a storage that ``clusters.yaml`` keeps."""
    texts_of = {key: text(row.get(key)) for key in ("name", "type", "volumeName")}
    flags = {key: row[key] for key in ("share", "default") if isinstance(row.get(key), bool)}
    return {key: value for key, value in texts_of.items() if value} | flags


# Finding the server


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
