"""Kill and pause Slurm's daemons, change jobs and nodes behind our back, and make its programs fail."""

from __future__ import annotations

import random
import signal
import time
from contextlib import suppress
from pathlib import Path
from subprocess import TimeoutExpired

from tests.endurance.faults.waiting import wait_for
from tests.endurance.plan import Fault, Options
from tests.endurance.sites.slurm import WRAPPED, Slurm
from tests.endurance.world import World, send_signal

DAEMONS = ("slurmctld", "slurmctld", "slurmd-node1", "slurmd-node2")
NO_ANSWER = (AssertionError, TimeoutExpired)


class _OfSlurm(Fault):
    def fits(self, world: World) -> bool:
        return isinstance(world.site, Slurm)


class KillDaemon(_OfSlurm):
    kind, weight = "kill Slurm's daemon", 4

    def plan(self, chance: random.Random) -> Options:
        return {"daemon": chance.choice(DAEMONS), "seconds": round(chance.uniform(0, 5), 2)}

    def inject(self, world: World, options: Options) -> str | None:
        site = _site(world)
        site.has_lost_state |= options["daemon"] == "slurmctld"
        send_signal(_pid(site.daemons()[options["daemon"]]), signal.SIGKILL)
        time.sleep(options["seconds"])
        site.restart(options["daemon"])
        return str(options["daemon"])


class PauseDaemon(KillDaemon):
    kind, weight = "pause Slurm's daemon", 3

    def inject(self, world: World, options: Options) -> str | None:
        pid = _pid(_site(world).daemons()[options["daemon"]])
        send_signal(pid, signal.SIGSTOP)
        time.sleep(options["seconds"] * 3)
        send_signal(pid, signal.SIGCONT)
        return str(options["daemon"])


class KillStep(_OfSlurm):
    """Kill what supervises a job on its node."""

    kind = "kill slurmstepd"

    def plan(self, chance: random.Random) -> Options:
        return {"chosen": chance.random()}

    def inject(self, world: World, options: Options) -> str | None:
        site = _site(world)
        steps = wait_for(lambda: sorted(site.steps().items()))
        if not steps:
            return None
        pid, title = steps[int(options["chosen"] * len(steps))]
        with suppress(*NO_ANSWER):
            site.hurt(world, title.partition("[")[2].partition(".")[0])
            send_signal(pid, signal.SIGKILL)
            return str(pid)
        return None

    def repair(self, world: World) -> None:
        """Let the nodes register: until then, Slurm does not notice."""
        with suppress(*NO_ANSWER):
            _site(world).cluster.run("scontrol", "reconfigure")


class KillTask(KillStep):
    """Kill our runner on the node."""

    kind, weight = "kill runner on node", 2

    def inject(self, world: World, options: Options) -> str | None:
        found = wait_for(lambda: sorted(world.pids("start_slurm_task.py")))
        if not found:
            return None
        pid = found[int(options["chosen"] * len(found))]
        with suppress(OSError, *NO_ANSWER):
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            (id,) = (one for one in variables if one.startswith(b"SLURM_JOB_ID="))
            _site(world).hurt(world, id.partition(b"=")[2].decode())
            send_signal(pid, signal.SIGKILL)
            return str(pid)
        return None


class CancelJob(KillStep):
    kind, weight = "scancel", 2
    commands: tuple[tuple[str, ...], ...] = (("scancel", "{id}"),)

    def inject(self, world: World, options: Options) -> str | None:
        site = _site(world)
        with suppress(*NO_ANSWER):
            found = wait_for(site.active)
            if not found:
                return None
            id = found[int(options["chosen"] * len(found))]
            site.hurt(world, id)
            for words in self.commands:
                site.cluster.run(*(word.format(id=id) for word in words))
            return id
        return None


class RequeueJob(CancelJob):
    kind, weight = "scontrol requeue", 2
    commands = (("scontrol", "update", "jobid={id}", "requeue=1"), ("scontrol", "requeue", "{id}"))


class DrainNode(_OfSlurm):
    kind = "drain node"

    def plan(self, chance: random.Random) -> Options:
        return {"node": chance.choice(("node1", "node2")), "seconds": round(chance.uniform(0.5, 4), 2)}

    def inject(self, world: World, options: Options) -> str | None:
        site, node = _site(world), f"nodename={options['node']}"
        try:
            with suppress(*NO_ANSWER):
                site.cluster.run("scontrol", "update", node, "state=drain", "reason=endurance")
            time.sleep(options["seconds"])
        finally:
            self.repair(world)
        return str(options["node"])

    def repair(self, world: World) -> None:
        for number in (1, 2):
            with suppress(*NO_ANSWER):  # a node that is not drained cannot be resumed
                _site(world).cluster.run("scontrol", "update", f"nodename=node{number}", "state=resume")


class BreakProgram(_OfSlurm):
    """Make a program of Slurm fail, hang, or lose the answer after its work, while other faults happen."""

    kind, weight = "break Slurm's program", 5

    def plan(self, chance: random.Random) -> Options:
        mode = chance.choice(("error", "hang", "lost"))
        program, seconds = chance.choice((*WRAPPED, "sbatch")), round(chance.uniform(0.5, 4), 2)
        return {"program": program, "mode": mode, "seconds": seconds}

    def inject(self, world: World, options: Options) -> str | None:
        switch = world.folder / "bin" / f"{options['program']}.mode"
        until = int(time.time() + options["seconds"]) + 1
        switch.write_text(f"{options['mode']} {options['seconds']} {until}\n")
        return f"{options['program']} {options['mode']}"


def _site(world: World) -> Slurm:
    assert isinstance(world.site, Slurm)
    return world.site


def _pid(path: Path) -> int:
    return int(path.read_text())
