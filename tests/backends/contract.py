"""The clusters that the contract suite runs over: a new kind of cluster adds its rows."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from openpai_tasks.backends.base import Capabilities
from openpai_tasks.protocol.routes import PADDLECLOUD_PREFIX
from tests.forkserver import start_server
from tests.server.conftest import JOB as JOB


@dataclass(frozen=True)
class Served:
    """A running cluster, and a user who may sign in."""

    uri: str
    user: str
    password: str
    virtual_cluster: str = "default"


@dataclass(frozen=True)
class Row:
    """A kind of cluster in one version, what its users can do, and how to start one in a folder."""

    kind: str
    product: str
    capabilities: Capabilities
    serve: Callable[[Path], AbstractContextManager[Served]]


@contextmanager
def embedded(profile: str, folder: Path) -> Iterator[Served]:
    """Run the embedded server in a process, with the API of one generation."""
    process = start_server("--home", str(folder), "--profile", profile, "--rate-limit", "submit=off")
    try:
        limit = time.monotonic() + 60
        while not (folder / "server.json").exists():
            assert time.monotonic() < limit and process.poll() is None
            time.sleep(0.02)
        uri = json.loads((folder / "server.json").read_text())["uri"]
        login = json.loads((folder / "credentials.json").read_text())
        yield Served(uri, login["user"], login["password"])
    finally:
        process.terminate()
        process.wait(60)


def openpai(generation: str, **abilities: bool) -> Row:
    usual = ("separate_streams", "ssh", "retries", "free_names", "usage_report")
    able = Capabilities(**dict.fromkeys(usual, True), requeues=generation != "0.14", **abilities)
    return Row("openpai", f"OpenPAI {generation}", able, partial(embedded, generation))


@contextmanager
def embedded_paddlecloud(folder: Path) -> Iterator[Served]:
    """Run the embedded server, which serves PaddleCloud's API too."""
    with embedded("union", folder) as served:
        namespace = re.sub(r"[@._]", "-", served.user)
        yield replace(served, uri=served.uri + PADDLECLOUD_PREFIX, virtual_cluster=namespace)


ROWS = (
    openpai("0.14", v1_documents=True, job_keys=True, ownerless_jobs=True),
    openpai("0.18", application_tokens=True, hooks=True),  # our server keeps hooks with any API
    openpai(
        "1.8", tags=True, events=True, attempts=True, application_tokens=True, token_checks=True, hooks=True
    ),
    Row("paddlecloud", "PaddleCloud", Capabilities(), embedded_paddlecloud),
)
