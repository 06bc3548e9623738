"""`--notify ADDRESS` and the setting `notify`, from the command line and in Python."""

import json

import pytest

from tests.leaks import files_with
from tests.scripted import Reply
from tests.server.workshop import until

PATH = "secret-path"


@pytest.fixture
def receiver(serve):
    return serve({f"POST /{PATH}": "", "POST /refused": Reply("", 404)})


def bodies(receiver, count):
    until(lambda: len(receiver.seen) >= count)
    return [json.loads(request.body) for request in receiver.seen]


def test_the_server_notifies_of_the_end_of_a_job_and_shows_no_address(cluster, receiver):
    address = f"{receiver.uri}/{PATH}"
    line = ("job.sub", "exit 3", "-j", "fails", "--notify", address)
    assert PATH not in str(cluster.ok(*line, "--preview")) + str(cluster.ok(*line, "--preview", "-o", "json"))
    assert "post to 127.0.0.1 on end" in cluster.ok(*line, "--preview", "-o", "table").out
    cluster.ok(*line)
    (body,) = bodies(receiver, 1)
    assert (body["name"], body["state"], body["exit_code"]) == ("fails", "FAILED", 3)
    assert body["link"] == "pai job.why fails"
    for task in ("job.status", "job.config", "job.why"):
        assert PATH not in cluster.ok(task, "fails", "-o", "json").out
    for place in (cluster.project, cluster.home / "local" / "jobs"):
        assert not files_with(PATH, place)


def test_a_word_that_is_no_address_is_not_the_value_of_the_flag(cluster):
    assert "exit code" not in cluster.ok("job.sub", "--notify", "true", "-j", "bare").err
    for words in ((f"--notify=ftp://{PATH}",), ("--notify", f"slack {PATH}")):
        ran = cluster.inv("job.sub", "true", *words)
        assert (ran.code, ran.out, ran.err.count("\n")) == (120, "", 1) and PATH not in ran.err
        assert ran.err.startswith("error: --notify has an invalid address: expected https://")
    for line in (("job.sub", "true", "--notify="), ("job.wait", "bare", "--notify", "")):
        ran = cluster.inv(*line)
        assert (ran.code, ran.err.count("\n")) == (120, 1)
        assert ran.err.startswith("error: --notify has an empty address: expected https://")
    ran = cluster.inv("job.sub", "true", "--notify", "env:NOT_SET")
    assert (ran.code, ran.err) == (
        120,
        "error: a hook needs the environment variable NOT_SET, which is not set\n",
    )


def test_a_sweep_is_one_message(cluster, receiver):
    hook = {"INVOKE_OPENPAI_NOTIFY": f"{receiver.uri}/{PATH}"}
    cluster.ok("job.sub", "exit {x}", "--sweep", "x=0,1,2", "-j", "many", "--detach", **hook)
    cluster.inv("job.wait", "many", **hook)
    (body,) = bodies(receiver, 1)
    assert (body["kind"], body["name"]) == ("sweep", "many")
    assert body["jobs"] == {"SUCCEEDED": 1, "FAILED": 2}


def test_a_message_that_was_refused_is_a_fact_of_the_job(cluster, receiver):
    cluster.ok("job.sub", "true", "-j", "unheard", "--notify", f"{receiver.uri}/refused", "--follow")
    why = "127.0.0.1 was not notified of the end: it answered with HTTP 404"
    until(lambda: why in cluster.ok("job.why", "unheard").out)


def test_a_command_that_waits_notifies_by_itself(cluster, receiver):
    cluster.ok("job.sub", "true", "-j", "watched")
    ran = cluster.ok("job.wait", "watched", "--notify", f"{receiver.uri}/{PATH}")
    assert ran.err == "notified 127.0.0.1\n" and len(receiver.seen) == 1
    ran = cluster.ok("job.wait", "watched", "--notify", f"{receiver.uri}/refused")
    assert ran.err == "warning: 127.0.0.1 was not notified: it answered with HTTP 404\n"


def test_a_trial_message_is_sent_from_here(cluster, receiver):
    assert cluster.ok("config.notify", "-o", "json").json() == []
    file = cluster.home / "defaults.yaml"
    file.write_text(f"notify: [{{post: '{receiver.uri}/{PATH}', when: failed}}, {{command: exit 7}}]\n")
    try:
        shown = "post to 127.0.0.1 on failed, command on end"
        assert shown in cluster.ok("config.show").out and PATH not in cluster.ok("config.show").out
        ran = cluster.inv("config.notify", "--test")
        assert (ran.code, ran.err.splitlines()) == (
            121,
            ["notified 127.0.0.1", "error: a command was not notified: it ended with exit code 7"],
        )
        assert json.loads(receiver.seen[0].body)["kind"] == "trial"
    finally:
        file.unlink()
