"""The results of calls that ran as jobs, which somebody else may have written."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from openpai_tasks.api.futures.call_results import CallResults
from openpai_tasks.sdk.files.job_folders import Home
from openpai_tasks.sdk.payloads import call_runner
from tests.fuzz.target import Target

KEY = b"k" * 32


class Results:
    """A storage with one file."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read(self, path: str, offset: int = 0, length: int | None = None) -> list[bytes]:
        return [self.data[: length or None]]


def parse_result(data: bytes) -> None:
    """Read the result of a call; only one with the right seal is accepted."""
    layout = SimpleNamespace(output=lambda job: f"/{job}")
    results = CallResults(cast(Home, SimpleNamespace(store=Results(data), layout=layout)), KEY)
    results.error("job").encode()
    body = results.read("job", 3)
    assert body is None or data == call_runner.seal(KEY, 3, body) + body


TARGETS = (Target("call-result", parse_result, (call_runner.seal(KEY, 3, b"body") + b"body",)),)
