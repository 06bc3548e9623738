"""Odd input for every route of a real server: only documented responses, and no traceback in the log.

The description lists a 500 only where the real server returns one.
"""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Iterator
from typing import Any

import pytest
import requests
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable

from openpai_tasks.server.api.openapi.build import describe
from tests.needs import needs
from tests.server import conformity
from tests.server.conftest import ServerProcess

EXAMPLES = 2  # valid ones and as many invalid ones for each handler; a valid one for each further path
KNOWN = {  # names that exist, so that not every call fails on an unknown name
    "job": ["alice~done", "done"],
    "user": ["alice"],
    "group": ["default", "lab"],
    "vc": ["lab"],
    "storage": ["home"],
    "role": ["main"],
    "attempt": ["0"],
    "index": ["0"],
    "task_attempt": ["0"],
    "file": ["stdout"],
}
QUIET = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def described() -> dict[str, Any]:
    """Return the description, where path parameters take existing names or any text."""
    document = copy.deepcopy(describe("union"))
    for operations in document["paths"].values():
        for operation in operations.values():
            for parameter in operation["parameters"]:
                if parameter["in"] == "path" and parameter["name"] in KNOWN:
                    known = {"enum": KNOWN[parameter["name"]]}
                    parameter["schema"] = {"anyOf": [known, known, parameter["schema"]]}
    return document


SUMMARIES = {
    f"{method.upper()} {path}": str(operation["summary"])
    for path, operations in describe("union")["paths"].items()
    for method, operation in operations.items()
}
FIRST = {summary: label for label, summary in reversed(SUMMARIES.items())}.values()


@functools.cache
def operations() -> dict[str, Any]:
    """Load what generates the input, which takes a second: other workers only collect this file."""
    import schemathesis

    found = schemathesis.openapi.from_dict(described()).get_all_operations()
    return {one.ok().label: one.ok() for one in found}


class Target:
    """A server for this module, and an admin token that is valid at each call."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self.session = requests.Session()
        self.token = ""
        self.sign_in()

    def sign_in(self) -> None:
        self.token = self.server.admin().token

    def send(self, case: Any) -> requests.Response:
        headers = {"Authorization": f"Bearer {self.token}"}
        options = case.as_transport_kwargs(base_url=self.uri, headers=headers)
        return self.session.request(**options, timeout=60, allow_redirects=False)

    @property
    def uri(self) -> str:
        return next(uri for uri in conformity.PROFILES if uri.endswith(self._port))

    @property
    def _port(self) -> str:
        return ":" + (self.server.folder / "port").read_text().strip()


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    server = ServerProcess(tmp_path_factory.mktemp("odd") / "home")
    server.start("--virtual-cluster", "lab=1,512,0")
    admin = server.admin()
    assert admin.post("/api/v2/users", {"username": "alice", "password": "alice-secret"}).status_code == 201
    alice = server.login("alice", "alice-secret")
    alice.run("done")
    alice.until("alice~done", "SUCCEEDED")
    yield Target(server)
    server.end()


@needs("schemathesis")
def test_input_is_generated_for_every_route() -> None:
    assert list(operations()) == list(SUMMARIES)


@needs("schemathesis")
@pytest.mark.parametrize("label", SUMMARIES, ids=[label.replace(" ", "") for label in SUMMARIES])
def test_odd_input_is_answered_as_described(target: Target, label: str) -> None:
    from schemathesis import GenerationMode

    operation = operations()[label]
    is_first = label in FIRST
    few = settings(QUIET, max_examples=EXAMPLES if is_first else 1)
    for mode in GenerationMode if is_first else [GenerationMode.POSITIVE]:

        @few
        @given(case=operation.as_strategy(generation_mode=mode))
        def send(case: Any) -> None:
            answer = target.send(case)
            if answer.status_code == 401:  # an earlier call may have revoked the token
                target.sign_in()
            conformity.check("union", answer)

        with contextlib.suppress(Unsatisfiable):  # a call without parameters has no invalid input
            send()


@needs("schemathesis")
def test_odd_input_leaves_no_traceback_in_the_log(target: Target) -> None:
    log = target.server.log
    assert "DELETE" in log and "Traceback" not in log


def test_line_break_in_a_path_is_treated_like_any_character(target: Target) -> None:
    for path in ("/api/v2/users/a%0Ab", "/api/v2/no%0Aroute"):
        answer = requests.get(target.uri + path, headers={"Host": "evil.example"}, timeout=60)
        assert answer.json()["code"] == "ForbiddenUserError"
        answer = requests.request("TRACE", target.uri + path, timeout=60)
        assert answer.json()["code"] == "NoApiError"
