"""Files of jobs as the portal shows them, their checkpoints, and what the shell of a container prints."""

from __future__ import annotations

import contextlib
import io
import os
from typing import Any, cast

from openpai_tasks import runtime
from openpai_tasks.portal import previews
from openpai_tasks.sdk import tensorboard
from openpai_tasks.sdk.containers import keepalive, top
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.location import Location
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


def _event_files(data: bytes) -> object:
    """Collect the event files of TensorBoard in a job's output folder, which has files with these paths."""
    store = empty_folder("output")
    for name in data.split(b"\n")[:20]:
        parts = [os.fsdecode(part) for part in name.split(b"/") if part not in (b"", b".", b"..")]
        with contextlib.suppress(OSError, ValueError):  # what no file system allows
            store.joinpath(*parts[:-1]).mkdir(parents=True, exist_ok=True)
            store.joinpath(*parts).write_bytes(b"1")
    place = Location(LocalStore(str(store)), "/", "pai://lab/home/output")
    for in_place in (True, False):
        files = tensorboard.EventFiles("train", cast(Any, None), place, empty_folder("runs"), in_place)
        files.update()
        files.update()
    return files.is_empty


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
    Target(
        "event-files", _event_files, (b"tensorboard/a/tfevents.1\ntensorboard/b/tfevents.2\nc\ntfevents/x",)
    ),
    Target("container-usage", _top, (USAGE,)),
    Target("checkpoint", _checkpoint, (b'{"data": "00000001-0123abcd", "files": {"": [7, 449999704]}}',)),
)
