"""The server's housekeeping: its log is rotated, and old jobs disappear by themselves."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from openpai_tasks.server import retention
from openpai_tasks.server.state.database import Database
from openpai_tasks.server.state.removal import JobRemoval
from openpai_tasks.server.state.state import SCHEMA, State
from openpai_tasks.settings.keeping import KeepLimits
from tests.server.state.test_removal import finish

WRITER = """
import sys
from pathlib import Path
from openpai_tasks.server.retention import rotate_log
print("x" * 2000, file=sys.stderr, flush=True)
rotated = [rotate_log(Path(sys.argv[1]), 1000)]
print("after", file=sys.stderr, flush=True)
rotated.append(rotate_log(Path(sys.argv[1]), 1000))
print(rotated, flush=True)
"""


def test_a_large_log_is_rotated_and_nothing_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    with path.open("ab") as log:
        subprocess.run([sys.executable, "-c", WRITER, str(tmp_path)], stdout=log, stderr=log, check=True)
    assert (tmp_path / "server.log.1").read_text() == "x" * 2000 + "\n"
    assert path.read_text() == "after\n[True, False]\n"
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_log_that_this_process_does_not_write_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text("x" * 2000)
    assert not retention.rotate_log(tmp_path, 1000)
    assert not retention.rotate_log(tmp_path / "nowhere", 1000)


def test_the_housekeeper_removes_old_jobs_and_ends_when_it_is_closed(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(retention, "FIRST_AFTER", 0.0)
    state = State(Database(tmp_path / "cluster.db", SCHEMA), tmp_path / "jobs")
    key = finish(state, "old", 100)
    keeper = retention.Housekeeper(JobRemoval(state), KeepLimits(seconds=1), tmp_path)
    keeper.start()
    limit = time.monotonic() + 60
    while state.job(key) and time.monotonic() < limit:
        time.sleep(0.01)
    keeper.close()
    assert state.job(key) is None
