"""Files in the folder of a task, which its job can change, and the output of programs on its machine."""

from __future__ import annotations

import contextlib
import io
import json
import sqlite3
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from openpai_tasks.server.engines import gpus, machine, task_state
from openpai_tasks.server.engines.base import TaskExit
from openpai_tasks.server.engines.container_supervisor import ContainerFailed, Supervisor
from openpai_tasks.server.engines.containers import ContainerNotes, read_outcome
from openpai_tasks.server.engines.runner import memory, usage
from openpai_tasks.server.scheduling import idle, task_end
from openpai_tasks.server.state import schema
from openpai_tasks.server.state.records import Task
from tests.fuzz.scratch import empty_folder
from tests.fuzz.target import Target

TASK = Task(
    "uid", "me~job", 0, "worker", 0, 0, "RUNNING", "RUNNING", 1, "10.0.0.1", Path("/nonexistent"), gpu=1
)
_DATABASE = sqlite3.connect(":memory:")


def _keep(end: TaskExit | None) -> object:
    """Keep the end of a task, as the server does; return what is shown of it."""
    if end is None:
        return None
    row = schema.task_row(task_end.with_exit(TASK, end, job_is_stopped=False))
    return _DATABASE.execute(f"SELECT {', '.join(f':{name}' for name in row)}", row).fetchone()


def _folder(**files: bytes) -> Path:
    folder = empty_folder("task")
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def _runner_files(data: bytes) -> object:
    """Read the files ``started``, ``exit``, ``memory`` and ``runner.log``, separated by empty lines."""
    names = ("started", "exit", "memory", "runner.log")
    contents = [*data.split(b"\n\n", 3), b"", b"", b""]
    folder = _folder(**dict(zip(names, contents, strict=False)))
    begun = task_state.read_started(folder)
    assert begun.pid >= 0 and (begun.group is None or begun.group > 0), begun  # kill() takes -1 for all
    with contextlib.suppress(ValueError):  # as the engine does
        memory.group_of(str(folder))
    note = TaskExit(None, task_state.last_line(folder / "runner.log"), 1)
    return _keep(task_state.read_exit(folder)), _keep(note)


def _outcome(data: bytes) -> object:
    """Read the outcome of a container, and the notes that it wrote, after an empty line."""
    outcome, _, notes = data.partition(b"\n\n")
    folder = _folder(outcome=outcome, notes=notes)
    found = ContainerNotes().read_new(cast(Any, SimpleNamespace(folder=folder, uid="1")))
    return found, _keep(read_outcome(folder, TaskExit(1, "its supervisor ended")))


class _Program(Supervisor):
    """The supervisor of a container whose program gives these answers."""

    def __init__(self, folder: Path, answer: str) -> None:
        self.folder, self._answer = str(folder), answer
        self.plan = cast(Any, SimpleNamespace(name="c", memory_mb=1, patience=-1, call_limit=1, removal=()))
        self.signals = cast(Any, SimpleNamespace(term=False))
        self.is_removed = False

    def call(self, *arguments: str, **options: Any) -> tuple[int, str]:
        return 0, self._answer

    def watch(self, *arguments: str) -> int:
        return 1


def _inspect(data: bytes) -> object:
    """Read the state of a container; its notes are after an empty line."""
    answer, _, notes = data.partition(b"\n\n")
    folder = _folder(notes=notes)
    (folder / "logs").mkdir()
    (folder / "logs" / "stderr").write_bytes(notes)
    supervisor = _Program(folder, answer.decode("utf-8", "replace"))
    try:
        if b'"Running": true' in answer:  # it would be waited for
            return supervisor.inspect()
        outcome = supervisor.run_container()
    except ContainerFailed as err:  # as the supervisor does
        outcome = {"code": None, "platform": err.code, "reason": str(err)}
    (folder / "outcome").write_text(json.dumps(outcome | supervisor.usage()))
    return _keep(read_outcome(folder, TaskExit(1)))


def _usage(data: bytes) -> object:
    """Read the samples of a task."""
    rows = usage.parse_rows(data.decode("ascii", "replace"))
    usage.parse_note(data.decode("ascii", "replace"))
    again = usage.parse_rows("".join(f"{row}\n" for row in usage.thin_out(rows, 3)))
    engine = cast(Any, SimpleNamespace(records_usage=True, open_log=lambda *_: io.BytesIO(data)))
    percent = task_end.read_gpu_percent(engine, TASK)
    assert percent is None or 0 <= percent <= 100, percent
    span = idle.read_span(io.BytesIO(data))
    _DATABASE.execute("SELECT ?", [span.since if span else 0])
    return idle.merge_spans([span, span]), again


def _nvidia(data: bytes) -> object:
    """Read lists of nvidia-smi: GPUs, processes and memory, separated by empty lines."""
    gpu_list, apps, used = [*data.decode("utf-8", "replace").split("\n\n"), "", ""][:3]
    found = machine.visible_gpus(machine.parse_gpus(gpu_list), "0,GPU-a")
    return found, gpus.gpu_users(apps, used), usage.average_gpus(data.split(b"\n"))


RUNNER = (
    b"4242 123456 boot-id\n4243\n\ncode 1\nlost 0\nstopped 0\nended 1700000000000\nkills 1\nlimit 1048576\n"
    b"reached 1048577\npeak 1048577\ncpu 1500\n\n1048576\n/sys/fs/cgroup/a\n\nlast words\n"
)
OUTCOME = (
    b'{"code": 137, "platform": -210, "reason": "it used too much", "peak": 1048576, "cpu": 1500}\n\n'
    b"Normal Pulling pulling the image\nUsage memory.peak 1048576\n"
)
STATE = {
    "Status": "exited",
    "Running": False,
    "ExitCode": 1,
    "OOMKilled": True,
    "Error": "",
    "StartedAt": "2026-01-02T10:00:00Z",
}
INSPECTED = json.dumps(STATE).encode() + b"\n\nWarning OutOfMemory memory\nUsage memory.peak 1048576\n"
USAGE = b"""1700000000000 5.000 cpu=0.5:1 memory=1048576:2097152 gpu0=50:90 gpu0.mb=100:200
1700000005000 5.000 cpu=0.1:1 memory=1:2 gpu0=0:0 gpu1=1:2
# a note
"""
GPUS = (
    b"0, GPU-a, NVIDIA A100, 40960\n1, GPU-b, NVIDIA A100, [N/A]\n\nGPU-a, 1\n\nGPU-a, 2000, Disabled\n"
    b"0, 90, 2000\n"
)

TARGETS = (
    Target("runner-files", _runner_files, (RUNNER,)),
    Target("container-outcome", _outcome, (OUTCOME,)),
    Target("container-inspect", _inspect, (INSPECTED,)),
    Target("usage-rows", _usage, (USAGE,)),
    Target("nvidia-smi", _nvidia, (GPUS,)),
)
