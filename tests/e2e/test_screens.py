"""What a user sees on terminals of 40, 80 and 120 columns, compared with the texts in tests/data/screens.

``WRITE_SCREENS=1 pytest tests/e2e/test_screens.py`` writes them again.
"""

from __future__ import annotations

import os
import re
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Shell
from tests.terminals import columns_of, on_terminal

FOLDER = Path(__file__).parent.parent / "data" / "screens"
WIDTHS = (40, 80, 120)
WIDE = 1000
SMALL = ("--cpu", "1", "--mem", "64")
BOOM = "def divide(number):\n    return number / 0\n\n\nprint('begin')\ndivide(1)\n"
RESULT = """python3 -c "import json; print(json.dumps({'acc': 1 - $lr / 3, 'loss': 0.25}))" """
SCREENS = {
    "help": ("--help",),
    "list": ("--list",),
    "help-sweeps": ("help", "sweeps"),
    "job.sub-help": ("job.sub", "--help"),
    "job.list": ("job.list",),
    "job.status": ("job.status", "boom"),
    "job.status-sweep": ("job.status", "tune"),
    "job.why": ("job.why", "boom"),
    "job.results": ("job.results", "tune", "--sort", "acc"),
    "preview": (
        *("job.sub", "python3 boom.py --epochs 10", "-j", "planned", "--sources", "boom.py", "--gpu", "64"),
        *("--env", "MODE=fast", "--secret", "API_KEY", "--max-time", "2h", "--preview"),
    ),
    "cluster.resources": ("cluster.resources",),
    "storage.ls": ("storage.ls", "pai://local/home/data"),
    "error": ("job.logs", "boom", "--role", "worker", "--index", "3"),
    "usage-error": ("job.delete", "boom"),
}

SAME_VALUES = (
    "UPDATE jobs SET submitted = :ago + queued * 1000, launched = :ago + 5000, completed = :ago + 97000",
    "UPDATE attempts SET created = :ago, launched = :ago + 5000, completed = :ago + 97000",
    "UPDATE tasks SET created = :ago, launched = :ago + 5000, completed = :ago + 97000, cpu_seconds = 61.5,"
    """ peak_memory_mb = 1200, ports = '{"ssh": [31041], "http": [28858]}'""",
    "DELETE FROM events WHERE reason NOT IN ('Started', 'TaskFailed', 'Completed')",  # the machine's own
    "UPDATE events SET last = :ago + 1000 * instr('Started TaskFailed Completed', reason)",
)
"""Statements that make the jobs the same on every machine: three days old, of the same length and use."""


@pytest.fixture(scope="module")
def user(cluster: Shell) -> Shell:
    """A user with a failed job and a sweep."""
    (cluster.project / "boom.py").write_text(BOOM)
    assert cluster.inv("job.sub", "python3 boom.py", "-j", "boom", "--sources", "boom.py", *SMALL, "-f").code
    cluster.ok("job.sub", RESULT, "-j", "tune", "--sweep", "lr=0.1,0.02,0.003", *SMALL)
    for name, size in (("train.csv", 1 << 20), ("notes", 12)):
        (cluster.project / name).write_bytes(b"x" * size)
        cluster.ok("storage.copy", name, f"pai://local/home/data/{name}")
    with closing(sqlite3.connect(cluster.home / "local" / "cluster.db", timeout=60)) as database, database:
        for line in SAME_VALUES:
            database.execute(line, {"ago": int(time.time() * 1000) - 84 * 3_600_000})
    return cluster


@pytest.mark.parametrize("name", SCREENS)
def test_a_screen_fits_and_is_as_before(user: Shell, name: str) -> None:
    words = {word.strip("():") for word in shown(user, name, WIDE).split()}
    for columns in WIDTHS:
        text = shown(user, name, columns)
        for line in text.splitlines():
            assert columns_of(line) <= columns or is_whole(line, columns), (columns, line)
        cut = {word.strip("():") for word in text.split()} - words - {"…"}
        assert not cut, (columns, cut)
        path = FOLDER / f"{name}-{columns}.txt"
        if os.environ.get("WRITE_SCREENS"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        assert text == path.read_text(), f"{path.name}: WRITE_SCREENS=1 accepts the new screen"


def is_whole(line: str, columns: int) -> bool:
    """Return whether a line is not prose: a command to paste, quoted output, or a word that is too long."""
    return line.startswith(("  pai ", "  | ")) or any(
        columns_of(word) > columns - 12 for word in line.split()
    )


def shown(user: Shell, name: str, columns: int) -> str:
    """Run the command of a screen, and return its text without what differs each time."""
    environment: dict[str, Any] = {
        **user.environment,
        "NO_COLOR": "1",
        "COLUMNS": "",
        "TZ": "UTC",
        "API_KEY": "hidden",
    }
    _, text = on_terminal(["pai", *SCREENS[name]], columns, cwd=user.project, **environment)
    assert "\x1b" not in text and "hidden" not in text
    text = "\n".join(line.rstrip() for line in text.replace("\r\n", "\n").split("\n"))
    text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:80", text)
    text = re.sub(r'"/[^"]*/(?=boom.py")', '"', text)
    text = re.sub(r"\n  \|  +[~^]+(?=\n)", "", text)  # newer versions of Python underline
    text = re.sub(r"packed: [\d.]+", "packed: 15.6", text)
    text = re.sub(r"has \d+ GPUs?;", "has 0 GPUs;", text)
    text = re.sub(
        r"\d{4}-\d\d-\d\d( \d\d:\d\d:\d\d)?", lambda found: "2026-01-31 12:00:00"[: len(found[0])], text
    )
    return re.sub(r" *\d+/\d+$|(?<=  ) *\d+/\d+", lambda found: "0/0".rjust(len(found[0])), text)
