"""Taking a job away: only one that is over, and then everything that is known of it."""

from __future__ import annotations

import shutil

from openpai_tasks.protocol import states
from openpai_tasks.server.state.folders import folder_name
from openpai_tasks.server.state.state import State

TABLES = ("tags", "events", "tasks", "attempts")


def remove(state: State, key: str) -> bool:
    """Forget the job and delete its files; False, and nothing is done, while it is not over."""
    with state.database.transaction():
        job = state.job(key)
        if job is None or job.state not in states.FINAL:
            return job is None
        for table in TABLES:
            state.database.write(f"DELETE FROM {table} WHERE job = ?", [key])
        state.database.write("DELETE FROM jobs WHERE key = ?", [key])
        state.forget_document(key)
        # A job of the same name may come next, and would take these files for its own.
        shutil.rmtree(state.folder / folder_name(key), ignore_errors=True)
    return True
