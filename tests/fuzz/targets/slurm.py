"""Answers of Slurm's programs, and the files that its tasks leave in their folders."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from openpai_tasks.server.engines.slurm import batches, partitions, programs, reasons, task_files
from openpai_tasks.server.engines.slurm.snapshot import SlurmSnapshot
from tests.fuzz.scratch import empty_folder
from tests.fuzz.target import Target


class _Mirror:
    trouble = "not asked"

    def note_up(self) -> None: ...

    def note_down(self, err: Exception) -> None: ...


class _Snapshot(SlurmSnapshot):
    """Learns from an answer; Slurm is not asked."""

    def __init__(self, path: Path, answers: tuple[str, str, str]) -> None:
        self._path, self._mirror = path, cast(Any, _Mirror())
        nodes, shown, associations = answers
        self._text, self._knows_qualities = "", True
        known = partitions.parse_nodes(nodes)
        self._qualities = partitions.parse_choices(known.partitions, shown, associations)
        self._learn(nodes)


def _nodes(data: bytes) -> object:
    """Read the answers of sinfo, scontrol and sacctmgr, separated by empty lines; keep and load them."""
    nodes, shown, associations = [*data.decode("utf-8", "replace").split("\n\n"), "", ""][:3]
    path = empty_folder("slurm") / "nodes.json"
    found = _Snapshot(path, (nodes, shown, associations))
    assert found._load_saved() is not None or not path.exists(), "the answer that was kept cannot be read"
    return found.virtual_clusters()


def _saved(data: bytes) -> object:
    """Load the file with the last answer, as a new server does."""
    path = empty_folder("slurm") / "nodes.json"
    path.write_bytes(data)
    found = SlurmSnapshot.__new__(SlurmSnapshot)
    found._path = path
    text, found._qualities = found._load_saved() or ("", {})
    found.nodes = partitions.parse_nodes(text)
    found._summarize()
    return found._capacity


def _queue(data: bytes) -> object:
    rows = list(programs._rows(data.decode("utf-8", "replace")))
    return [reasons.why_waiting(row) for row in rows], batches.find_by_comment(rows)


def _task_files(data: bytes) -> object:
    """Read the files ``slurm``, ``slurm.batch`` and ``place``, separated by empty lines."""
    folder = empty_folder("task")
    contents = [*data.split(b"\n\n"), b"", b""]
    for name, content in zip((task_files.ID, task_files.BATCH, task_files.PLACE), contents, strict=False):
        (folder / name).write_bytes(content)
    task = cast(Any, SimpleNamespace(folder=folder))
    return task_files.slurm_id(task), task_files.is_step(task), task_files.place_of(task)


NODES = b"""n1|10.0.0.1|64|256000|gpu:a100:4(S:0-1)|idle|gpu*|1-00:00:00
n2|n2|32|128000|gpu:2,gpu:h100:1|mixed-|cpu|infinite
n3|n3|8+|64000|(null)|down*|cpu|4:00:00

PartitionName=gpu AllowQos=normal,high DenyQos=low
PartitionName=cpu AllowQos=ALL

|normal,high|normal
gpu|high+low|
"""
QUEUE = b"""7|PENDING|QOSMaxGRESPerUser|2026-01-02T10:00:00||openpai-tasks abc
8_3|RUNNING|None|N/A|n[1-2]|openpai-tasks def|x
9+1|PENDING|(Nodes required for job are DOWN, DRAINED)|N/A||
"""
SAVED = b'["n1|10.0.0.1|64|256000|gpu:a100:4|idle|gpu*|1-00:00:00", {"gpu": ["high"]}]'
FILES = b"17_3\n\nabc 17_3 step\n\n10.0.0.1\nssh=22,23 http=8080\n0 1\n"

TARGETS = (
    Target("slurm-nodes", _nodes, (NODES,)),
    Target("slurm-saved", _saved, (SAVED,)),
    Target("slurm-queue", _queue, (QUEUE,)),
    Target("slurm-task-files", _task_files, (FILES,)),
)
