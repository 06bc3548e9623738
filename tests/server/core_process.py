"""A cluster core in a separate process, which loads nothing that a server does not need."""

from __future__ import annotations

import signal
from pathlib import Path

from openpai_tasks.server.engines.machine import Machine
from openpai_tasks.server.engines.process import ProcessEngine
from openpai_tasks.server.scheduling.scheduler import Scheduler
from openpai_tasks.server.state.database import Database
from openpai_tasks.server.state.state import SCHEMA, State


def run(path: str, cpus: int) -> None:
    """Run it until the process is killed."""
    folder, here = Path(path), Machine("here", cpus, 1000, (), Machine.detect().boot)
    state = State(Database(folder / "cluster.db", SCHEMA), folder / "jobs")
    engine = ProcessEngine(folder / "jobs", here)
    Scheduler(state, engine, {"default": here.resources}, False).start()
    print("up", flush=True)
    signal.pause()
