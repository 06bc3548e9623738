"""What Slurm has said about its nodes and partitions not long ago."""

from __future__ import annotations

import contextlib
import time

from openpai_tasks.server.engines.base import EngineCapacity
from openpai_tasks.server.engines.slurm import partitions
from openpai_tasks.server.engines.slurm.partitions import SlurmNodes, SlurmPartition
from openpai_tasks.server.engines.slurm.programs import SlurmDown, SlurmRefusal

NODES_SECONDS = 10.0  # that an answer about the nodes is used


class SlurmSnapshot:
    def __init__(self) -> None:
        self.nodes = SlurmNodes((), {}, "")
        self._qualities: dict[str, tuple[str, ...]] | None = None  # by partition
        self._asked_at = float("-inf")
        self._ask()

    def capacity(self) -> EngineCapacity:
        if time.monotonic() - self._asked_at > NODES_SECONDS:
            with contextlib.suppress(SlurmDown, SlurmRefusal):
                self._ask()
        found = self.virtual_clusters()
        amounts = {name: partition.amount for name, partition in found.items()}
        skus = {name: partitions.skus(partition) for name, partition in found.items()}
        types = {name: partitions.gpu_types(partition) for name, partition in found.items()}
        return EngineCapacity(self.nodes.nodes, amounts, skus, types)

    def virtual_clusters(self) -> dict[str, SlurmPartition]:
        return dict(partitions.virtual_clusters(self.nodes, self._qualities or {}))

    def _ask(self) -> None:
        """Ask for the nodes, and once for the qualities of service, which rarely change."""
        try:
            self.nodes = partitions.nodes()
            if self._qualities is None:
                self._qualities = partitions.choices(self.nodes.partitions)
        finally:
            self._asked_at = time.monotonic()
