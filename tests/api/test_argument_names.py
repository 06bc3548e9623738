"""Errors of the API name arguments of Python, not flags of commands."""

import asyncio
import subprocess
import sys

import pytest

from openpai_tasks import Cluster, PaiExecutor, submit
from openpai_tasks.errors import ConfigError, PathError


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"gpu": -1}, "gpu must be at least 0, got -1"),
        ({"max_time": "x"}, "max_time must be a duration"),
        ({"env": "A"}, "env needs NAME=VALUE, got 'A'"),
        ({"update": "x"}, "update needs path=value"),
        ({"parameter": {"a": 1}}, "parameter needs template="),
        ({"sweep": "a"}, "sweep needs name=value"),
        ({"sweep": {"a": [1]}, "max_parallel": 0}, "max_parallel must be at least 1"),
        ({"sweep": {"a": [1]}, "max_parallel": "2"}, "max_parallel needs a whole number, got '2'"),
    ],
)
def test_submit_names_its_arguments(project, options, expected):
    with pytest.raises(ConfigError, match=expected) as caught:
        submit("true", **options)
    assert "--" not in str(caught.value)
    assert caught.value.field in options


def test_methods_properties_and_iterators_name_their_arguments(project):
    job = submit("echo 1")
    job.wait()

    async def last_lines():
        return [line async for line in job.logs_async(follow=False, attempt=9)]

    for ask, expected in (
        (lambda: Cluster().jobs(state="x"), "^state: no state named 'x'"),
        (lambda: job.records(level="x"), "^level: no level named 'x'"),
        (lambda: list(job.logs(attempt=9)), "^attempt 9: job"),
        (lambda: asyncio.run(last_lines()), "^attempt 9: job"),
        (lambda: PaiExecutor(gpu="x"), "^gpu needs a whole number"),
    ):
        with pytest.raises(ConfigError, match=expected):
            ask()
    with pytest.raises(PathError, match="recursive= removes it all"):
        Cluster().storage.delete("jobs")


def test_a_program_names_arguments_until_it_runs_a_command():
    code = "from openpai_tasks import submit; submit('true', gpu=-1)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stderr.endswith("InvalidOption: gpu must be at least 0, got -1\n")
