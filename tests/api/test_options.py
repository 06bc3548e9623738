"""The options of jobs in Python are the flags of the commands."""

import inspect
from pathlib import Path

import pytest

from openpai_tasks import Cluster, Job, submit
from openpai_tasks.api.options import JobOptions, read_options, secret_reader
from openpai_tasks.errors import ConfigError
from openpai_tasks.tasks import job, job_after, job_submit

SCREEN = {"c", "follow", "plain", "output"}  # of what a command prints


def flags(task):
    return set(task.argspec(task.body).parameters) | {"cluster"}


def parameters(function):
    return set(inspect.signature(function).parameters) - {"self", "options"}


def test_submit_takes_every_flag_of_job_sub():
    """A sweep's jobs are waited for one by one in Python, so there is nothing to detach from."""
    taken = (parameters(submit) - {"what"}) | set(JobOptions.__annotations__)
    assert taken == flags(job_submit.submit_command) - SCREEN - {"command", "cluster_alias", "detach"}


def test_resubmit_takes_every_flag_of_job_resubmit():
    """The job knows its cluster; a preview is not offered; the values of secrets may be given."""
    wanted = flags(job_after.resubmit) - SCREEN - {"name", "cluster", "cluster_alias", "preview"}
    assert parameters(Job.resubmit) == wanted | {"secret"}


@pytest.mark.parametrize("method", [Job.logs, Job.logs_async])
def test_logs_take_every_flag_of_job_logs(method):
    of_records = {"structured", "level", "since", "grep", "output"}
    assert parameters(method) == flags(job.logs) - {"c", "name", "cluster", "cluster_alias", *of_records}


def test_records_take_the_flags_of_structured_logs():
    of_text = {"structured", "output", "stdout", "stderr", "plain"}
    assert parameters(Job.records) == flags(job.logs) - {"c", "name", "cluster", "cluster_alias", *of_text}


def test_outputs_and_wait_take_the_flags_of_their_commands():
    assert parameters(Job.outputs) == {"to"} <= flags(job_after.outputs)
    assert parameters(Job.wait) == parameters(Job.wait_async) == {"timeout"} <= flags(job.wait)


def test_jobs_takes_every_flag_of_job_list():
    assert parameters(Cluster.jobs) == (flags(job.list_) - SCREEN - {"cluster", "cluster_alias"}) | {"name"}


def test_python_values_become_flags():
    given = read_options(
        {
            "env": {"RATE": 0.1, "NAME": "a=b"},
            "ports": {"web": 2},
            "update": {"defaults.virtualCluster": "lab", "jobRetryCount": 3},
            "sources": Path("train.py"),
            "tag": "one",
            "after": [Job("first"), "second"],
            "memoryMB": 512,
            "max_time": 90,
            "gpu": 0,
            "ssh": False,
            "image": None,
        }
    )
    assert given == {
        "env": ("RATE=0.1", "NAME=a=b"),
        "ports": ("web=2",),
        "update": ('defaults.virtualCluster="lab"', "jobRetryCount=3"),
        "sources": ("train.py",),
        "tag": ("one",),
        "after": ("first", "second"),
        "memoryMB": "512",
        "max_time": "90",
        "gpu": 0,
    }


def test_an_unknown_option_is_refused_with_a_hint():
    with pytest.raises(ConfigError, match="no option named 'gpus', did you mean 'gpu'"):
        submit("true", gpus=1)


def test_a_number_must_be_one():
    with pytest.raises(ConfigError, match="instances needs a whole number, got '2'"):
        submit("true", instances="2")


def test_options_of_a_document_are_refused_for_a_job_file(alone):
    with pytest.raises(ConfigError, match="'gpu' does not fit here"):
        Job().from_file("job.yaml", gpu=1)


def test_secrets_come_from_values_or_the_environment(monkeypatch):
    monkeypatch.setenv("MY_KEY", "from the environment")
    monkeypatch.setenv("OPENPAI_TOKEN", "of a login")
    read = secret_reader({"GIVEN": "value"})
    assert (read("GIVEN"), read("my-key".upper())) == ("value", "from the environment")
    with pytest.raises(ConfigError, match="secret 'LOST' is needed"):
        read("LOST")


def test_a_document_never_gets_the_login_of_a_cluster(monkeypatch):
    monkeypatch.setenv("OPENPAI_TOKEN", "of a login")
    with pytest.raises(ConfigError, match="OPENPAI_TOKEN"):
        secret_reader({}, is_chosen=False)("OPENPAI_TOKEN")
