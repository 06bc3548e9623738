"""Commands over a link of 150 ms, beside themselves near by with as many round trips as they need added.

They go through a relay that delays what passes by half of that each way, and new connections by a whole round
trip. The other peer is a script that sends so many requests in a row: a new process with one connection of
Python's ``http.client``.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from queue import SimpleQueue

import yaml

from benchmarks.jobs import EmbeddedServer, running
from benchmarks.side_by_side import OURS, Comparison, Turn
from benchmarks.startup import python

ROUND_TRIP = 0.15  # seconds
ROUNDS, GOAL = 7, 1.15
PIECE = 1 << 16
SCRIPT = """\
import http.client, sys
address, token, count = sys.argv[1:]
connection = http.client.HTTPConnection(address, timeout=60)
for _ in range(int(count)):
    headers = {"Authorization": "Bearer " + token}
    connection.request("GET", "/rest-server/api/v2/jobs?limit=1", headers=headers)
    answer = connection.getresponse()
    answer.read()
    assert answer.status == 200, answer.status
"""
STORAGE = (b'"type":"unknown"', b'"type":  "other"')
"""The type of storage that the embedded cluster lists, and another one, which real clusters mount."""


COMMANDS = (
    (["job.list"], 1),
    (["job.status", "one"], 1),
    (["job.sub", "true"], 2),
    (["job.logs", "one"], 2),
    (["job.why", "one"], 2),
    (["job.outputs", "one"], 1),
    (["job.metrics", "one"], 2),
)
"""With how many requests in a row they need; the cluster's storages are known."""


def comparisons(folder: Path, round_trip: float = ROUND_TRIP) -> Iterator[Comparison]:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(running(folder / "cluster"))
        there = {
            alias: stack.enter_context(relay(server.address, seconds))
            for alias, seconds in (("near", 0.0), ("far", round_trip))
        }
        commands = Commands(folder, server, there)
        commands.turn("near", "job.sub", "echo done; exit 1", "-j", "one")()
        with contextlib.suppress(subprocess.CalledProcessError):  # it ends as the job does
            commands.turn("near", "job.wait", "one")()
        for line, count in COMMANDS:
            near = commands.turn("near", *line)
            script = [sys.executable, "-c", SCRIPT, there["far"], server.token, str(count)]
            counted = f"{count} round trip{'s' if count > 1 else ''}"
            yield Comparison(
                f"{line[0]} from afar",
                {
                    OURS: commands.turn("far", *line),
                    f"near by + {counted}": delayed(near, round_trip * (1 + count)),  # one to connect
                    f"http.client, {counted}": python(script, folder),
                },
                {f"near by + {counted}": GOAL},
                rounds=ROUNDS,
            )


class Commands:
    """Commands of a user who knows clusters by the addresses of their relays."""

    def __init__(self, folder: Path, server: EmbeddedServer, addresses: Mapping[str, str]) -> None:
        self._folder, self._home = folder, folder / "home"
        self._home.mkdir()
        records = [
            {"cluster_alias": alias, "pai_uri": f"http://{address}", "user": server.user, "generation": "1.8"}
            for alias, address in addresses.items()
        ]
        (self._home / "clusters.yaml").write_text(yaml.safe_dump(records))
        storage = folder / "cluster" / "storage" / "home"
        mounts = ",".join(f"{alias}/home={storage}" for alias in addresses)
        self._variables = {
            "OPENPAI_HOME": str(self._home),
            "OPENPAI_TOKEN": server.token,
            "INVOKE_OPENPAI_STORAGE_MOUNTS": mounts,
        }

    def turn(self, alias: str, *line: str) -> Turn:
        command = [sys.executable, "-m", "openpai_tasks", *line, "-a", alias]
        return python(command, self._folder, **self._variables)


def delayed(turn: Turn, seconds: float) -> Turn:
    """Return a turn that takes this much longer."""

    def take() -> None:
        turn()
        time.sleep(seconds)

    return take


@contextlib.contextmanager
def relay(server: str, round_trip: float) -> Iterator[str]:
    """Yield the address of a relay to a server that is as far away as that."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_accept, args=(listener, server, round_trip), daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def _accept(listener: socket.socket, server: str, round_trip: float) -> None:
    host, _, port = server.rpartition(":")
    with contextlib.suppress(OSError):
        while True:
            client = listener.accept()[0]
            there = socket.create_connection((host, int(port)))
            opened = time.monotonic() + round_trip  # when a distant server would have accepted it
            for source, target in ((client, there), (there, client)):
                source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                pieces: SimpleQueue[tuple[float, bytes]] = SimpleQueue()
                for work in (
                    (_receive, source, pieces, opened, round_trip / 2),
                    (_send, target, pieces),
                ):
                    threading.Thread(target=work[0], args=work[1:], daemon=True).start()


def _receive(
    source: socket.socket, pieces: SimpleQueue[tuple[float, bytes]], opened: float, delay: float
) -> None:
    data = b"-"
    while data:
        try:
            data = source.recv(PIECE)
        except OSError:
            data = b""
        pieces.put((max(opened, time.monotonic()) + delay, data.replace(*STORAGE)))


def _send(target: socket.socket, pieces: SimpleQueue[tuple[float, bytes]]) -> None:
    with contextlib.suppress(OSError):
        while True:
            due, data = pieces.get()
            time.sleep(max(0.0, due - time.monotonic()))
            if not data:
                return target.shutdown(socket.SHUT_WR)
            target.sendall(data)
