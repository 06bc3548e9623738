"""The options of jobs in Python are the flags of the commands."""

import inspect
from pathlib import Path

import pytest

from openpai_tasks import Cluster, Job, submit
from openpai_tasks.api.options import (
    NAMES,
    SHORT_NAMES,
    JobOptions,
    Options,
    ShortNames,
    document_secret,
    read_options,
    secret_reader,
)
from openpai_tasks.errors import ConfigError, PaiError
from openpai_tasks.sdk.jobs.options import setting_overrides
from openpai_tasks.tasks import container, job
from openpai_tasks.tasks.framework.task import NICKNAMES

SCREEN = {
    "c",
    "follow",
    "plain",
    "output",
    "absolute",
    "fields",
    "summary",
    "watch",
}  # of what is shown


OTHER_NAMES = {"name", "cluster_alias"}  # of job_name and cluster


def flags(task):
    return set(task.argspec(task.body).parameters) | {"cluster"}


def parameters(function):
    return set(inspect.signature(function).parameters) - {"self", "options"}


def test_submit_takes_every_flag_of_job_sub():
    """A sweep's jobs are waited for one by one in Python, so there is nothing to detach from."""
    taken = (parameters(submit) - {"what", *OTHER_NAMES}) | set(NAMES)
    assert taken == flags(job.submit_command) - SCREEN - {"command", "cluster_alias", "detach"}


def test_resubmit_takes_every_flag_of_job_resubmit():
    """The job knows its cluster; a preview is not offered."""
    wanted = flags(job.resubmit) - SCREEN - {"name", "cluster", "cluster_alias", "preview"}
    assert parameters(Job.resubmit) == wanted | {"name"}


@pytest.mark.parametrize("method", [Job.logs, Job.logs_async])
def test_logs_take_every_flag_of_job_logs(method):
    of_records = {"structured", "level", "since", "grep", "output"}
    of_command = {"c", "name", "cluster", "cluster_alias", "notify"}
    assert parameters(method) == flags(job.logs) - of_command - of_records


def test_records_take_the_flags_of_structured_logs():
    of_text = {"structured", "output", "stdout", "stderr", "plain", "timestamps", "notify"}
    assert parameters(Job.records) == flags(job.logs) - {"c", "name", "cluster", "cluster_alias", *of_text}


def test_outputs_and_wait_take_the_flags_of_their_commands():
    assert parameters(Job.outputs) == {"to", "all"} <= flags(job.outputs)
    assert parameters(Job.sources) == {"to", "diff"} <= flags(job.sources)
    assert parameters(Job.wait) == parameters(Job.wait_async) == {"timeout"} <= flags(job.wait)


def test_tensorboard_and_forward_take_the_flags_of_their_commands():
    wanted = flags(job.tensorboard) - {"c", "name", "no_browser", "cluster", "cluster_alias"}
    assert parameters(Job.tensorboard) == parameters(Cluster.tensorboard) - {"jobs"} == wanted
    assert parameters(Job.forward) == flags(container.forward) - {"c", "name", "cluster", "cluster_alias"}


def test_jobs_takes_every_flag_of_job_list():
    assert parameters(Cluster.jobs) == (flags(job.list_) - SCREEN - {"cluster", "cluster_alias"}) | {"name"}


def test_values_keep_their_types():
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
            "requeue_on_timeout": 2,
            "grace": "30s",
            "idle_stop": "1h",
            "gpu": 0,
            "ssh": False,
            "image": None,
        }
    )
    assert given == Options(
        env={"RATE": "0.1", "NAME": "a=b"},
        ports={"web": 2},
        update=(("defaults.virtualCluster", "lab"), ("jobRetryCount", 3)),
        sources=("train.py",),
        tag=("one",),
        after=("first", "second"),
        memoryMB=512,
        max_time=90,
        requeue_on_timeout=2,
        grace=30,
        idle_stop=3600,
        gpu=0,
    )


def test_texts_are_read_as_on_the_command_line():
    given = read_options(
        {
            "env": ["RATE=0.1", "NAME=a=b"],
            "ports": "web=2",
            "update": ["defaults.virtualCluster=lab", "jobRetryCount=3"],
            "memoryMB": "2g",
            "max_time": "1h30m",
        }
    )
    assert given == Options(
        env={"RATE": "0.1", "NAME": "a=b"},
        ports={"web": 2},
        update=(("defaults.virtualCluster", "lab"), ("jobRetryCount", 3)),
        memoryMB=2048,
        max_time=5400,
    )


def test_an_empty_text_overrides_a_setting_and_is_no_other_option():
    given = read_options({"workspace": "", "virtual_cluster": "", "job_name": "", "max_time": "", "tag": []})
    assert given == Options(workspace="", virtual_cluster="")
    assert setting_overrides(given)["workspace"] == "" and setting_overrides(given)["image"] is None


def test_an_unknown_option_is_refused_with_a_hint():
    with pytest.raises(ConfigError, match="no option named 'gpus', did you mean 'gpu'"):
        submit("true", gpus=1)


def test_a_number_must_be_one(alone):
    with pytest.raises(ConfigError, match="instances needs a whole number, got '2'"):
        submit("true", instances="2")
    with pytest.raises(PaiError, match=r"missing\.yaml"):
        submit("missing.yaml")
    assert not (alone / "home" / "local").exists()  # no cluster was started for that


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


@pytest.mark.parametrize("name", ["OPENPAI_TOKEN", "GITHUB_TOKEN"])
def test_a_document_does_not_get_a_variable_by_naming_it(monkeypatch, name):
    monkeypatch.setenv(name, "hunter2")
    with pytest.raises(ConfigError, match=f"or secret='{name}' to take it from the variable {name}"):
        document_secret(name, is_chosen=False)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"sources": 3}, "sources needs a text or a list of texts, got 3"),
        ({"sweep": {"rate": []}}, r"sweep: rate needs a list of values, got \[\]"),
        ({"sweep": {"rate": "0.1"}}, "sweep: rate needs a list of values, got '0.1'"),
        ({"sweep": {"rate": 0.1}}, "sweep: rate needs a list of values, got 0.1"),
        ({"cluster_alias": "lab"}, "no cluster named 'lab'"),
        (
            {"cluster_alias": "lab", "cluster": "a"},
            "cluster='a' and cluster_alias='lab' contradict each other",
        ),
        ({"name": "a", "job_name": "b"}, "name='a' and job_name='b' contradict each other"),
        ({"cluster": 3}, "a cluster is its alias or a Cluster, got 3"),
        ({"secret": "KEY=value"}, "in a mapping: secret={'KEY': value}"),
        ({"env": {"A": {1, 2}}}, "cannot write {1, 2} as text: set is not a number"),
        ({"update": {"a": {1}}}, "update: cannot use a value in a job document: set is not a number"),
        ({"mem": "1g", "memoryMB": 5}, "mem and memoryMB are the same option"),
    ],
)
def test_values_of_a_wrong_kind_are_refused(alone, options, expected):
    with pytest.raises(ConfigError, match=expected):
        submit("true", **options)


@pytest.mark.parametrize("what", [None, 3, ["echo", "1"]])
def test_something_else_than_a_job_is_refused(what):
    with pytest.raises(ConfigError, match="a job is a command, a path to a job file or a JobRequest"):
        submit(what)


def test_short_names_are_those_of_the_command_line():
    assert set(SHORT_NAMES.items()) == {
        (short, name.replace("-", "_"))
        for name, several in NICKNAMES.items()
        for short in several
        if len(short) > 1
    }
    assert read_options({"mem": "1g", "vc": "lab", "src": "a.py", "pip": ["b"]}) == Options(
        memoryMB=1024, virtual_cluster="lab", sources=("a.py",), pip_installs=("b",)
    )
    assert set(SHORT_NAMES) == set(ShortNames.__annotations__) < set(JobOptions.__annotations__)


def test_scalars_of_numpy_and_paths_are_values():
    import numpy

    given = read_options(
        {
            "gpu": numpy.int64(2),
            "env": {"RATE": numpy.float32(0.5), "DATA": Path("a/b"), "SIZES": [numpy.int64(3)]},
            "update": {"jobRetryCount": numpy.int32(1)},
        }
    )
    assert (given.gpu, type(given.gpu)) == (2, int)
    assert given.env == {"RATE": "0.5", "DATA": "a/b", "SIZES": "[3]"}
    assert given.update == (("jobRetryCount", 1),) and type(given.update[0][1]) is int


def test_roles_are_a_mapping_or_texts(alone):
    roles = {"ps": 1, "worker": {"instances": 2, "gpu": 1, "ports": {"rpc": 2}, "command": "echo a, b=c"}}
    texts = ["ps:1", "worker:instances=2,gpu=1,ports=rpc:2,command=echo a, b=c"]
    assert read_options({"role": roles}) == read_options({"role": texts})
    Job("roles").one_liner("true", role=roles).validate()
