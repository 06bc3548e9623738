"""Record the session for the README: `inv docs.recording`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.recording.session import record
from tests.recording.svg import render

TITLE = "A session on a terminal: submit a job and follow its output, list the jobs, plot a metric"

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        picture = render(record(Path(folder)), TITLE)
    Path(sys.argv[1]).write_text(picture, encoding="utf-8")
