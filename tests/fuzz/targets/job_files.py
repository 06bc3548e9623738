"""Files of jobs as the portal shows them, their checkpoints, and what the shell of a container prints."""

from __future__ import annotations

import contextlib
import io

from openpai_tasks import runtime
from openpai_tasks.portal import previews
from openpai_tasks.sdk.containers import keepalive, top
from openpai_tasks.tasks.views import containers
from tests.fuzz.scratch import empty_folder
from tests.fuzz.target import Target
from tests.fuzz.targets.notebooks import NOTEBOOK


def _preview(data: bytes) -> object:
    """Show a file in the portal; its name is the first line."""
    name, _, content = data.partition(b"\n")
    shown = name.decode("utf-8", "replace")

    def read(limit: int) -> bytes:
        return content[:limit]

    found = previews.preview(shown, len(content), read)
    if found.kind in (previews.IMAGE, previews.FRAME):
        return previews.serve(shown, len(content), read).body
    previews.download(shown, len(content), [content])
    return found


def _top(data: bytes) -> object:
    """Read what a container prints about its usage, and how long it stays."""
    text = data.decode("utf-8", "replace")
    found = top.parse_usage(text, "worker-0")
    keepalive.parse_deadline(data)
    return keepalive.parse_stay(text), containers.usage_table([found])


def _checkpoint(data: bytes) -> object:
    """Look for the newest checkpoint of a job, with its manifest as it is."""
    folder = empty_folder("checkpoints")
    (folder / "00000001.json").write_bytes(data)
    (folder / "00000001-0123abcd").write_bytes(b"weights")
    with contextlib.redirect_stderr(io.StringIO()):  # it warns
        return runtime._newest(str(folder))


USAGE = b"""kind group
at 100.5
usec 1000000
at 101.0
usec 1500000
memory 1048576 max
cache 4096
quota 200000 100000
ticks_per_second 100
cores 8
total 16384000
available 8192000
gpu 0, 50, 1000, 40000
now 1700000000
deadline 1700003600
idle 1699999000
limit 3600
"""
TARGETS = (
    Target(
        "file-preview",
        _preview,
        (
            b"a.csv\na,b\n1,2\n",
            b"a.png\n\x89PNG\r\n\x1a\n",
            b"a.ipynb\n" + NOTEBOOK,
            b"log\n\xff\xfea\0",
            b"a.svg\n<svg/>",
        ),
    ),
    Target("container-usage", _top, (USAGE,)),
    Target("checkpoint", _checkpoint, (b'{"data": "00000001-0123abcd", "files": {"": [7, 449999704]}}',)),
)
