"""Every endpoint that the client reads, over HTTP: a result that can be shown, or one of our errors."""

from __future__ import annotations

import base64
import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openpai_tasks.backends.http import logins
from openpai_tasks.backends.openpai import Client, driver
from openpai_tasks.errors import PaiError
from openpai_tasks.render import text as render
from openpai_tasks.sdk.clusters import resources
from openpai_tasks.sdk.containers import endpoints
from openpai_tasks.sdk.diagnosis import explain
from openpai_tasks.sdk.files import job_folders, storages
from openpai_tasks.sdk.jobs import documents, lookup
from openpai_tasks.sdk.logs import output as logs
from openpai_tasks.settings.config import Settings
from openpai_tasks.settings.credentials import Credentials, token_claims
from openpai_tasks.settings.registry import Cluster, dump, parse, registry_path
from tests.properties.answers import (
    ERROR,
    JOB,
    KINDS,
    RETRYING,
    RUNNING,
    TOKEN,
    V1,
    V2,
    WAITING,
    OddCluster,
)
from tests.properties.mutations import BROKEN, body, steady
from tests.scripted import Reply

LOGS = f"{JOB}/attempts/0/taskRoles/main/taskIndex/0/attempts/0/logs"
OLD = f"{V1}/jobs/ann~train"
SETTINGS = Settings(http_timeout=30.0)


def signed_in(client: Client) -> Any:
    known = Credentials(password="secret")
    cluster = Cluster("lab", client.cluster.uri, "ann")
    found, _ = driver.sign_in(cluster, known, lambda prompt: "", lambda line: None, 30.0)
    text = dump([found])
    assert parse(text, registry_path())[0][0] == found  # it can be saved and read back
    text.encode()
    return found


def storage_rows(client: Client) -> Any:
    found = storages.detail_of(client, "0")
    return [storages._row(storages.place_of(client, found, ()), found)]


def ssh_endpoints(client: Client) -> Any:
    return list(client.ssh_endpoints(client.job("ann~train")).values())


def a_document(client: Client) -> Any:
    _, document = documents.job_document(client, "train")
    return document


def output(client: Client) -> Any:
    return [str(piece) for piece in logs.read_output(client, "train", logs.LogChoice())]


READS: dict[str, dict[str, list[Any]]] = {
    "1.8": {
        f"GET {V2}/info": [signed_in],
        f"GET {V1}/authn/info": [signed_in],
        f"POST {V1}/token": [signed_in, lambda client: client.login("ann", "secret") and client.token()],
        f"GET {V1}/user/ann": [signed_in, lambda client: client.user_info("ann")],
        f"GET {V2}/virtual-clusters": [
            lambda client: [resources._resources("lab", *row) for row in client.virtual_clusters().items()],
            signed_in,
        ],
        f"GET {V2}/storages": [
            lambda client: list(client.storages()),
            signed_in,
            storage_rows,
            job_folders.home,
        ],
        f"GET {V2}/storages/team": [storage_rows, job_folders.home],
        f"GET {V2}/jobs": [Client.jobs, lambda client: client.jobs(limit=3, username="ann", keyword="t")],
        f"GET {JOB}": [
            lambda client: lookup.describe(client, "train"),
            lambda client: explain.why(client, "train"),
            lambda client: client.job_page(client.job("ann~train")),
            ssh_endpoints,
            output,
        ],
        f"GET {JOB}/attempts/0": [lambda client: client.job_attempt("ann~train", 0)],
        f"GET {JOB}/events": [lambda client: lookup.describe(client, "train")],
        f"GET {JOB}/config": [lambda client: lookup.submitted_document(client, "train"), a_document],
        f"GET {LOGS}": [output],
    },
    "0.14": {
        f"GET {V1}": [signed_in],
        f"GET {V1}/virtual-clusters": [signed_in],
        f"GET {V1}/jobs": [Client.jobs, lambda client: client.jobs(order="jobName,ASC", tagsContain="a")],
        f"GET {OLD}": [lambda client: lookup.describe(client, "train"), output],
        f"GET {OLD}/config": [a_document, lambda client: lookup.submitted_document(client, "train")],
        f"GET {OLD}/ssh": [ssh_endpoints],
    },
    "0.18": {f"GET {V2}/info": [signed_in], f"GET {V2}/jobs": [Client.jobs]},
}
CASES = [(generation, route) for generation, routes in READS.items() for route in routes]
GOING = {
    "running": (RUNNING, lambda client: endpoints.reach(client, "train", SETTINGS)),
    "waiting": (WAITING, lambda client: explain.why(client, "train")),
    "retrying": (RETRYING, lambda client: explain.why(client, "train")),
}


@pytest.fixture(scope="module")
def servers():
    found = {generation: OddCluster(generation) for generation in KINDS}
    yield found
    for server in found.values():
        server.close()


@pytest.fixture(autouse=True, scope="module")
def own_home(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENPAI_HOME", str(tmp_path_factory.mktemp("home")))
        patch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
        patch.setattr(logins, "PAUSES", (0.0, 0.01))  # the delay of a login does not matter here
        yield


def client_of(server: OddCluster, generation: str) -> Client:
    cluster = Cluster("lab", server.uri, "ann", generation=generation)
    return Client(cluster, Credentials(token=TOKEN), timeout=30.0)


def attempt(read: Any, client: Client) -> None:
    """Read a response and show it in every format; every failure must be one of our errors."""
    try:
        found = read(client)
    except PaiError as err:
        str(err).encode()
        assert err.exit_code
        return
    rows = found if isinstance(found, list) else [found]
    values = [
        one if isinstance(one, dict) or dataclasses.is_dataclass(one) else {"value": one} for one in rows
    ]
    for form in render.FORMATS:
        shown = render.format_values(values, str if form == "table" else (), form)
        shown.encode()


@pytest.mark.parametrize("generation, route", CASES, ids=lambda one: one.replace("/rest-server/api", ""))
def test_real_responses_are_read_without_an_error(servers, generation, route):
    servers[generation].instead = {}
    for read in READS[generation][route]:
        read(client_of(servers[generation], generation))


@pytest.mark.parametrize("generation, route", CASES, ids=lambda one: one.replace("/rest-server/api", ""))
def test_malformed_response_never_ends_in_a_traceback(servers, generation, route):
    server, real = servers[generation], KINDS[generation][route]

    @steady(25)
    @given(body(real), st.sampled_from(READS[generation][route]))
    def check(odd_body, read):
        server.instead = {route: Reply(odd_body)}
        attempt(read, client_of(server, generation))

    check()


@pytest.mark.parametrize("real, read", GOING.values(), ids=GOING)
def test_malformed_response_about_an_unfinished_job_never_ends_in_a_traceback(servers, real, read):
    server = servers["1.8"]
    server.instead = {f"GET {JOB}": Reply(real)}
    read(client_of(server, "1.8"))

    @steady(25)
    @given(body(real))
    def check(odd_body):
        server.instead = {f"GET {JOB}": Reply(odd_body)}
        attempt(read, client_of(server, "1.8"))

    check()


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 500])
def test_malformed_error_response_never_ends_in_a_traceback(servers, status):
    server, route = servers["1.8"], f"GET {JOB}"

    @steady(25)
    @given(body(ERROR))
    def check(odd_body):
        server.instead = {route: Reply(odd_body, status)}
        with pytest.raises(PaiError) as raised:
            lookup.find(client_of(server, "1.8"), "train")
        str(raised.value).encode()

    check()


@pytest.mark.parametrize("text", BROKEN, ids=lambda one: repr(one[:12]))
def test_claims_of_a_malformed_token_are_a_mapping(text):
    assert isinstance(token_claims(f"x.{base64.urlsafe_b64encode(text).decode().rstrip('=')}.x"), dict)
