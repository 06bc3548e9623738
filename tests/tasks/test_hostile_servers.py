"""A command against a hostile server ends with a one-line error."""

import json

import pytest

from tests.hostile import Hostile, for_ever

OK = b"HTTP/1.1 200 OK\r\n"
INFO = json.dumps({"launcherType": "k8s", "version": "v1.8.1", "authnMethod": "basic"}).encode()
LAB = ("--cluster-alias", "lab")
HOSTILE = {
    "drip": (OK + b"X-Long: ", b"x", 121, "no answer from cluster 'lab'"),
    "interim answers": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100, 121, "no answer from cluster 'lab'"),
    "busy": (b"HTTP/1.1 429 Busy\r\nRetry-After: 3600\r\nContent-Length: 0\r\n\r\n", b"", 122, "in 3600 s"),
    "large": (OK + b"\r\n", b"[" * (1 << 20), 122, "is refused: it is larger than"),
}


def hostile(begin, again):
    """A server that behaves like OpenPAI until it is asked for jobs."""
    answer = for_ever(begin, again)

    def act(request):
        if b"/jobs" in request:
            return answer(request) if again else [begin]
        return [OK + b"Content-Length: %d\r\n\r\n" % len(INFO) + INFO]

    return Hostile(act, 0.05 if len(again) == 1 else 0.0)


@pytest.fixture
def add(monkeypatch, tmp_path):
    """Add a server as a cluster."""
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    (tmp_path / "token").write_text("t0ken")

    def run(pai, server):
        flags = ("--user", "alice", "--token-file", str(tmp_path / "token"), "--no-check")
        assert pai("cluster.add", "lab", server.uri, *flags).code == 0

    return run


@pytest.mark.parametrize("begin, again, code, words", HOSTILE.values(), ids=HOSTILE)
def test_command_against_a_hostile_server_ends_with_a_one_line_error(
    project, add, monkeypatch, begin, again, code, words
):
    if words.startswith("no answer"):
        monkeypatch.setenv("INVOKE_OPENPAI_HTTP_TIMEOUT", "0.5")
    with hostile(begin, again) as server:
        add(project.pai, server)
        ran = project.pai("job.list", *LAB)
    assert (ran.code, ran.out) == (code, "")
    assert ran.err.startswith("error: ") and ran.err.count("\n") == 1, ran.err
    assert words in ran.err


def test_pause_is_announced_on_stderr(project, add):
    answers = [b"HTTP/1.1 429 Busy\r\nRetry-After: 3\r\nContent-Length: 0\r\n\r\n"]
    answers.append(OK + b"Content-Length: 2\r\n\r\n[]")

    def act(request):
        body = OK + b"Content-Length: %d\r\n\r\n" % len(INFO) + INFO
        return [answers.pop(0) if b"/jobs" in request else body]

    with Hostile(act) as server:
        add(project.pai, server)
        ran = project.pai("job.list", *LAB, "-o", "json")
    assert (ran.code, json.loads(ran.out)) == (0, [])
    assert "accepts no more requests for now; waiting 3 s" in ran.err


def test_real_process_against_a_dripping_server_ends_with_an_error(shell, add):
    with hostile(*HOSTILE["drip"][:2]) as server:
        add(shell.pai, server)
        ran = shell.pai("job.list", *LAB, INVOKE_OPENPAI_HTTP_TIMEOUT="0.5")
    assert (ran.code, ran.out, ran.err.count("\n")) == (121, "", 1), ran
