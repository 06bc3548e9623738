"""Which engine has the unfinished jobs of a cluster: another one would not find their tasks."""

from __future__ import annotations

from openpai_tasks.errors import ConfigError
from openpai_tasks.plain_text import counted
from openpai_tasks.protocol import states
from openpai_tasks.server.engines.base import TaskExit
from openpai_tasks.server.scheduling.progress import Progress
from openpai_tasks.server.state.state import STOP, State

_UNFINISHED = "SELECT key, attempt FROM jobs WHERE state NOT IN ('SUCCEEDED', 'FAILED', 'STOPPED')"


def take_over(state: State, engine: str, give_up: bool) -> None:
    """Record the engine of all jobs from now on; raise if another one has unfinished jobs.

    With ``give_up``, unfinished jobs are recorded as stopped instead.
    """
    database = state.database
    row = database.row("SELECT name FROM engine")
    before = row["name"] if row else engine
    if before != engine or give_up:
        unfinished = database.rows(_UNFINISHED)
        if unfinished and not give_up:
            raise ConfigError(
                f"the engine {before} has {counted(len(unfinished), 'unfinished job')} here: "
                f"`pai cluster.start --engine {before}` continues, `pai cluster.stop` stops the jobs"
            )
        for job in unfinished:
            _give_up(state, job["key"], job["attempt"], before)
    if row is None or before != engine:
        with database.transaction():
            database.write("DELETE FROM engine")
            database.write("INSERT INTO engine VALUES (?)", [engine])


def _give_up(state: State, key: str, attempt: int, engine: str) -> None:
    """Record a job as stopped; its tasks may still run wherever the engine has started them."""
    reason = f"was given up, as the engine {engine} could not be used"
    progress = Progress(state)
    with state.database.transaction():
        state.add_event(key, "Warning", "GivenUp", f"the job {reason}")
        state.set_execution(key, STOP)
        progress.settle(key)
        for task in state.tasks(key, attempt):
            if task.state not in states.FINAL:
                progress.finish(task, TaskExit(None, reason, stopped=True))
