"""The nodes and partitions of Slurm as they were last seen, also by an earlier server."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from pathlib import Path

from openpai_tasks.server.engines.base import EngineCapacity
from openpai_tasks.server.engines.process import write_file
from openpai_tasks.server.engines.slurm import partitions
from openpai_tasks.server.engines.slurm.mirror import QueueMirror
from openpai_tasks.server.engines.slurm.partitions import SlurmPartition
from openpai_tasks.server.engines.slurm.programs import SlurmDown, SlurmRefusal

FRESH_SECONDS = 10.0  # that an answer is used
FIRST_SECONDS = 5.0  # that a new server waits for the first answer
AGAIN_SECONDS = 5.0  # before Slurm is asked again if it did not answer


class SlurmSnapshot:
    """Answers at once; Slurm is asked in a thread."""

    def __init__(self, path: Path, mirror: QueueMirror) -> None:
        """``path`` is a file for the last answer; without it, Slurm must answer now."""
        self._path, self._mirror = path, mirror
        saved = self._load_saved()
        self._text, self._qualities = saved or ("", {})  # the qualities of service by partition
        self.nodes = partitions.parse_nodes(self._text)
        self._summarize()
        self._knows_qualities = False
        self._asked_at = float("-inf")
        self._closing = threading.Event()
        if saved is None:  # perhaps a machine of another cluster, which will never answer
            self._learn(partitions.node_list())
        self._thread = self._ask()
        self._thread.join(FIRST_SECONDS)
        if self._asked_at < 0 and not mirror.trouble:
            mirror.note_down(SlurmDown(f"Slurm does not answer: no word for {FIRST_SECONDS:g} s"))

    def capacity(self) -> EngineCapacity:
        if time.monotonic() - self._asked_at > FRESH_SECONDS and not self._thread.is_alive():
            self._thread = self._ask()
        return self._capacity

    def virtual_clusters(self) -> dict[str, SlurmPartition]:
        return self._virtual_clusters

    def _summarize(self) -> None:
        """Compute what is asked for, once for each answer: a large cluster has thousands of nodes."""
        found = {
            "default": SlurmPartition(),  # if Slurm has no nodes
            **dict(partitions.virtual_clusters(self.nodes, self._qualities)),
        }
        amounts = {name: partition.amount for name, partition in found.items()}
        skus = {name: partitions.skus(partition) for name, partition in found.items()}
        types = {name: partitions.gpu_types(partition) for name, partition in found.items()}
        self._virtual_clusters = found
        self._capacity = EngineCapacity(self.nodes.nodes, amounts, skus, types)

    def close(self) -> None:
        self._closing.set()

    def _ask(self) -> threading.Thread:
        thread = threading.Thread(target=self._ask_until_answered, name="slurm-nodes", daemon=True)
        thread.start()
        return thread

    def _ask_until_answered(self) -> None:
        while not self._closing.is_set():
            try:
                self._learn(partitions.node_list())
                return
            except (SlurmDown, SlurmRefusal) as err:
                self._mirror.note_down(err)
                self._closing.wait(AGAIN_SECONDS)

    def _learn(self, text: str) -> None:
        """Keep the nodes, and ask once for the qualities of service, which rarely change."""
        found, before = partitions.parse_nodes(text), (self._text, self._qualities)
        if not self._knows_qualities:
            self._qualities = partitions.choices(found.partitions)
            self._knows_qualities = True
        self._mirror.note_up()
        self.nodes, self._text, self._asked_at = found, text, time.monotonic()
        self._summarize()
        if before != (self._text, self._qualities):
            with contextlib.suppress(OSError):
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                write_file(self._path, json.dumps([self._text, self._qualities]))

    def _load_saved(self) -> tuple[str, dict[str, tuple[str, ...]]] | None:
        try:
            text, qualities = json.loads(self._path.read_text(encoding="utf-8"))
            return str(text), {str(name): tuple(map(str, names)) for name, names in qualities.items()}
        except (OSError, ValueError, TypeError, AttributeError, RecursionError):
            return None
