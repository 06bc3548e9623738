"""Break the way to a machine with ssh: the tunnel, its session there, and the sshd."""

from __future__ import annotations

import random
import time

from tests.endurance.faults.processes import OfProcess, PauseProcess
from tests.endurance.plan import Fault, Options
from tests.endurance.sites.ssh import Ssh
from tests.endurance.world import World


def _site(world: World) -> Ssh:
    assert isinstance(world.site, Ssh)
    return world.site


class _OfSsh(Fault):
    def fits(self, world: World) -> bool:
        return isinstance(world.site, Ssh)


class _OfTunnel(_OfSsh, OfProcess):
    def targets(self, world: World) -> list[int]:
        return world.pids(" -f -N ")


class _OfSession(_OfSsh, OfProcess):
    """A fault of sshd's process for one connection."""

    def targets(self, world: World) -> list[int]:
        return _site(world).sessions()


class KillTunnel(_OfTunnel):
    kind, weight = "kill tunnel", 4


class PauseTunnel(_OfTunnel, PauseProcess):
    kind, weight = "pause tunnel", 3


class KillSession(_OfSession):
    kind, weight = "kill session", 3


class PauseSession(_OfSession, PauseProcess):
    kind, weight = "pause session", 2


class RestartSshd(_OfSsh):
    """Refuse all connections for some seconds."""

    kind, weight = "restart sshd", 2

    def plan(self, chance: random.Random) -> Options:
        return {"seconds": round(chance.uniform(0.2, 4), 2), "drop": chance.random() < 0.5}

    def inject(self, world: World, options: Options) -> str | None:
        site = _site(world)
        if options["drop"]:
            site.sshd.drop()
        site.sshd.stop()
        time.sleep(options["seconds"])
        site.start_sshd(world)
        return f"{options['seconds']} s"
