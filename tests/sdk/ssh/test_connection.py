"""Connections to containers, against a real sshd."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import paramiko
import pytest

from openpai_tasks.errors import ConfigError, Lost, TimedOut, Unreachable
from openpai_tasks.sdk.containers import forwarding, sessions
from openpai_tasks.sdk.ssh import hosts_file
from openpai_tasks.sdk.ssh.connection import Remote
from openpai_tasks.sdk.ssh.login_errors import HostKeyChanged, KeyRefused, NotListening
from openpai_tasks.sdk.ssh.target import Gateway, gateway
from openpai_tasks.settings.config import Settings
from tests.sdk import sshd_server
from tests.sdk.sshd_server import port_sending, refusing_port, unresponsive_port
from tests.ssh_keys import make_key


@pytest.fixture(scope="module")
def sshd(tmp_path_factory):
    with sshd_server.running(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@pytest.fixture
def remote(sshd, tmp_path):
    with Remote(sshd.target(tmp_path)).open() as remote:
        yield remote


def run_remotely(remote, command, **more):
    out, err = [], []
    code = sessions.run_command(remote, command, out.append, err.append, **more)
    return code, b"".join(out), b"".join(err)


def test_a_command_keeps_its_exit_code_and_both_outputs(remote):
    assert run_remotely(remote, "echo out; echo err >&2; exit 7") == (7, b"out\n", b"err\n")


def test_bytes_pass_unchanged_in_both_directions_at_once(remote):
    data, (read, write) = os.urandom(3 << 20), os.pipe()

    def feed():
        with os.fdopen(write, "wb") as pipe:
            pipe.write(data)

    threading.Thread(target=feed, daemon=True).start()
    assert run_remotely(remote, "cat", stdin=read) == (0, data, b"")
    os.close(read)


def test_command_killed_by_a_signal_is_255_and_the_connection_still_works(remote):
    assert run_remotely(remote, "kill -9 $$")[0] == sessions.SIGNALLED
    assert run_remotely(remote, "echo on") == (0, b"on\n", b"")


class LateChannel:
    """A channel on which nothing has arrived at the first look, and everything right after it."""

    eof_received = closed = False
    exit_status = 0

    def __init__(self):
        self._output = [b"all"]
        self._readable, self._other = os.pipe()
        os.write(self._other, b"!")

    def fileno(self):
        return self._readable

    def exec_command(self, command):
        pass

    def recv_ready(self):
        return self.eof_received and bool(self._output)

    def recv(self, size):
        return self._output.pop()

    def recv_stderr_ready(self):
        self.eof_received = True
        return False

    def exit_status_ready(self):
        return self.eof_received

    def close(self):
        os.close(self._readable)
        os.close(self._other)


def test_output_that_arrives_together_with_the_end_of_a_command_is_passed_on():
    passed = []
    remote = SimpleNamespace(session=LateChannel, losing=contextlib.nullcontext)
    assert sessions.run_command(remote, "echo all", passed.append, passed.append) == 0
    assert passed == [b"all"]


def test_command_with_a_time_limit_times_out(remote):
    began = time.monotonic()
    with pytest.raises(TimedOut, match=r"within 0\.3 s"):
        run_remotely(remote, "sleep 60", seconds=0.3)
    assert time.monotonic() - began < 40


def test_command_that_timed_out_ends_on_the_remote_side_too(remote, tmp_path):
    script = f"while :; do sleep 0.05; done  # {tmp_path}"
    with pytest.raises(TimedOut):
        run_remotely(remote, script, seconds=3)
    limit = time.monotonic() + 60
    while processes_with(str(tmp_path)):
        assert time.monotonic() < limit
        time.sleep(0.05)


def processes_with(word):
    """Return the processes with the word in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has just ended
            if word.encode() in path.read_bytes():
                found.append(path.parent.name)
    return found


def test_first_host_key_is_stored_under_the_name_of_the_container(sshd, tmp_path):
    target = sshd.target(tmp_path)
    for _ in range(2):
        Remote(target).open().close()
    [line] = target.known_hosts.read_text().splitlines()
    assert line.split()[:2] == [target.name, "ssh-ed25519"]
    assert line.split()[2] == (sshd.folder / "host.pub").read_text().split()[1]
    assert target.known_hosts.stat().st_mode & 0o777 == 0o600


def test_a_changed_host_key_is_refused_and_explained(tmp_path):
    server = sshd_server.make(tmp_path / "sshd")
    try:
        server.start()
        target = server.target(tmp_path)
        Remote(target).open().close()
        before = target.known_hosts.read_text()
        server.stop()
        server.start("host2")
        with pytest.raises(HostKeyChanged, match="the host key of") as caught:
            Remote(target).open()
        assert f"ssh-keygen -R '{target.name}'" in str(caught.value) and "\n" not in str(caught.value)
        assert target.known_hosts.read_text() == before
        other = server.target(tmp_path, name="ann~later-main-0-1")  # another job at the same address is fine
        Remote(other).open().close()
        subprocess.run(["ssh-keygen", "-R", target.name, "-f", target.known_hosts], check=True)
        Remote(target).open().close()  # the advice in the message works
    finally:
        server.stop()


def test_host_key_stored_by_openssh_is_accepted(sshd, tmp_path):
    target = sshd.target(tmp_path)
    program, *rest = hosts_file.ssh_command(target)
    argv = [program, "-F", "/dev/null", *rest, "echo there"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "there\n"), done.stderr
    kept = target.known_hosts.read_text()
    Remote(target).open().close()
    assert target.known_hosts.read_text() == kept


def test_wrong_key_is_refused_with_an_explanation(sshd, tmp_path):
    with pytest.raises(KeyRefused, match=r"refuses key .*other: it accepts only the keys"):
        Remote(sshd.target(tmp_path, key=sshd.folder / "other")).open()


def test_key_with_a_passphrase_or_invalid_key_is_an_error(sshd, tmp_path):
    locked, junk = make_key(tmp_path / "locked", "secret"), tmp_path / "junk"
    junk.write_text("no key\n")
    with pytest.raises(ConfigError, match="passphrase"):
        Remote(sshd.target(tmp_path, key=locked)).open()
    with pytest.raises(ConfigError, match="cannot read"):
        Remote(sshd.target(tmp_path, key=junk)).open()


def test_no_other_key_is_offered(sshd, tmp_path, monkeypatch):
    """A key in ~/.ssh that would be accepted is not used."""
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "id_ed25519").write_bytes((sshd.folder / "id").read_bytes())
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(KeyRefused):
        Remote(sshd.target(tmp_path, key=sshd.folder / "other")).open()


@pytest.mark.parametrize("words", [None, b"HTTP/1.1 200 OK\r\n\r\n"], ids=["silent", "another"])
def test_server_that_is_not_ssh_times_out_within_the_limit(sshd, tmp_path, words, capfd):
    began = time.monotonic()
    with port_sending(words) as port, pytest.raises(Unreachable, match=r"no ssh answer from .* within 1 s"):
        Remote(sshd.target(tmp_path, port=port, timeout=1.0)).open()
    assert time.monotonic() - began < 30
    assert capfd.readouterr().err == ""


def test_closed_port_has_a_specific_error(sshd, tmp_path):
    with pytest.raises(NotListening, match="no ssh server at"):
        Remote(sshd.target(tmp_path, port=refusing_port())).open()


def test_host_that_never_answers_times_out_within_the_limit(sshd, tmp_path):
    began = time.monotonic()
    with unresponsive_port() as port, pytest.raises(Unreachable, match=r"no answer from .* within 1 s"):
        Remote(sshd.target(tmp_path, port=port, timeout=1.0)).open()
    assert time.monotonic() - began < 30


def test_unknown_host_is_an_error(sshd, tmp_path):
    with pytest.raises(Unreachable, match=r"unknown host 'node\.invalid'"):
        Remote(sshd.target(tmp_path, host="node.invalid", timeout=2.0)).open()


def test_broken_connection_is_detected_at_once(tmp_path):
    with sshd_server.running(tmp_path / "sshd") as server, Remote(server.target(tmp_path)).open() as remote:
        began = time.monotonic()
        with pytest.raises(Lost):
            sessions.run_command(remote, "echo up; sleep 60", lambda up: server.drop(), lambda err: None)
        assert time.monotonic() - began < 40 and not remote.is_open


def test_connection_that_is_breaking_while_its_channel_is_closed_is_lost(tmp_path, monkeypatch):
    def slowly(transport, channel):
        time.sleep(0.5)
        unlink(transport, channel)

    unlink = paramiko.Transport._unlink_channel
    monkeypatch.setattr(paramiko.Transport, "_unlink_channel", slowly)
    with (
        sshd_server.running(tmp_path / "sshd") as server,
        Remote(server.target(tmp_path)).open() as remote,
        pytest.raises(Lost),
    ):
        sessions.run_command(remote, "echo up; sleep 60", lambda up: server.drop(), lambda err: None)


def test_server_that_stops_responding_is_given_up(tmp_path, monkeypatch):
    from openpai_tasks.sdk.ssh import connection as module

    monkeypatch.setattr(module, "KEEPALIVE_SECONDS", 0.5)
    monkeypatch.setattr(module, "KEEPALIVE_TIMEOUT", 2.0)
    with sshd_server.running(tmp_path / "sshd") as server, Remote(server.target(tmp_path)).open() as remote:
        children = sshd_server.children(server.process.pid)

        def send(number):
            for pid in children:
                with contextlib.suppress(ProcessLookupError):  # the child of an earlier connection
                    os.kill(pid, number)

        try:
            with pytest.raises(Lost):
                sessions.run_command(
                    remote, "echo up; sleep 60", lambda up: send(signal.SIGSTOP), lambda err: None
                )
        finally:
            send(signal.SIGKILL)


def test_connection_goes_through_a_gateway(sshd, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENPAI_HOME", str(tmp_path / "home"))
    user = sshd.target(tmp_path).user
    way = Gateway("127.0.0.1", sshd.port, user, sshd.folder / "id")
    with Remote(sshd.target(tmp_path, gateway=way)).open() as remote:
        assert run_remotely(remote, "echo through") == (0, b"through\n", b"")
    with pytest.raises(NotListening):
        Remote(sshd.target(tmp_path, gateway=way, port=refusing_port())).open()
    refused = Gateway("127.0.0.1", sshd.port, user, sshd.folder / "other")
    with pytest.raises(KeyRefused, match="the gateway"):
        Remote(sshd.target(tmp_path, gateway=refused)).open()


def test_a_missing_key_is_not_reported_as_a_missing_host(sshd, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENPAI_HOME", str(tmp_path / "home"))
    none = tmp_path / "none"
    way = Gateway("127.0.0.1", sshd.port, sshd.target(tmp_path).user, none)
    for target in (sshd.target(tmp_path, gateway=way), sshd.target(tmp_path, key=none)):
        with pytest.raises(ConfigError, match=f"cannot use {none} here: No such file"):
            Remote(target).open()


@pytest.mark.parametrize("text", ["@", "host:x", "host:70000", "ann@", "-oProxyCommand=x"])
def test_an_invalid_gateway_is_refused_in_one_line(text):
    with pytest.raises(ConfigError, match=r"ssh\.gateway"):
        gateway(Settings(ssh_gateway=text))


# Ports


@pytest.fixture
def web(tmp_path):
    """Run a web server, and return its port."""
    from functools import partial
    from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

    (tmp_path / "page").write_text("hello")

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


def fetched(port):
    return urllib.request.urlopen(f"http://127.0.0.1:{port}/page", timeout=60).read()


def test_port_is_forwarded_as_soon_as_the_forward_has_started(sshd, tmp_path, web):
    target, talk = sshd.target(tmp_path), []
    with forwarding.Forward(lambda: Remote(target).open(), [forwarding.Port(web, 0)], talk.append) as forward:
        port = forward.start().ports[0].here
        assert [fetched(port) for _ in range(5)] == [b"hello"] * 5
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", port), 1)


def test_forward_reconnects_after_the_connection_broke(tmp_path, web):
    talk = []
    with sshd_server.running(tmp_path / "sshd") as server:
        target = server.target(tmp_path)
        forward = forwarding.Forward(lambda: Remote(target).open(), [forwarding.Port(web, 0)], talk.append)
        with forward:
            port = forward.start().ports[0].here
            threading.Thread(target=forward.serve, daemon=True).start()
            assert fetched(port) == b"hello"
            server.drop()
            limit = time.monotonic() + 60
            while "reconnected" not in talk and time.monotonic() < limit:
                time.sleep(0.05)
            assert fetched(port) == b"hello"


def test_a_forward_ends_when_the_job_is_over(tmp_path, web):
    with sshd_server.running(tmp_path / "sshd") as server:
        target, ports = server.target(tmp_path), [forwarding.Port(web, 0)]
        over = lambda: "job train is SUCCEEDED"  # noqa: E731
        with forwarding.Forward(lambda: Remote(target).open(), ports, lambda line: None, over) as forward:
            forward.start()
            threading.Timer(0.3, server.drop).start()
            assert forward.serve() == "job train is SUCCEEDED"


def test_a_closed_forwarded_port_is_reported_once(sshd, tmp_path):
    talk, target = [], sshd.target(tmp_path)
    ports = [forwarding.Port(refusing_port(), 0)]
    with forwarding.Forward(lambda: Remote(target).open(), ports, talk.append) as forward:
        port = forward.start().ports[0].here
        for _ in range(2):
            with socket.create_connection(("127.0.0.1", port), 60) as visitor:
                visitor.settimeout(60)
                assert visitor.recv(1) == b""
    assert len(talk) == 1 and "nothing listens at 127.0.0.1" in talk[0]


def test_local_port_that_is_taken_is_an_error():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"cannot listen on local port {port}"):
            forwarding.Forward(lambda: None, [forwarding.Port(80, port)], print)


@pytest.mark.parametrize("text", ["", "x-y", "x:y", "0", "70000", "80:x", "80:70000", "80:-1", "1:2:3"])
def test_invalid_port_is_an_error(text):
    with pytest.raises(ConfigError, match="invalid port"):
        forwarding.parse_port(text)
