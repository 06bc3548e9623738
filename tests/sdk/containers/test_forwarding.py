"""Port forwards whose connection broke, against a real sshd and a failing cluster."""

from __future__ import annotations

import socket
import threading
import time
from types import SimpleNamespace

import pytest

from openpai_tasks.errors import ApiError, ConfigError, Denied, PaiError, Unreachable
from openpai_tasks.sdk.containers import forwarding
from openpai_tasks.sdk.notebooks import link
from openpai_tasks.sdk.ssh.connection import Remote
from tests.sdk import sshd_server
from tests.sdk.sshd_server import refusing_port


def failing(*errors):
    """Raise one error after the other, and then call ``then``."""
    left = list(errors)

    def act(then):
        if left:
            raise left.pop(0)
        return then()

    return act


@pytest.mark.parametrize("trouble", [Unreachable("no answer"), ApiError("it has a bug", 500)])
def test_cluster_error_does_not_end_a_forward(tmp_path, trouble, monkeypatch):
    monkeypatch.setattr(forwarding, "FIRST_PAUSE", 0.05)
    talk, first, asked, made = [], [], failing(trouble, trouble), failing(trouble)
    with sshd_server.running(tmp_path / "sshd") as server:
        target = server.target(tmp_path)

        def connect():
            if first:
                return made(Remote(target).open)
            first.append(True)
            return Remote(target).open()

        ports = [forwarding.Port(refusing_port(), 0)]
        with forwarding.Forward(connect, ports, talk.append, lambda: asked(str)) as forward:
            forward.start()
            serving = threading.Thread(target=forward.serve, daemon=True)
            serving.start()
            server.drop()
            limit = time.monotonic() + 60
            while "reconnected" not in talk and serving.is_alive() and time.monotonic() < limit:
                time.sleep(0.05)
            assert "reconnected" in talk, talk
            assert any(str(trouble) in line for line in talk)


@pytest.mark.parametrize("trouble", [Denied("not yours", 403), ConfigError("without ssh")])
def test_permanent_error_ends_a_forward(tmp_path, trouble):
    made = failing(trouble)
    with sshd_server.running(tmp_path / "sshd") as server:
        remotes = [Remote(server.target(tmp_path)).open()]

        def connect():
            return remotes.pop() if remotes else made(str)

        with forwarding.Forward(connect, [forwarding.Port(refusing_port(), 0)], print) as forward:
            forward.start()
            threading.Timer(0.3, server.drop).start()
            with pytest.raises(PaiError, match=str(trouble)):
                forward.serve()


@pytest.mark.parametrize(
    "words, shown", [((), "80:{}"), ((lambda: "", link.PORT_FLAG), "--port {}")], ids=["forward", "serve"]
)
def test_another_port_is_suggested_in_the_syntax_of_the_command(words, shown):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError) as refused:
            forwarding.Forward(lambda: None, [forwarding.Port(80, port)], print, *words)
    other = shown.format(port + 1 if port < 65535 else 0)
    assert str(refused.value).endswith(f"use another one: {other}")


def test_any_port_is_suggested_when_the_highest_port_is_taken():
    with socket.socket() as taken:
        try:
            taken.bind(("127.0.0.1", 65535))
        except OSError:
            pytest.skip("somebody has it")
        taken.listen()
        with pytest.raises(ConfigError, match=r"use another one: 80:0$"):
            forwarding.Forward(lambda: None, [forwarding.Port(80, 65535)], print)


def test_reverse_ports_are_written_as_for_openssh():
    parsed = forwarding.parse_reverse_ports(["9000", "9001:1", "9002:licence.lab:27000", "9003:[::1]:5"])
    assert [(one.there, one.host, one.here) for one in parsed] == [
        (9000, "localhost", 9000),
        (9001, "localhost", 1),
        (9002, "licence.lab", 27000),
        (9003, "::1", 5),
    ]


@pytest.mark.parametrize("text", ["", "0", "65536", "x", "9000:", "9000:host:", "9000:host:x", "1:0"])
def test_wrong_reverse_port_is_refused_with_an_example(text):
    with pytest.raises(ConfigError, match="such as 9000 or 9000:localhost:9001"):
        forwarding.parse_reverse_ports([text])


def test_reverse_port_is_given_once():
    with pytest.raises(ConfigError, match="a port is given twice in 9000, 9000:1"):
        forwarding.parse_reverse_ports(["9000", "9000:1"])


def test_a_container_that_names_another_port_reaches_nothing():
    closed = []
    forward = forwarding.Forward(pytest.fail, [], print, reverse=forwarding.parse_reverse_ports(["9000"]))
    forward._accept_reverse(SimpleNamespace(close=lambda: closed.append(1)), 22)
    assert closed == [1]
