"""Jobs from Python: described, submitted, followed and repeated on a real embedded cluster."""

import asyncio
import copy
import json
import multiprocessing
import os
import pickle
import re
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from openpai_tasks import Cluster, Job, JobRequest, submit
from openpai_tasks.errors import (
    ConfigError,
    Conflict,
    InvalidOption,
    JobFailed,
    NotFound,
    PathError,
    TimedOut,
)
from openpai_tasks.protocol import validate
from tests.needs import needs
from tests.sdk.test_git import git
from tests.server.workshop import until

DOCUMENT = {
    "protocolVersion": 2,
    "name": "from-a-file",
    "type": "job",
    "prerequisites": [{"name": "image", "type": "dockerimage", "uri": "python:3"}],
    "parameters": {"word": "old"},
    "secrets": {"key": "unknown"},
    "taskRoles": {
        "main": {
            "instances": 1,
            "dockerImage": "image",
            "resourcePerInstance": {"cpu": 1, "memoryMB": 512, "gpu": 0},
            "commands": ["echo <% $parameters.word %> <% $secrets.key %>"],
        }
    },
}
V1 = {
    "jobName": "of-version-1",
    "image": "python:3",
    "taskRoles": [{"name": "main", "taskNumber": 1, "cpuNumber": 1, "memoryMB": 512, "command": "echo v1"}],
}


def output_of(job):
    job.wait()
    return list(job.logs())


# Submit


def test_one_line_submits_a_command_with_its_files(project):
    Path("train.py").write_text("import os; print('rate', os.environ['RATE'])")
    job = submit("python3 train.py", sources=["train.py"], env={"RATE": 0.1}, cpu=1, job_name="train-$")
    assert list(job.logs(follow=True)) == ["rate 0.1"]
    assert job.state == "SUCCEEDED" and job.name.startswith("train-") and "$" not in job.name


def test_a_sweep_of_jobs_in_a_loop(project):
    jobs = [submit(f"echo '{{\"square\": {n * n}}}'", job_name=f"square-{n}") for n in range(12)]
    assert [job.result()["square"] for job in jobs] == [n * n for n in range(12)]


def test_the_settings_of_the_project_apply_and_options_override_them(project):
    Path("invoke.yaml").write_text("openpai:\n  cpu: 1\n  memoryMB: 256\n  image: from:settings\n")
    Path(".openpai").mkdir()
    Path(".openpai", "defaults.yaml").write_text("pip-installs: []\nmemoryMB: 512\n")
    job = submit("true", image="from:options", preview=True)
    document = job.get_config()
    assert document["prerequisites"][0]["uri"] == "from:options"
    assert document["taskRoles"]["main"]["resourcePerInstance"] == {"cpu": 1, "memoryMB": 512, "gpu": 0}


def test_a_folder_below_the_project_has_its_settings(project, monkeypatch):
    Path("invoke.yaml").write_text("openpai:\n  image: from:settings\n")
    Path("deep", "er").mkdir(parents=True)
    monkeypatch.chdir(Path("deep", "er"))
    assert "from:settings" in submit("true", preview=True).preview()


def test_a_setting_that_needs_trust_is_refused_without_a_question(project):
    Path("invoke.yaml").write_text("openpai:\n  python: /tmp/evil\n")
    with pytest.raises(ConfigError, match=r"config\.trust"):
        submit("true")


def test_a_preview_sends_nothing_and_shows_exactly_what_is_sent(project):
    job = submit("echo $KEY", secret={"KEY": "s3cret"}, job_name="shown-$", preview=True)
    shown = job.preview()
    assert "s3cret" not in shown + repr(job) + repr(job.draft) and "secrets:" in shown
    job.submit()
    assert yaml.safe_load(shown)["name"] == job.name
    assert output_of(job) == ["s3cret"]


@pytest.mark.parametrize("kind", [str, Path])
def test_a_path_submits_a_job_file(project, kind):
    Path("job.yaml").write_text(yaml.safe_dump(DOCUMENT))
    job = submit(kind("job.yaml"), job_name=f"file-{kind.__name__}-$", update={"parameters.word": "new"})
    assert output_of(job) == ["new unknown"] and job.name.startswith("file-")


def test_a_file_of_version_1_is_converted(project):
    Path("job.json").write_text(json.dumps(V1))
    assert output_of(submit("job.json")) == ["v1"]


def test_a_missing_job_file_is_an_error(project):
    with pytest.raises(PathError, match=r"cannot read the job file 'lost\.yaml'"):
        submit("lost.yaml")


def test_a_request_is_completed_from_the_settings(project):
    request = JobRequest("echo requested", tags=("one",), cpu=1)
    job = submit(request, tag="two", job_name="requested-$")
    assert output_of(job) == ["requested"] and set(job.status.tags) == {"one", "two"}


@pytest.mark.parametrize(
    "memory, setting, is_asked", [(None, {}, False), (1024, {}, True), (None, {"memoryMB": 512}, True)]
)
def test_memory_of_a_request_is_asked_for_unless_it_is_the_built_in_default(
    project, memory, setting, is_asked
):
    Path(".openpai").mkdir()
    Path(".openpai/defaults.yaml").write_text(yaml.safe_dump(setting))
    text = submit(JobRequest("true", "asked", memory_mb=memory), preview=True).preview()
    [role] = validate(text).roles
    assert (role.memory_mb, role.is_memory_asked) == (setting.get("memoryMB", 1024), is_asked)


def test_a_job_can_come_after_others_that_are_named_or_passed(project):
    gate = project / "gate"
    wait = f"until test -e '{gate}'; do sleep 0.05; done"
    first = submit(f"{wait}; false")
    second = submit("echo 2", after=first)
    third = submit("echo 3", after_failed=[first], after_any=second.status)
    gate.touch()
    assert output_of(third) == ["3"]
    assert [one.met for one in third.status.after] == [True, True]
    assert (second.status.state, second.status.after[0].job.endswith(first.name)) == ("STOPPED", True)
    fixed = first.resubmit(update={"taskRoles.main.commands.0": "echo 1"}, with_dependents=True)
    (again,) = fixed.status.dependents
    assert output_of(Job(again.job)) == ["2"]
    with pytest.raises(JobFailed, match="nothing was submitted"):
        submit("true", after=first)


def test_a_sweep_returns_its_jobs(project):
    jobs = submit("echo {a}-{b}", sweep={"a": [1, 2], "b": ["x y"]}, job_name="swept")
    assert [output_of(job) for job in jobs] == [["1-x y"], ["2-x y"]]
    again = submit("echo {a}-{b}", sweep=["a=1,2,3", "b=x y"], job_name="swept", max_parallel=2)
    assert len(again) == 3 and {job.name for job in jobs} < {job.name for job in again}


def test_a_sweep_of_rows_in_a_file(project):
    Path("rows.csv").write_text("n,word\n1,one\n2,two\n")
    jobs = submit("echo {n} {word} {m}", sweep={"m": [7]}, sweep_file="rows.csv")
    assert [output_of(job) for job in jobs] == [["1 one 7"], ["2 two 7"]]


@pytest.mark.parametrize("options", [{"max_parallel": 2}, {"sweep": ["a=1"], "preview": True}])
def test_options_of_sweeps_are_checked(project, options):
    with pytest.raises(ConfigError):
        submit("true", **options)


def test_two_jobs_of_one_name_are_a_conflict(project):
    submit("true", job_name="taken")
    with pytest.raises(Conflict, match="'taken' exists"):
        submit("true", job_name="taken")


# Describe


def test_a_fluent_job_fills_parameters_and_hides_secrets(project):
    job = Job("fluent-$").one_liner(
        ["echo <% $parameters.rate %>", "echo $KEY"], resources={"cpu": 1, "mem": "512m", "gpu": 0}
    )
    job.param("rate", 0.1).secret("KEY", "s3cret").tag("a").add_tag("b").validate().submit()
    assert output_of(job) == ["0.1", "s3cret"]
    assert set(job.status.tags) == {"a", "b"}
    assert "s3cret" not in str(job.get_config())


def test_a_missing_parameter_is_an_error():
    job = Job("x").one_liner("echo <% $parameters.rate %>").param("other", 1)
    with pytest.raises(ConfigError, match="'rate'"):
        job.validate()


def test_a_job_file_takes_parameters_and_secrets(project):
    Path("job.yml").write_text(yaml.safe_dump(DOCUMENT))
    job = Job("filled-$").from_file("job.yml").param("word", "new").secret("key", "s3cret")
    assert output_of(job.validate().submit(virtual_cluster="default")) == ["new s3cret"]
    assert job.status.virtual_cluster == "default"


def test_a_file_of_version_1_has_no_parameters(project):
    Path("job.json").write_text(json.dumps(V1))
    with pytest.raises(ConfigError, match="v1 job, which has no parameters"):
        Job("x").from_file("job.json").param("word", "new").validate()


def test_a_template_takes_parameters(project):
    Path("job_templates").mkdir()
    template = {**DOCUMENT, "name": "greet", "secrets": {"key": "k"}}
    Path("job_templates", "greet.yaml").write_text(yaml.safe_dump(template))
    job = Job("greets-$").from_template("greet", {"word": "hello"}).submit()
    assert output_of(job) == ["hello k"]
    assert output_of(submit(template="greet", parameter={"word": "bye"}, job_name="byes-$")) == ["bye k"]


def test_validate_needs_no_cluster(alone):
    Job("fine").one_liner("true").validate()
    with pytest.raises(InvalidOption, match=r"^job_name must match"):
        Job("not fine!").one_liner("true").validate()
    with pytest.raises(ConfigError, match="the command is empty"):
        Job("empty").one_liner("").validate()
    assert not (alone / "home" / "local").exists()


def test_there_must_be_something_to_submit(project):
    with pytest.raises(ConfigError, match="nothing to submit"):
        Job("nothing").submit()
    with pytest.raises(ConfigError, match="no name yet"):
        Job().wait()


def test_unknown_resources_are_refused():
    with pytest.raises(ConfigError, match="unknown key 'gpus'"):
        Job("x").one_liner("true", resources={"gpus": 1})


# Follow


def test_wait_returns_the_status_and_result_raises(project):
    job = submit("echo trained; exit 7")
    assert (job.wait().state, job.status.exit_code) == ("FAILED", 7)
    with pytest.raises(JobFailed) as caught:
        job.result()
    assert caught.value.exit_code == 7
    assert "exit code 7" in job.why().why
    assert str(job.why()).splitlines()[0] == f"job {job.name!r} failed: {job.why().why}"


def test_wait_gives_up_after_its_timeout(project):
    job = submit("sleep 60")
    with pytest.raises(TimedOut, match="the job continues"):
        job.wait(timeout=0.1)
    assert job.stop().name == job.name
    assert job.wait().state == "STOPPED"


def test_a_result_may_be_a_file(project):
    command = """echo '{"accuracy": 0.5}' > "$PAI_OUTPUT_DIR/result.json"; echo done"""
    assert submit(command).result() == {"accuracy": 0.5}


def test_lines_of_several_tasks_have_labels(project):
    job = submit("echo out; echo err >&2", instances=2, cpu=1)
    job.wait()
    assert sorted(job.logs(stdout=True)) == ["[main-0] out", "[main-1] out"]
    assert list(job.logs(stderr=True, index=1)) == ["err"]
    assert re.fullmatch(r"\d{4}-\S+ err", next(job.logs(stderr=True, index=1, timestamps=True)))
    assert list(job.logs(lines=0)) == []


def test_connect_yields_the_status_until_the_end(project):
    states = [status.state for status in submit("echo 1").connect()]
    assert states[-1] == "SUCCEEDED"


def test_outputs_are_listed_and_downloaded(project):
    job = submit('echo model > "$PAI_OUTPUT_DIR/model.pt"')
    job.wait()
    assert [(file.name, file.size) for file in job.outputs()] == [("model.pt", 6)]
    assert not Path("here").exists()
    job.outputs(to="here")
    assert Path("here", "model.pt").read_text() == "model\n"


def test_sources_are_listed_written_and_compared(project):
    Path("train.py").write_text("print(1)\n")
    first = submit("true", sources="train.py")
    assert [(file.name, file.size) for file in first.sources(to="back")] == [("train.py", 9)]
    assert Path("back", "train.py").read_text() == "print(1)\n"
    Path("train.py").write_text("print(2)\n")
    lines = first.diff(submit("true", sources="train.py"), code=True).splitlines()
    assert lines[-2:] == ["-print(1)", "+print(2)"] and first.diff(first, code=True) == ""
    assert first.diff(submit("false")).startswith("--- local:")


@needs("git")
def test_sources_are_compared_with_the_commit_they_were_made_from(project):
    Path("train.py").write_text("print(1)\n")
    git(project, "init", "-q")
    with pytest.raises(ConfigError, match="was not submitted from a git commit"):
        submit("true", sources="train.py").sources(diff=True)
    git(project, "add", "train.py")
    git(project, "commit", "-qm", "x")
    assert submit("true", sources="train.py").sources(diff=True) == ""
    Path("train.py").write_text("print(2)\n")
    lines = submit("true", sources="train.py").sources(to="back", diff=True).splitlines()
    assert lines[-2:] == ["-print(1)", "+print(2)"] and Path("back", "train.py").exists()


RECORDING = """
mkdir -p $PAI_OUTPUT_DIR/.pai/metrics $PAI_OUTPUT_DIR/.pai/logs
echo '{"time": 1, "name": "loss", "value": 0.5, "step": 1}' > $PAI_OUTPUT_DIR/.pai/metrics/main-0-0.jsonl
echo '{"time": 1, "level": "INFO", "message": "begun"}' > $PAI_OUTPUT_DIR/.pai/logs/main-0-0.jsonl
echo '{"time": 2, "level": "ERROR", "message": "lost"}' >> $PAI_OUTPUT_DIR/.pai/logs/main-0-0.jsonl
"""


def test_metrics_and_records_of_the_program_are_read(project):
    job = submit(RECORDING)
    job.wait()
    assert [(metric.name, metric.last, metric.step) for metric in job.metrics()] == [("loss", 0.5, 1)]
    assert [record.message for record in job.records()] == ["begun", "lost"]
    own = [".pai/logs/main-0-0.jsonl", ".pai/metrics/main-0-0.jsonl"]
    assert job.outputs() == [] and [file.name for file in job.outputs(all=True)] == own
    assert [record.message for record in job.records(level="error")] == ["lost"]
    with pytest.raises(ConfigError, match="no level named"):
        job.records(level="loud")


def test_an_unknown_job_is_an_error_and_not_none(project):
    lost = Job("never-submitted")
    for ask in (lost.wait, lost.stop, lost.why, lost.outputs, lost.document, lambda: list(lost.logs())):
        with pytest.raises(NotFound, match="no job named 'never-submitted'"):
            ask()


def test_a_job_is_submitted_again_with_changes(project):
    job = submit("echo $GREETING", env={"GREETING": "hello"}, tag="kept", gpu=0)
    again = job.resubmit(gpu=0, update={"jobRetryCount": 2}, job_name="again-$")
    assert output_of(again) == ["hello"] and again.name != job.name
    assert again.document()["jobRetryCount"] == 2 and again.status.tags == ("kept",)
    assert output_of(job.resubmit(exact=True)) == ["hello"]


SAVES = """
from openpai_tasks import runtime
ckpt = runtime.checkpoint()
print("resumed" if ckpt.latest() else "fresh")
ckpt.save(lambda path: open(path, "w").close())
"""


def test_a_job_that_is_submitted_again_resumes_or_starts_fresh(project):
    (project / "saves.py").write_text(SAVES)
    job = submit("python3 saves.py", sources="saves.py")
    assert output_of(job) == ["fresh"]
    again = job.resubmit()
    assert output_of(again) == ["resumed"]
    assert (again.resumes_from.job, again.resumes_from.number) == (job.name, 1)
    fresh = again.resubmit(fresh=True)
    assert output_of(fresh) == ["fresh"] and fresh.resumes_from is None
    with pytest.raises(ConfigError, match="fresh= and resume= contradict each other"):
        job.resubmit(fresh=True, resume=True)


def test_secrets_of_a_job_are_needed_to_submit_it_again(project, monkeypatch):
    job = submit("echo $KEY", secret={"KEY": "one"})
    with pytest.raises(ConfigError, match="secret 'KEY' is needed"):
        job.resubmit()
    assert output_of(job.resubmit(secret={"KEY": "two"})) == ["two"]
    monkeypatch.setenv("KEY", "three")
    assert output_of(job.resubmit()) == ["three"]


def test_names_in_a_job_file_are_not_read_from_the_environment(project, monkeypatch):
    (project / "job.yml").write_text(yaml.safe_dump(DOCUMENT))
    monkeypatch.setenv("key", "mine")
    job = Job("named-$").from_file("job.yml").submit()
    with pytest.raises(ConfigError, match="secret='key' to take it from the variable key"):
        job.resubmit()
    again = job.resubmit(secret="key")
    assert output_of(again) == output_of(again.resubmit()) == ["old mine"]


# Asynchronously


def test_several_jobs_are_awaited_at_once(project):
    async def main():
        jobs = [await asyncio.to_thread(submit, f"echo {n}; sleep 0.2") for n in range(8)]
        ended = await asyncio.gather(*(job.wait_async() for job in jobs))
        return [(job.name, status.name, status.state) for job, status in zip(jobs, ended, strict=True)]

    assert all(name == known and state == "SUCCEEDED" for name, known, state in asyncio.run(main()))


def test_lines_arrive_while_the_job_runs(project):
    """The job ends only after its first line was read."""
    go = project / "go"

    async def main():
        job = submit(f"echo ready; while [ ! -e {go} ]; do sleep 0.05; done; printf end")
        lines = []
        async for line in job.logs_async():
            go.touch()
            lines.append(line)
        return lines

    assert asyncio.run(main()) == ["ready", "end"]


def test_a_cancelled_wait_leaves_nothing_behind(project):
    """The loop closes only when its threads have ended, so it would outlast the job otherwise."""
    job = submit("sleep 120")

    async def main():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(job.wait_async(), 0.2)

    asyncio.run(main())
    assert job.state in ("WAITING", "RUNNING")
    job.stop()


def test_wait_async_gives_up_after_its_timeout(project):
    job = submit("sleep 60")
    with pytest.raises(TimedOut):
        asyncio.run(job.wait_async(timeout=0))
    job.stop()


# Threads and processes


def state_of(job):
    return job.state


def test_jobs_are_used_by_threads_and_processes(project):
    jobs = [submit(f"echo {n}", job_name=f"shared-{n}", cpu=1) for n in range(3)]
    with ThreadPoolExecutor(8) as pool:
        assert [status.state for status in pool.map(Job.wait, jobs * 3)] == ["SUCCEEDED"] * 9
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        assert list(pool.map(state_of, jobs)) == ["SUCCEEDED"] * 3


def test_handles_and_clusters_can_be_pickled(project):
    cluster = Cluster("local")
    job = cluster.submit("echo 1", job_name="pickled")
    again = pickle.loads(pickle.dumps(job))
    assert again.wait().state == "SUCCEEDED" and list(again.logs()) == ["1"]
    assert pickle.loads(pickle.dumps(cluster)).user == copy.deepcopy(cluster).user == cluster.user


def test_many_jobs_share_their_connections(project):
    """Each job of a program has its own client."""
    jobs = [submit("true", job_name=f"many-{n}", cpu=1) for n in range(8)]
    before = len(os.listdir("/proc/self/fd"))
    more = [Job(job.name) for job in jobs]
    assert len({job.status.name for job in more}) == 8
    assert len(os.listdir("/proc/self/fd")) <= before + 1


# As a program


def test_a_program_prints_nothing_of_ours(cluster):
    code = "from openpai_tasks import submit; print(submit('echo 1').wait().state)"
    ran = cluster.run(sys.executable, "-c", code)
    assert (ran.code, ran.out, ran.err) == (0, "SUCCEEDED\n", "")


def test_messages_are_logged(project, caplog):
    Path("invoke.yaml").write_text("openpai:\n  imgae: python:3\n")
    with caplog.at_level("INFO", logger="openpai_tasks"):
        submit("echo {n}", sweep={"n": [1]}, job_name="logged")
        submit("echo {n}", sweep={"n": [1]}, job_name="logged")
    found = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert ("INFO", "1 of 1 job of sweep logged exist already") in found
    assert any(level == "WARNING" and "no setting named 'imgae'" in text for level, text in found)


def test_hooks_are_notified_of_jobs_of_programs(project, serve):
    receiver = serve({"POST /x": ""})
    job = submit("true", notify=f"slack:{receiver.uri}/x")
    until(lambda: receiver.seen)
    job.resubmit(notify={"post": f"{receiver.uri}/x", "when": "start"}).wait()
    until(lambda: len(receiver.seen) == 2)
    first, second = (json.loads(request.body) for request in receiver.seen)
    assert "succeeded" in first["text"] and second["event"] == "start"
    with pytest.raises(ConfigError, match="notify has an invalid address") as refused:
        submit("true", notify="secret-path")
    assert "secret-path" not in str(refused.value)
