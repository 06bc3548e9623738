"""Copy files to and from the server's storage over HTTP, through the faulty network."""

from __future__ import annotations

import random

from tests.endurance.operations.stores import Download, OfStore, Upload
from tests.endurance.plan import Options
from tests.endurance.store_servers import PFS
from tests.endurance.world import World


class _Far(OfStore):
    def fits(self, world: World) -> bool:
        return world.site.kind == "process"

    def plan(self, chance: random.Random, label: str, labels: list[str]) -> Options:
        return {**super().plan(chance, label, labels), "store": PFS.name}

    def prepare(self, world: World) -> None:
        PFS.enter(world)


class FarUpload(_Far, Upload):
    kind = "far upload"


class FarDownload(_Far, Download):
    kind = "far download"
