"""The decorator ``remote``: a function runs here, or as jobs."""

import os
from pathlib import Path

import pytest

from openpai_tasks import remote
from openpai_tasks.errors import ConfigError

pytestmark = pytest.mark.usefixtures("here")


def test_a_function_runs_here_when_called_and_as_a_job_when_submitted():
    @remote(cpu=1)
    def where(number=1):
        """Where it runs."""
        import os

        return os.environ.get("PAI_JOB_NAME", "here"), number

    assert where() == ("here", 1) and where.__name__ == "where" and where.__doc__ == "Where it runs."
    future = where.submit(number=2)
    job, number = future.result()
    assert job.endswith(f"~{future.job}") and number == 2
    assert [number for _, number in where.map([3, 4])] == [3, 4]
    where.shutdown()


def test_a_remote_function_that_calls_itself_runs_in_one_job():
    @remote(cpu=1)
    def factorial(number):
        return number * factorial(number - 1) if number else 1

    assert factorial.submit(4).result() == 24
    before = factorial.executor
    factorial.shutdown()
    assert factorial.submit(3).result() == 6 and factorial.executor is not before
    factorial.shutdown()


def test_nothing_starts_before_the_first_submission(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENPAI_HOME", str(tmp_path / "home"))

    @remote(gpu=1, max_jobs=3, batch=2, cluster="lab", name="x")
    def call():
        return Path(os.environ["OPENPAI_HOME"]).exists()

    assert call() is False
    call.shutdown()


def test_unknown_options_are_refused_at_once():
    with pytest.raises(ConfigError, match="no option named 'gpus'"):
        remote(gpus=1)
