"""Cut, slow down and break the network between clients and the server, or sshd on its machine."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import time
from collections.abc import Callable

from tests.endurance.plan import Fault, Options
from tests.endurance.sites.ssh import Ssh
from tests.endurance.world import World
from tests.storage import relay

ALIAS = "far"
CUT, SILENT, SLOW, TRUNCATED = "cut", "silent", "slow", "truncated"


class Link(relay.Relay):
    """The network between clients and a server, which is looked up for each connection."""

    def __init__(self, find_server: Callable[[], str]) -> None:
        super().__init__("")
        self._find_server = find_server
        self.condition = ""
        self.options: Options = {}
        self._streams: set[socket.socket] = set()

    def _serve(self, client: socket.socket) -> None:
        if self.condition == CUT:
            return relay.reset(client)
        with contextlib.suppress(FileNotFoundError):
            self.server = self._find_server()
        self._streams.add(client)
        try:
            super()._serve(client)
        finally:
            relay.reset(client)
            self._streams.discard(client)

    def _send(self, target: socket.socket, piece: bytes, way: str, drips: bool) -> None:
        if self.condition == SILENT:
            self._closed.wait(relay.STALL)  # half open: this connection never answers, also later
        elif self.condition == SLOW:
            time.sleep(self.options["latency"] + len(piece) / self.options["bandwidth"])
        elif self.condition == TRUNCATED and way == relay.TO_CLIENT:
            target.sendall(piece[: len(piece) // 2])
            target.shutdown(socket.SHUT_WR)
            time.sleep(0.1)
            raise ConnectionAbortedError
        super()._send(target, piece, way, drips)

    def change(self, condition: str, options: Options) -> None:
        self.options, self.condition = options, condition
        if condition == CUT:
            for stream in list(self._streams):
                with contextlib.suppress(OSError):
                    stream.shutdown(socket.SHUT_RDWR)


def link_of(world: World) -> Link:
    """Return the world's network; if it has none, make it and let some clients use it."""
    if world in LINKS:
        return LINKS[world]
    site = world.site

    def find_server() -> str:
        if isinstance(site, Ssh):
            return f"127.0.0.1:{site.sshd.port}"
        about = json.loads((world.home / "local" / "server.json").read_text())
        return f"127.0.0.1:{about['port']}"

    link = LINKS[world] = world.cleanups.enter_context(Link(find_server))
    world.cleanups.callback(LINKS.pop, world)
    if isinstance(site, Ssh):
        site.use_port(world, link.address[1])
        return link
    world.pai("cluster.start")
    login = json.loads((world.home / "local" / "credentials.json").read_text())
    password = world.folder / "user" / "password"
    password.write_text(login["password"])
    words = ("--user", login["user"], "--password-file", str(password))
    added = world.pai("cluster.add", ALIAS, f"http://{link.host}", *words)
    assert added.returncode == 0, added.stderr
    far = {"INVOKE_OPENPAI_CLUSTER_ALIAS": ALIAS, "INVOKE_OPENPAI_HTTP_TIMEOUT": "5"}
    world.client_environments = [far, {}]
    return link


LINKS: dict[World, Link] = {}
"""The networks between clients of the cluster ``far`` and the embedded server, or sshd."""


class OfNetwork(Fault):
    """A condition of the network for some seconds."""

    condition = ""

    def prepare(self, world: World) -> None:
        link_of(world)

    def link(self, world: World, options: Options) -> Link:
        return link_of(world)

    def plan(self, chance: random.Random) -> Options:
        return {"seconds": round(chance.uniform(0.5, 5), 2)}

    def inject(self, world: World, options: Options) -> str:
        link = self.link(world, options)
        link.change(self.condition, options)
        time.sleep(options["seconds"])
        link.change("", {})
        return f"{options['seconds']} s"

    def repair(self, world: World) -> None:
        link_of(world).faults.clear()


class Cut(OfNetwork):
    """Connections are reset, and new ones refused."""

    kind, condition = "cut network", CUT


class HalfOpen(OfNetwork):
    """What is sent disappears, and these connections never answer."""

    kind, condition = "silent network", SILENT


class Slow(OfNetwork):
    kind, condition = "slow network", SLOW

    def plan(self, chance: random.Random) -> Options:
        latency, bandwidth = chance.choice((0.05, 0.3, 1.0)), chance.choice((2_000, 20_000, 1_000_000))
        return {**super().plan(chance), "latency": latency, "bandwidth": bandwidth}


class Truncated(OfNetwork):
    """Answers end in the middle, without a reset."""

    kind, condition = "truncated answers", TRUNCATED


class Resets(OfNetwork):
    """Connections are reset at some byte of a request or an answer, or in the middle of a file."""

    kind, weight = "reset connections", 2

    def plan(self, chance: random.Random) -> Options:
        return {
            **super().plan(chance),
            "way": chance.choice((relay.TO_SERVER, relay.TO_CLIENT)),
            "at": chance.choice((1, 20, 200, 700, 3000, 100_000, 2_000_000)),
            "times": chance.choice((1, 2, 5)),
        }

    def inject(self, world: World, options: Options) -> str:
        where = {name: options[name] for name in ("way", "at", "times")}
        self.link(world, options).faults.append(relay.Fault("cut", **where))
        return f"{options['times']} {options['way']} at byte {options['at']}"
