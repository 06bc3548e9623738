"""Jobs in containers of a real Docker or Podman, which one run starts once."""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tests import needs
from tests.endurance.sites.base import Site
from tests.endurance.unix_relay import UnixRelay
from tests.server.container_engines import (
    JUPYTER_PYTHON,
    NEEDED,
    Docker,
    Kit,
    engine_kit,
    jupyter_files,
    python_files,
)

if TYPE_CHECKING:
    from tests.endurance.world import World

IMAGE = "127.0.0.1:1/endure:1"  # a registry that refuses, so that a missing image is noticed at once
KEPT = "pai/endure:1"  # the same image, to restore the other name quickly
SECONDS = 60.0  # until what a container used must be gone, as containerd that was killed looks for it later


class Containers(Site):
    """An engine for containers; each history uses the same daemon, and must leave nothing on it."""

    has_journals_on_disk = True
    memory = 256
    python = JUPYTER_PYTHON
    attempt = "/jobs/$PAI_JOB_NAME/$FC_FRAMEWORK_ATTEMPT_ID/$FC_TASK_ATTEMPT_ID"

    def __init__(self) -> None:
        self._kits: list[Kit] = []
        self._own_mounts: set[str] = set()

    @property
    def kit(self) -> Kit:
        """The engine and its programs."""
        return self._kits[0]

    def missing(self) -> str:
        if os.geteuid():
            return "it needs root"
        return needs.missing(*NEEDED[self.kind])

    def start(self, world: World) -> None:
        if not self._kits:
            self._start_engine()
        world.environment |= {**self._client_environment(), "INVOKE_OPENPAI_IMAGE": IMAGE}

    def _start_engine(self) -> None:
        stack = ExitStack()
        atexit.register(stack.close)
        self._kits.append(stack.enter_context(engine_kit(self.kind)))
        self.kit.make_image(KEPT, {**python_files(), **jupyter_files()})
        self.add_image()
        self._own_mounts = self._mounts()

    def _client_environment(self) -> dict[str, str]:
        return self.kit.environment

    def add_image(self) -> None:
        """Restore the name of the image that jobs use."""
        self.kit.run("tag", KEPT, IMAGE)

    def journal(self, world: World, label: str) -> str:
        return f"/mnt/home/journal-{label}"

    def read_journals(self, world: World) -> dict[str, tuple[str, ...]]:
        found = (world.home / "local" / "storage" / "home").glob("*/journal-*")
        return {path.name.removeprefix("journal-"): tuple(path.read_text().splitlines()) for path in found}

    def daemons_and_tasks(self, world: World) -> Iterator[int]:
        return (pid for pid, _ in self._processes())

    def leftovers(self, world: World) -> Iterator[str]:
        deadline = time.monotonic() + SECONDS
        while (found := self._left()) and time.monotonic() < deadline:
            time.sleep(0.2)
        yield from found
        if containers := self.kit.containers():
            self.kit.run(*self.kit.dialect.removal, *containers)

    def _left(self) -> list[str]:
        """Return what is there beside the engine itself, as its own programs and the system see it."""
        containers = self.kit.run("ps", "--all", "--format", "{{.Names}} {{.Status}}").splitlines()
        volumes = self.kit.run("volume", "ls", "--quiet").split()
        processes = [f"{pid} {name}" for pid, name in self._processes()]
        rows = {"container": containers, "volume": volumes, "process": processes}
        rows["mount"] = sorted(self._mounts() - self._own_mounts)
        return [f"{kind} {one}" for kind, found in rows.items() for one in found]

    def _mounts(self) -> set[str]:
        places = (line.split()[1] for line in Path("/proc/mounts").read_text().splitlines())
        return {place for place in places if place.startswith(f"{self.kit.folder}/")} - self._later_mounts()

    def _later_mounts(self) -> set[str]:
        """Return what the engine itself mounts with its first container, and keeps."""
        return {f"{self.kit.folder}/exec/netns/default"}

    def _processes(self) -> Iterator[tuple[int, str]]:
        """Yield monitors of containers, processes within one, and programs of the engine."""
        given = {f"{name}={value}" for name, value in self._client_environment().items()}
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
                variables = set((folder / "environ").read_bytes().decode(errors="replace").split("\0"))
                mounts = (folder / "mountinfo").read_text().splitlines()
                root = next((line for line in mounts if line.split()[4] == "/"), "")
                is_monitor = is_monitor_of(words, self.kit)
                if is_monitor or given <= variables or str(self.kit.folder) in root:
                    yield int(folder.name), " ".join(words)[:200]


def is_monitor_of(words: list[str], kit: Kit) -> bool:
    """Whether a command line is that of a containerd-shim or conmon of this engine."""
    program = os.path.basename(words[0])
    return program.startswith(("containerd-shim", "conmon")) and any(str(kit.folder) in one for one in words)


class DockerSite(Containers):
    """Docker, whose clients reach it through a relay that can be slow and cut connections."""

    kind = "docker"
    relay: UnixRelay

    @property
    def docker(self) -> Docker:
        assert isinstance(self.kit, Docker)
        return self.kit

    def _start_engine(self) -> None:
        super()._start_engine()
        folder = self.kit.folder
        self.relay = UnixRelay(folder / "relay.sock", folder / "docker.sock")
        self.relay.start()

    def _client_environment(self) -> dict[str, str]:
        return {"DOCKER_HOST": f"unix://{self.relay.path}"}

    def daemons_and_tasks(self, world: World) -> Iterator[int]:
        yield self.docker.daemon.pid
        yield from super().daemons_and_tasks(world)

    def restart_daemons(self, world: World) -> None:
        self.docker.kill()  # waits for the end of its containerd
        self.docker.start()


class PodmanSite(Containers):
    kind = "podman"

    def restart_daemons(self, world: World) -> None:
        """Remove the file by whose absence podman notices that the machine was started again."""
        (self.kit.folder / "tmp" / "alive").unlink()
