"""Submitting from the command line: changes, roles, secrets, limits, tags, dependencies, templates."""

import json
import os
import pty
import re
import time

import pytest
import yaml

from tests.forkserver import start_server
from tests.server.workshop import until
from tests.test_docs import ROOT, commands

FILE = """
protocolVersion: 2
name: from-file
type: job
prerequisites: [{name: img, type: dockerimage, uri: "python:3"}]
taskRoles:
  main:
    dockerImage: img
    resourcePerInstance: {cpu: 1, memoryMB: 64, gpu: 0}
    commands: ["echo $GREETING"]
"""


def preview(shell, *args, **options):
    return yaml.safe_load(shell.ok(*args, "--preview", **options).out)


@pytest.fixture
def file(cluster):
    (cluster.project / "job.yaml").write_text(FILE)
    return "job.yaml"


def test_updates_change_a_file_before_it_is_sent(cluster, file):
    job = preview(
        cluster,
        *("job.submit", file, "-u", "defaults:virtualCluster=test", "-u", "jobRetryCount=2"),
        *("-u", "taskRoles.main.commands.0=echo two", "--update", "taskRoles.main.instances=3"),
    )
    assert job["defaults"] == {"virtualCluster": "test"} and job["jobRetryCount"] == 2
    assert job["taskRoles"]["main"]["commands"] == ["echo two"]
    assert job["taskRoles"]["main"]["instances"] == 3


def test_a_job_of_this_machine_requests_little_by_default(cluster):
    def requested(*flags):
        role = preview(cluster, "job.sub", "true", *flags)["taskRoles"]["main"]
        return role["resourcePerInstance"]

    assert requested() == {"cpu": 1, "memoryMB": 1024, "gpu": 0}
    assert requested("--cpu", "2", "--mem", "4g") == {"cpu": 2, "memoryMB": 4096, "gpu": 0}


def test_updates_change_a_generated_job(cluster):
    ran = cluster.ok("job.sub", "echo one", "-u", "taskRoles.main.commands[0]=echo two", "-f")
    assert ran.out == "two\n"


@pytest.mark.parametrize(
    ("update", "words"),
    [("name.x=1", "name is"), ("defautls.a=1", "did you mean 'defaults'"), ("x", "path=value")],
)
def test_invalid_update_is_reported_in_one_line(cluster, file, update, words):
    ran = cluster.inv("job.submit", file, "-u", update)
    assert ran.code == 120 and words in ran.err and len(ran.err.splitlines()) == 1


def test_json_with_secrets_is_sent_as_block_yaml_and_masked(cluster):
    document = {**yaml.safe_load(FILE), "name": "as-json", "secrets": {"key": "s3cret"}}
    document["taskRoles"]["main"]["commands"] = ["echo '<% $secrets.key %>'"]
    (cluster.project / "job.json").write_text(json.dumps(document))
    shown = cluster.ok("job.submit", "job.json", "--preview")
    assert '\nsecrets: "******"\n' in shown.out and "s3cret" not in shown.out + shown.err
    assert cluster.ok("job.submit", "job.json", "-f").out == "s3cret\n"
    assert "s3cret" not in cluster.ok("job.config", "as-json").out


def test_two_roles_exchange_data_without_a_file(cluster):
    (cluster.project / "serve.py").write_text(
        "import os, socket\n"
        "s = socket.create_server(('127.0.0.1', int(os.environ['PAI_PORT_LIST_ps_0_data'])))\n"
        "for _ in range(2): c, _ = s.accept(); c.sendall(b'weights\\n'); c.close()\n"
        "import time; time.sleep(60)\n"
    )
    (cluster.project / "ask.py").write_text(
        "import os, socket, time\n"
        "for _ in range(1200):\n"
        "    try: c = socket.create_connection(('127.0.0.1', int(os.environ['PAI_PORT_LIST_ps_0_data'])))\n"
        "    except OSError: time.sleep(0.05)\n"
        "    else: break\n"
        "print(os.environ['PAI_TASK_INDEX'], c.makefile().read().strip())\n"
    )
    ran = cluster.ok(
        *("job.sub", "--sources", "serve.py", "--sources", "ask.py", "--cpu", "1", "--mem", "64"),
        *("--role", "ps:ports=data,command=python3 serve.py"),
        *("--role", "worker:2,command=python3 ask.py", "-f"),
    )
    assert sorted(ran.out.splitlines()) == ["[worker-0] 0 weights", "[worker-1] 1 weights"]


def test_flags_are_the_defaults_of_every_role(cluster):
    job = preview(
        cluster,
        *("job.sub", "run it", "--instances", "2", "--cpu", "3", "--mem", "2g", "--shm", "1g"),
        *("--ports", "web=2", "--retries", "4", "--vc", "lab", "--role", "chief:1,gpu=1", "--role", "rest"),
    )
    chief, rest = job["taskRoles"]["chief"], job["taskRoles"]["rest"]
    assert (chief["instances"], rest["instances"]) == (1, 2)
    assert chief["resourcePerInstance"] == {"cpu": 3, "memoryMB": 2048, "gpu": 1, "ports": {"web": 2}}
    assert rest["extraContainerOptions"] == {"shmMB": 1024}
    assert chief["commands"] == rest["commands"] == ["run it"]
    assert job["jobRetryCount"] == 4 and job["defaults"]["virtualCluster"] == "lab"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--role", "Main_1"], "lower-case"),
        (["--role", "a:gpus=1"], "did you mean 'gpu'"),
        (["--role", "a:gpu=x"], "whole number"),
        (["--role", "a", "--role", "a"], "duplicate name"),
        (["-j", "a b"], "--job-name must match [a-zA-Z0-9_-]+, got 'a b'"),
        (["--image", ""], "a job needs an image"),
        (["--mem", "lots"], "16g"),
        (["--max-time", "soon"], "30m"),
        (["--requeue-on-timeout", "2"], "needs a time limit: add --max-time"),
        (["--grace", "5s"], "--grace needs --requeue-on-timeout"),
        (["--max-time", "1m", "--requeue-on-timeout", "2", "--grace", "1m"], "shorter than --max-time"),
        (["--idle-stop", "1h"], "--idle-stop needs a job with GPUs: add --gpu"),
        (["--mem", "16gg"], "--memoryMB needs megabytes or a size such as 512m or 16g, got '16gg'"),
        (["--ports", "8080"], "label"),
        (["--ports", "web=500"], "--ports web needs a number: up to 100 ports, or the port that the program"),
        (["--ports", "web=0"], "--ports web must be at least 1"),
        (["--role", "a:ports=web:70000,command=x"], "--role a: ports web needs a number"),
        (["--env", "NAME"], "NAME=VALUE"),
        (["--env", "A-B=1"], "A-B"),
        (["--secret", "KEY=value"], "command line"),
        (["--instances", "0"], "at least 1"),
        (["--tag", "a,b"], "commas"),
        (["--parameter", "a=1"], "--template"),
        (["--sweep", "a=1", "--max-parallel", "0"], "at least 1"),
        (["--sweep", "a=1", "-u", "name=x"], "--job-name"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_invalid_flag_is_reported_in_one_line(cluster, flags, words):
    ran = cluster.inv("job.sub", "true", *flags)
    assert ran.code == 120 and words in ran.err and len(ran.err.splitlines()) == 1, ran


def test_a_secret_comes_from_the_environment_and_is_never_shown(cluster):
    value = 'it\'s <b> & "$HOME"'
    args = (
        "job.sub",
        'printf "%s|" "$KEY" "$PLAIN"',
        "--secret",
        "KEY",
        "--secret",
        "PLAIN",
        "-j",
        "secretive",
    )
    shown = cluster.ok(*args, "--preview", KEY=value, PLAIN="hunter2")
    assert 'secrets: "******"' in shown.out and "hunter2" not in shown.out + shown.err
    assert cluster.ok(*args, "-f", KEY=value, PLAIN="hunter2").out == f"{value}|hunter2|"
    assert "hunter2" not in cluster.ok("job.config", "secretive").out
    for record in (cluster.project / ".openpai").rglob("*.json"):
        assert "hunter2" not in record.read_text()


def test_a_secret_is_asked_for_on_a_terminal(cluster):
    leader, follower = pty.openpty()
    words = ("job.sub", 'echo "$KEY"', "--secret", "KEY", "--follow")
    process = cluster.start("inv", *words, stdin=follower, start_new_session=True)
    # Input typed before the prompt is dropped.
    assert process.stderr.read(len("secret KEY: ")) == "secret KEY: "
    os.write(leader, b"typed-secret\n")
    out, err = process.communicate(timeout=60)
    os.close(leader)
    os.close(follower)
    assert out == "typed-secret\n" and "typed-secret" not in err


def test_a_time_limit_ends_the_job_with_124(cluster):
    ran = cluster.inv("job.sub", "sleep 600", "--max-time", "3s", "-f")
    assert ran.code == 124 and "time limit of 3 s" in ran.out


def test_tags_are_added_to_the_job(cluster):
    [job] = cluster.ok("job.sub", "true", "--tag", "red", "--tag", "two words", "-o", "json").json()
    assert set(job["tags"]) == {"red", "two words"}


def state(cluster, name):
    return cluster.ok("job.status", name, "-o", "json").json()["state"]


def test_a_job_waits_on_the_cluster_for_others(cluster):
    gate = cluster.project / "gate"
    cluster.ok("job.sub", f"until test -e '{gate}'; do sleep 0.05; done", "-j", "first-step")
    cluster.ok("job.sub", "true", "-j", "second-step", "--after", "first-step")
    cluster.ok("job.sub", "true", "-j", "last-step", "--after", "first-step", "--after-any", "second-step")
    until(lambda: state(cluster, "first-step") == "RUNNING")
    ran = cluster.ok("job.why", "last-step")
    assert "is WAITING: waits for first-step (RUNNING), second-step (WAITING; any end)" in ran.out
    shown = cluster.ok("job.status", "second-step").out
    assert "after: first-step (RUNNING)\nbefore: last-step (WAITING)" in shown
    plan = cluster.ok("job.sub", "true", "--after", "first-step,last-step", "--preview", "-o", "table").out
    assert "first-step has succeeded, last-step has succeeded" in plan
    gate.touch()
    cluster.ok("job.wait", "last-step")
    assert state(cluster, "first-step") == "SUCCEEDED"


def test_after_submits_nothing_if_the_other_job_is_unknown_or_has_failed(cluster):
    ran = cluster.inv("job.sub", "true", "-j", "never", "--after", "no-such-step")
    assert ran.code == 122 and "no job named 'no-such-step'" in ran.err
    ran = cluster.inv("job.sub", "true", "-j", "never", "--after", "")
    assert ran.code == 120 and "--after needs the name of a job, got ''" in ran.err
    cluster.inv("job.sub", "exit 7", "-j", "broken-step", "-f")
    ran = cluster.inv("job.sub", "echo second", "-j", "never", "--after", "broken-step")
    assert ran.code == 7 and "nothing was submitted: job 'broken-step' had to succeed first" in ran.err
    ran = cluster.inv("job.sub", "true", "-j", "never", "--after", "broken-step", "--preview")
    assert ran.code == 7 and "job 'broken-step' had to succeed first, and is FAILED" in ran.err
    assert cluster.inv("job.status", "never").code == 122


def test_jobs_stopped_with_another_are_submitted_again_with_it(cluster):
    gate = cluster.project / "gate2"
    cluster.ok("job.sub", f"until test -e '{gate}'; do sleep 0.05; done; test -e '{gate}3'", "-j", "chain-a")
    cluster.ok("job.sub", "true", "-j", "chain-b", "--after", "chain-a")
    (cluster.project / "c.yaml").write_text(FILE.replace("from-file", "chain-c").replace("$GREETING", "hi"))
    cluster.ok("job.submit", "c.yaml", "--after", "chain-b")
    gate.touch()
    assert cluster.inv("job.wait", "chain-c").code == 143
    why = "job 'chain-b' had to succeed first, and is STOPPED"
    assert f"because: {why}" in cluster.ok("job.status", "chain-c").out
    shown = cluster.ok("job.why", "chain-c").out
    assert f"chain-c is STOPPED: {why}" in shown
    for name in ("chain-b", "chain-c"):  # chain-b alone would be refused
        [advice] = cluster.ok("job.why", name, "-o", "json").json()["advice"]
        assert advice == "`inv job.resubmit chain-a --with-dependents` runs it again with chain-a"
    again = "job.resubmit chain-a --with-dependents` also runs what was stopped with it: chain-b"
    assert again in cluster.ok("job.why", "chain-a").out
    refused = cluster.inv("job.resubmit", "chain-b")
    assert refused.code == 1 and "job 'chain-a' had to succeed first, and is FAILED" in refused.err
    only = cluster.ok("job.resubmit", "chain-a", "--preview", "-o", "yaml")
    assert "not submitted again: chain-b, chain-c, stopped with chain-a; --with-dependents" in only.err
    gone = ("-u", 'extras.jobPolicy.after=[{"job": "removed"}]')
    alone = cluster.ok("job.resubmit", "chain-b", *gone, "--preview", "-o", "yaml")
    assert "it does not wait for job removed, which was removed from the cluster" in alone.err
    assert "jobPolicy" not in alone.out
    nothing = cluster.ok("job.resubmit", "chain-c", *gone, "--with-dependents", "--preview", "-o", "yaml")
    assert "--with-dependents adds nothing: no job was stopped with chain-c" in nothing.err
    (cluster.project / "gate23").touch()
    ran = cluster.ok("job.resubmit", "chain-a", "--with-dependents", "-j", "chain-a2", "-o", "json")
    last = re.search(r"job (chain-c-\w+) submitted", ran.err)[1]
    cluster.ok("job.wait", last)
    after = cluster.ok("job.status", last, "-o", "json").json()["after"]
    assert [(one["job"].partition("~")[2][:8], one["met"]) for one in after] == [("chain-b-", True)]


def test_the_client_waits_for_a_cluster_without_dependencies(cluster):
    gate, uri = cluster.project / "gate4", cluster.ok("cluster.status", "-o", "json").json()["uri"]
    owner = json.loads((cluster.home / "local" / "credentials.json").read_text())
    login = ("--pai-uri", uri, "--user", owner["user"])
    cluster.ok("cluster.add", "-a", "remote", *login, OPENPAI_PASSWORD=owner["password"])
    cluster.ok("job.sub", f"until test -e '{gate}'; do sleep 0.05; done", "-j", "slow-step")
    until(lambda: state(cluster, "slow-step") == "RUNNING")
    process = cluster.start("inv", "job.sub", "echo next", "--after", "slow-step", "-f", "-a", "remote")
    assert "keeps no dependencies between jobs: keep this running" in process.stderr.readline()
    assert "waiting for job 'slow-step', which is RUNNING" in process.stderr.readline()
    gate.touch()
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "next\n"), err


def test_a_template_takes_flags_sources_and_variables(cluster):
    (cluster.project / "job_templates").mkdir(exist_ok=True)
    (cluster.project / "job_templates" / "mine.yaml").write_text(
        FILE.replace("name: from-file", "name: mine\nparameters: {command: echo default, times: 1}").replace(
            '["echo $GREETING"]', "['<% $parameters.command %>; echo <% $parameters.times %> $GREETING']"
        )
    )
    (cluster.project / "note.txt").write_text("from the sources\n")
    ran = cluster.ok(
        *("job.sub", "cat note.txt", "--template", "mine", "--sources", "note.txt"),
        *("--env", "GREETING=hello", "-p", "times=3", "-f"),
    )
    assert ran.out == "from the sources\n3 hello\n"
    refused = cluster.inv("job.sub", "--template", "mine", "--gpu", "2")
    assert refused.code == 120 and "no parameter for --gpu" in refused.err


@pytest.mark.parametrize("page", ["jobs.md", "sweeps.md"])
def test_page_commands_run_in_order(cluster, page):
    for line in commands((ROOT / "docs" / page).read_text()):
        ran = cluster.run("sh", "-c", line)
        assert ran.code == 0, (line, ran)
        assert "Traceback" not in ran.err


def test_v1_file_is_sent_unchanged_to_a_server_that_accepts_it(shell):
    role = {"name": "main", "command": "echo v1 $PAI_TASK_INDEX"}
    (shell.project / "v1.json").write_text(
        json.dumps({"jobName": "old-style", "image": "python:3", "taskRoles": [role]})
    )
    home = shell.home / "old"
    server = start_server("--home", str(home), "--profile", "0.14")
    try:
        deadline = time.monotonic() + 60
        while not (home / "server.json").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        uri = json.loads((home / "server.json").read_text())["uri"]
        owner = json.loads((home / "credentials.json").read_text())
        login = ("--pai-uri", uri, "--user", owner["user"])
        shell.ok("cluster.add", "-a", "old", *login, OPENPAI_PASSWORD=owner["password"])
        ran = shell.ok("job.submit", "v1.json", "-u", "taskRoles.0.taskNumber=2", "-a", "old", "-f")
    finally:
        server.terminate()
        server.wait(timeout=60)
    assert sorted(ran.out.splitlines()) == ["[main-0] v1 0", "[main-1] v1 1"]
    assert "as v2" not in ran.err


def test_a_stopped_server_is_reported_in_one_line(shell):
    shell.ok("cluster.start")
    shell.ok("job.sub", "sleep 60", "-j", "first-step")
    process = shell.start("inv", "job.connect", "first-step")
    assert "first-step" in process.stdout.readline()
    shell.ok("cluster.stop", "--keep-jobs")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 121
    *_, continues, reason = err.splitlines()  # before them, that it does not answer if it was still ending
    assert continues.startswith("job first-step continues") and reason.startswith("error: no answer")
