"""Errors of the API name arguments of Python, not flags of commands."""

import asyncio
import inspect

import pytest

from openpai_tasks import Cluster, Job, PaiExecutor, submit
from openpai_tasks.api.argument_names import argument_names
from openpai_tasks.errors import ConfigError, PathError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("--max-time must be a duration", "max_time= must be a duration"),
        ("--gpu: gpu must be at least 0", "gpu must be at least 0"),
        ("--state: no state named 'x'", "state: no state named 'x'"),
        ("it has attempt 0, got --attempt 9", "it has attempt 0, got attempt=9"),
        ("-u needs path=value", "update= needs path=value"),
        ("the job's --gpu and it's --cpu", "the job's gpu= and it's cpu="),
    ],
)
def test_flags_become_arguments(text, expected):
    assert argument_names(text) == expected


@pytest.mark.parametrize(
    "text", ["`pai job.sub --gpu 1`", "unknown option '--gpu'", "--yes", "curl -s --foo"]
)
def test_commands_quoted_texts_and_other_flags_stay(text):
    assert argument_names(text) == text


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"gpu": -1}, "gpu must be at least 0, got -1"),
        ({"max_time": "x"}, "max_time= must be a duration"),
        ({"env": "A"}, "env= needs NAME=VALUE, got 'A'"),
        ({"update": "x"}, "update= needs path=value"),
        ({"parameter": {"a": 1}}, "parameter= needs template="),
        ({"sweep": "a"}, "sweep= needs name=value"),
        ({"sweep": {"a": [1]}, "max_parallel": 0}, "max_parallel= must be at least 1"),
        ({"sweep": {"a": [1]}, "max_parallel": "2"}, "max_parallel= needs a whole number, got '2'"),
    ],
)
def test_submit_names_its_arguments(project, options, expected):
    with pytest.raises(ConfigError, match=expected) as caught:
        submit("true", **options)
    assert "--" not in str(caught.value)


def test_methods_properties_and_iterators_name_their_arguments(project):
    job = submit("echo 1")
    job.wait()

    async def last_lines():
        return [line async for line in job.logs_async(follow=False, attempt=9)]

    for ask, expected in (
        (lambda: Cluster().jobs(state="x"), "^state: no state named 'x'"),
        (lambda: job.records(level="x"), "^level: no level named 'x'"),
        (lambda: list(job.logs(attempt=9)), "got attempt=9$"),
        (lambda: asyncio.run(last_lines()), "got attempt=9$"),
        (lambda: PaiExecutor(gpu="x"), "^gpu must be a whole number"),
    ):
        with pytest.raises(ConfigError, match=expected):
            ask()
    with pytest.raises(PathError, match="recursive= removes it all"):
        Cluster().storage.delete("jobs")


def test_methods_keep_their_signatures_and_docstrings():
    assert "follow" in inspect.signature(Job.logs).parameters and Job.logs.__doc__.startswith("Yield")
    assert Job.status.__doc__.startswith("The job as") and inspect.iscoroutinefunction(Job.wait_async)
