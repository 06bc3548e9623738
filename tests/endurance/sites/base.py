"""What an engine needs in a history."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.endurance.world import Record, World


class Site:
    """An engine, and the outside systems that it runs jobs on."""

    kind = ""
    alias = "local"
    """The cluster that the commands use."""
    most_faults = 6
    fault_pause = 1.2
    """Seconds between two faults, on average; more where jobs take longer."""
    limit = 180.0
    """Seconds for one command; a longer one hangs."""
    memory = 0
    """MB of a job that needs little; 0: the cluster's default."""
    update = ""
    """A change of each job's document, as for ``job.sub -u``."""
    has_runners = True
    """Whether each task has a process of ours on this machine."""
    separates_streams = True
    """Whether a job has a log for each of its streams."""
    has_journals_on_disk = False
    """Whether the commands of jobs write their journals to the server's disk."""
    python = sys.executable
    """A Python with Jupyter there."""

    attempt = "$PWD"
    """What a command writes to its journal to name its attempt; it expands to ``.../jobs/USER~NAME/...``."""

    def job_flags(self, more_memory: int = 0) -> tuple[str, ...]:
        """Return further flags of each job; one of Python needs more memory."""
        memory = ("--mem", str(self.memory + more_memory)) if self.memory else ()
        return (*memory, *(("-u", self.update) if self.update else ()))

    def missing(self) -> str:
        """Return why this machine cannot run it; empty if it can."""
        return ""

    def start(self, world: World) -> None:
        """Start what the engine needs, and set it in the world's environment."""

    def stop(self, world: World) -> None:
        """End what `start` has started."""

    def server_folder(self, world: World) -> Path:
        """Return the folder of the server, with its jobs, storage and log."""
        return world.home / "local"

    def stop_cluster(self, world: World) -> str:
        """Stop the server and its jobs as a user does; return what the command said."""
        return world.pai("cluster.stop").stderr

    def collect(self, world: World) -> Any:
        """Return what the outside systems say when all has ended, for `check`; the server still runs."""
        return None

    def check(self, record: Record) -> Iterator[str]:
        """Yield where what was collected differs from what the program said."""
        return iter(())

    def journal(self, world: World, label: str) -> str:
        """Return where the command of a job appends to its journal: a path in the job's own file system."""
        return str(world.folder / "journals" / label)

    def read_journals(self, world: World) -> dict[str, tuple[str, ...]]:
        """Return the lines of each journal by label."""
        folder = world.folder / "journals"
        return {path.name: tuple(path.read_text().splitlines()) for path in folder.iterdir()}

    def daemons_and_tasks(self, world: World) -> Iterator[int]:
        """Yield the processes of the engine on this machine, with those of tasks that it knows."""
        return iter(())

    def restart_daemons(self, world: World) -> None:
        """Start the engine again after all its processes were killed."""

    def administer(self, world: World) -> None:
        """Do what only an administrator can do, while the jobs of a history end."""

    def leftovers(self, world: World) -> Iterator[str]:
        """Yield what of this history is left outside its folder: containers, pods, jobs of a queue."""
        return iter(())
