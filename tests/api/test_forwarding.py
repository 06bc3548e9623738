"""Ports of a job's container, forwarded from Python, both ways."""

import logging
import urllib.request

import pytest

from openpai_tasks import Job, submit
from openpai_tasks.errors import ConfigError, Unreachable
from tests.needs import needs
from tests.ports import free_port
from tests.server.workshop import until

SERVE = "echo hello >page; exec python3 -m http.server {} --bind 127.0.0.1"


def page(port):
    """Return what the program in the container serves, or why it cannot be read."""
    try:
        return urllib.request.urlopen(f"http://127.0.0.1:{port}/page", timeout=60).read()
    except OSError as err:
        return err


def forward(job, *ports, **options):
    """Forward ports, or return None as long as the container's SSH server is just starting."""
    try:
        return job.forward(*ports, **options)
    except Unreachable:
        return None


@needs("ssh")
def test_ports_are_forwarded_both_ways_until_the_end_of_the_block(project):
    there, back = free_port(), free_port()
    job = submit(SERVE.format(there), ports={"web": there}, ssh=True)
    until(lambda: page(there) == b"hello\n")
    reverse = f"{back}:localhost:{there}"
    with until(lambda: forward(job, f"{there}:0", "web:0", reverse=reverse)) as forwarded:
        here, labelled = forwarded.ports
        assert here.here != here.there == there == labelled.there
        pages = [page(port) for port in (here.here, labelled.here, back)]  # the container's loopback is ours
        assert pages == [b"hello\n"] * 3
    assert isinstance(page(here.here), OSError)
    assert until(lambda: isinstance(page(back), OSError))
    job.stop()


@needs("ssh")
def test_forwarding_ends_with_the_job_and_logs_why(project, caplog):
    caplog.set_level(logging.INFO, "openpai_tasks")
    there = free_port()
    job = submit(SERVE.format(there), ssh=True)
    until(lambda: page(there) == b"hello\n")
    forwarded = until(lambda: forward(job, f"{there}:0"))
    assert page(forwarded.ports[0].here) == b"hello\n"
    job.stop()
    assert until(lambda: [line for line in caplog.messages if line.endswith(": forwarding has ended")])
    assert until(lambda: isinstance(page(forwarded.ports[0].here), OSError))
    forwarded.close()


@pytest.mark.parametrize(
    ("ports", "reverse", "expected"),
    [
        ((), (), r"no port given; for example forward\(8888\) or forward\(reverse=9000\)"),
        ((0,), (), "invalid port '0'"),
        ((), "0", "reverse: invalid port '0'"),
        ((), [9000, "9000:1"], "reverse: a port is given twice in 9000, 9000:1"),
    ],
)
def test_wrong_ports_are_refused_before_a_cluster_is_asked(alone, ports, reverse, expected):
    with pytest.raises(ConfigError, match=expected):
        Job("never-submitted").forward(*ports, reverse=reverse)
