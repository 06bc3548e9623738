"""Faults of the servers of storages, and of the connections to them."""

from __future__ import annotations

import random

from tests.endurance.faults import network
from tests.endurance.plan import Fault, Options
from tests.endurance.sites.stores import Stores
from tests.endurance.store_servers import SERVERS, pause
from tests.endurance.world import World

PARTS = [(name, part) for name, server in SERVERS.items() for part in server.parts]
DURABLE = [(name, part) for name, part in PARTS if SERVERS[name].is_durable]
LINKED = [name for name in SERVERS if name not in ("hdfs", "pfs")]  # PFS has the faults of the network


class _OfStore(Fault):
    def fits(self, world: World) -> bool:
        return isinstance(world.site, Stores)


class KillStore(_OfStore):
    kind, weight = "kill store", 4

    def plan(self, chance: random.Random) -> Options:
        store, part = chance.choice(DURABLE)
        return {"store": store, "part": part}

    def inject(self, world: World, options: Options) -> str | None:
        SERVERS[options["store"]].kill(options["part"])
        return f"{options['store']} {options['part']}"


class PauseStore(_OfStore):
    kind, weight = "pause store", 4

    def plan(self, chance: random.Random) -> Options:
        store, part = chance.choice(PARTS)
        return {"store": store, "part": part, "seconds": round(chance.uniform(0.2, 6), 2)}

    def inject(self, world: World, options: Options) -> str | None:
        pause(SERVERS[options["store"]].pids(options["part"]), options["seconds"])
        return f"{options['store']} {options['part']}"


class _OfLink(network.OfNetwork):
    """A fault of the network to one storage."""

    def fits(self, world: World) -> bool:
        return isinstance(world.site, Stores)

    def prepare(self, world: World) -> None:
        """Each has its network."""

    def plan(self, chance: random.Random) -> Options:
        return {**super().plan(chance), "store": chance.choice(LINKED)}

    def link(self, world: World, options: Options) -> network.Link:
        link = SERVERS[options["store"]].link
        assert link is not None
        return link

    def inject(self, world: World, options: Options) -> str:
        return f"{options['store']} {super().inject(world, options)}"

    def repair(self, world: World) -> None:
        for name in LINKED:
            self.link(world, {"store": name}).faults.clear()


class CutStore(_OfLink, network.Cut):
    kind = "cut store"


class SilentStore(_OfLink, network.HalfOpen):
    kind = "silent store"


class SlowStore(_OfLink, network.Slow):
    kind = "slow store"


class TruncatedStore(_OfLink, network.Truncated):
    kind = "truncated store"


class ResetStore(_OfLink, network.Resets):
    """Connections are reset when some bytes have passed one way."""

    kind, weight = "reset store", 6

    def plan(self, chance: random.Random) -> Options:
        return {**super().plan(chance), "at": chance.choice((0, 100, 70_000, 2_000_000, 6_000_000))}
