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

EXAMPLES = 2  # valid ones and as many invalid ones for each handler
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


PATHS: dict[str, list[str]] = {}
"""The paths of each handler, each with its method."""
for path, methods in describe("union")["paths"].items():
    for method, operation in methods.items():
        PATHS.setdefault(f"{method} {operation['summary']}", []).append(f"{method.upper()} {path}")


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

    def send(self, case: Any) -> None:
        """Send a call, and check its response."""
        headers = {"Authorization": f"Bearer {self.token}"}
        options = case.as_transport_kwargs(base_url=self.uri, headers=headers)
        answer = self.session.request(**options, timeout=60, allow_redirects=False)
        if answer.status_code == 401:  # an earlier call may have revoked the token
            self.sign_in()
        conformity.check("union", answer)

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
    assert operations().keys() == {label for labels in PATHS.values() for label in labels}


def elsewhere(case: Any, label: str) -> Any:
    """Return the same call of a handler by another of its paths."""
    operation = operations()[label]
    values = {one.name: KNOWN.get(one.name, ["x"])[0] for one in operation.path_parameters}
    values |= {name: value for name, value in case.path_parameters.items() if name in values}
    given = {"query": case.query, "body": case.body, "media_type": case.media_type}
    return operation.Case(path_parameters=values, **given)


@needs("schemathesis")
@pytest.mark.parametrize("labels", PATHS.values(), ids=lambda labels: labels[0].replace(" ", ""))
def test_odd_input_is_answered_as_described(target: Target, labels: list[str]) -> None:
    from schemathesis import GenerationMode

    label, *others = labels
    sent: list[Any] = []
    for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):

        @QUIET
        @given(case=operations()[label].as_strategy(generation_mode=mode))
        def send(case: Any) -> None:
            sent.append(case)
            target.send(case)

        with contextlib.suppress(Unsatisfiable):  # a call without parameters has no invalid input
            send()
    for other in others:
        target.send(elsewhere(sent[0], other))


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
