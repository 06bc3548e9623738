"""Record the session for the README: `inv docs.recording`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.recording.session import record
from tests.recording.svg import render, render_still

TITLE = "A session on a terminal: submit a job and follow its output, list the jobs, plot a metric"

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        frames = record(Path(folder))
    file = Path(sys.argv[1])
    file.write_text(render(frames, TITLE), encoding="utf-8")
    file.with_stem(f"{file.stem}-still").write_text(render_still(frames[-1], TITLE), encoding="utf-8")
