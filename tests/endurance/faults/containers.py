"""Faults of Docker and Podman: of their daemon, monitors, clients, images and containers."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tests.endurance.faults.processes import PROGRAMS
from tests.endurance.faults.waiting import wait_for
from tests.endurance.plan import Fault, Options
from tests.endurance.sites.containers import IMAGE, Containers, DockerSite, is_monitor_of
from tests.endurance.world import World, send_signal

FOLDER = '{{index .Config.Labels "openpai-tasks.folder"}}'


def site_of(world: World) -> Containers:
    assert isinstance(world.site, Containers)
    return world.site


def docker_of(world: World) -> DockerSite:
    assert isinstance(world.site, DockerSite)
    return world.site


def ask(world: World, *words: str) -> list[str]:
    """Return the lines of the engine's own program; none if it fails, as for a container that ended."""
    try:
        return site_of(world).kit.run(*words).splitlines()
    except (AssertionError, subprocess.TimeoutExpired):
        return []


def folders_of_running(world: World) -> set[str]:
    """Return the folders of the tasks whose containers run."""
    names = ask(world, "ps", "--format", "{{.Names}}")
    return set(ask(world, "inspect", "--format", FOLDER, *names)) if names else set()


def folders_of_runners(world: World) -> Iterator[str]:
    """Yield the folders of all tasks that have begun and not ended."""
    for pid in world.pids(PROGRAMS["runner"]):
        with suppress(OSError):
            yield f"{os.readlink(f'/proc/{pid}/cwd')}/"


class _Fault(Fault):
    """A fault on either engine; ``chosen`` selects one of several containers or processes."""

    def fits(self, world: World) -> bool:
        return isinstance(world.site, Containers)

    def plan(self, chance: random.Random) -> Options:
        return {"chosen": chance.random()}


class _OfContainer(_Fault):
    """A fault of one running container, which ends it."""

    def inject(self, world: World, options: Options) -> str | None:
        names = wait_for(lambda: ask(world, "ps", "--format", "{{.Names}}"))
        if not names:
            return None
        name = names[int(options["chosen"] * len(names))]
        self.note(world, name)
        self.hurt(world, name, options)
        return name

    def note(self, world: World, name: str) -> None:
        world.killed_tasks |= {f"{folder}/" for folder in ask(world, "inspect", "--format", FOLDER, name)}

    def hurt(self, world: World, name: str, options: Options) -> None:
        raise NotImplementedError


class RemoveContainer(_OfContainer):
    kind, weight = "remove container", 2

    def hurt(self, world: World, name: str, options: Options) -> None:
        ask(world, *site_of(world).kit.dialect.removal, name)


class KillFirstProcess(_OfContainer):
    kind, weight = "kill first process", 2

    def hurt(self, world: World, name: str, options: Options) -> None:
        for pid in ask(world, "inspect", "--format", "{{.State.Pid}}", name):
            if int(pid):
                send_signal(int(pid), signal.SIGKILL)


class PauseContainer(_OfContainer):
    kind, weight = "pause container", 2

    def plan(self, chance: random.Random) -> Options:
        return {**super().plan(chance), "seconds": round(chance.uniform(0.2, 4), 2)}

    def note(self, world: World, name: str) -> None:
        """A paused container loses nothing."""

    def hurt(self, world: World, name: str, options: Options) -> None:
        ask(world, "pause", name)
        time.sleep(options["seconds"])
        ask(world, "unpause", name)

    def repair(self, world: World) -> None:
        for name in ask(world, "ps", "--filter", "status=paused", "--format", "{{.Names}}"):
            ask(world, "unpause", name)


class KillMonitor(_Fault):
    """Kill the containerd-shim or conmon of a container."""

    kind, weight = "kill monitor", 2

    def inject(self, world: World, options: Options) -> str | None:
        monitors = wait_for(lambda: list(self._monitors(world)))
        if not monitors:
            return None
        pid, words = sorted(monitors)[int(options["chosen"] * len(monitors))]
        container = words[words.index("-id" if "-id" in words else "-c") + 1]
        world.killed_tasks |= {f"{one}/" for one in ask(world, "inspect", "--format", FOLDER, container)}
        send_signal(pid, signal.SIGKILL)
        return str(pid)

    @staticmethod
    def _monitors(world: World) -> Iterator[tuple[int, list[str]]]:
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
                if is_monitor_of(words, site_of(world).kit):
                    yield int(folder.name), words


class KillSupervisor(_Fault):
    kind, weight = "kill supervisor", 2

    def inject(self, world: World, options: Options) -> str | None:
        supervisors = wait_for(lambda: list(world.processes("container_supervisor.py")))
        if not supervisors:
            return None
        pid, line = sorted(supervisors)[int(options["chosen"] * len(supervisors))]
        world.killed_tasks.add(f"{line.split()[-1]}/")
        send_signal(pid, signal.SIGKILL)
        return str(pid)


class KillProgram(_Fault):
    """Kill a process of docker or podman that a supervisor or the server has started."""

    kind, weight = "kill container program", 2

    def inject(self, world: World, options: Options) -> str | None:
        programs = wait_for(lambda: list(self._programs(world)))
        if not programs:
            return None
        pid, place, words = sorted(programs)[int(options["chosen"] * len(programs))]
        is_attached = {"attach", "--attach"} & set(words)  # the container runs on, and so must the task
        (world.lossy_tasks if is_attached else world.killed_tasks).add(place)
        send_signal(pid, signal.SIGKILL)
        return " ".join(words[1:3])

    @staticmethod
    def _programs(world: World) -> Iterator[tuple[int, str, list[str]]]:
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                place, name = os.readlink(folder / "cwd"), (folder / "comm").read_text().strip()
                if name == world.site.kind and place.startswith(f"{world.folder}/"):
                    words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
                    yield int(folder.name), f"{place}/", words


class RemoveImage(_Fault):
    kind, weight = "remove image", 1

    def plan(self, chance: random.Random) -> Options:
        return {"seconds": round(chance.uniform(0.2, 3), 2)}

    def inject(self, world: World, options: Options) -> str | None:
        deadline = time.monotonic() + options["seconds"]
        ask(world, "rmi", "--force", IMAGE)
        while time.monotonic() < deadline:
            world.killed_tasks |= set(folders_of_runners(world))
            time.sleep(0.05)
        self.repair(world)
        world.killed_tasks |= set(folders_of_runners(world))
        return IMAGE

    def repair(self, world: World) -> None:
        site_of(world).add_image()


class _OfDocker(_Fault):
    def fits(self, world: World) -> bool:
        return isinstance(world.site, DockerSite)


def _hurt_starting(world: World, running: set[str]) -> None:
    """Expect less of tasks that are being started: they may fail, or have Docker's errors in their logs."""
    starting = set(folders_of_runners(world)) - running
    world.killed_tasks |= starting
    world.lossy_tasks |= starting


class KillDaemon(_OfDocker):
    """Kill dockerd with its containerd; after a restart without live-restore, it ends all containers."""

    kind, weight = "kill daemon", 2

    def plan(self, chance: random.Random) -> Options:
        return {"live": chance.random() < 0.7, "seconds": round(chance.uniform(0, 3), 2)}

    def inject(self, world: World, options: Options) -> str | None:
        running = {f"{one}/" for one in folders_of_running(world)}
        world.lossy_tasks |= running
        if not options["live"]:
            world.killed_tasks |= running
        docker_of(world).docker.kill()
        _hurt_starting(world, running)
        time.sleep(options["seconds"])
        docker_of(world).docker.start(live_restore=options["live"])
        return f"live-restore {options['live']}, {len(running)} running"


class CutSocket(_OfDocker):
    """Cut all connections to Docker's socket at once."""

    kind, weight = "cut docker socket", 2

    def inject(self, world: World, options: Options) -> str | None:
        running = {f"{one}/" for one in folders_of_running(world)}
        world.lossy_tasks |= running
        count = docker_of(world).relay.cut()
        _hurt_starting(world, running)
        return f"{count} connections" if count else None


class SlowSocket(_OfDocker):
    """Have Docker's socket answer slowly."""

    kind, weight = "slow docker socket", 2

    def plan(self, chance: random.Random) -> Options:
        return {"delay": round(chance.uniform(0.1, 1), 2), "seconds": round(chance.uniform(1, 5), 2)}

    def inject(self, world: World, options: Options) -> str | None:
        docker_of(world).relay.delay = options["delay"]
        time.sleep(options["seconds"])
        self.repair(world)
        return f"{options['delay']} s"

    def repair(self, world: World) -> None:
        docker_of(world).relay.delay = 0.0
