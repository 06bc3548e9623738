"""What a server that did not start has written to its log."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

from openpai_tasks.loopback import process


def test_the_last_line_of_a_log_is_the_error_without_its_prefix(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("error: of an earlier server\n")
    start = log.stat().st_size
    assert process.last_line(log, start) == "it printed nothing"
    log.write_text("error: of an earlier server\nstarting\nerror: no such engine\n\n")
    assert process.last_line(log, start) == "no such engine"


def test_a_log_that_cannot_be_written_is_the_reason_why_it_is_empty(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.touch()
    code = f"""
from openpai_tasks.loopback import process
from pathlib import Path
print(process.last_line(Path({str(log)!r})))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),  # as if the disk were full
    )
    assert done.stdout == "File too large\n", done
