"""Copy folders to the cluster's storage."""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.endurance.plan import Operation, Options, Step
from tests.endurance.world import PAI, Record, World

UNCLAIMED = re.compile(r"\.pai-part-[0-9a-f]{16}$")
Tree = dict[str, str]
"""The checksum of each file by its path."""


class Copy(Operation):
    kind, weight = "copy", 3

    def plan(self, chance: random.Random, label: str, labels: list[str]) -> Options:
        return {"tree": f"tree-{label}", "seed": chance.randrange(1000)}

    def command(self, world: World, options: Options) -> list[str]:
        source = world.folder / "trees" / options["tree"]
        make_tree(source, options["seed"])
        return [PAI, "storage.copy", str(source), f"pai://{world.site.alias}/home/{options['tree']}"]

    def collect(self, world: World, steps: Sequence[Step]) -> dict[str, tuple[Tree, Tree]]:
        """Copy each folder once more, undisturbed, and compare it with what the storage has then."""
        return {step.options["tree"]: self._copy_again(world, step.options["tree"]) for step in steps}

    @staticmethod
    def _copy_again(world: World, name: str) -> tuple[Tree, Tree]:
        source = world.folder / "trees" / name
        world.pai("storage.copy", str(source), f"pai://{world.site.alias}/home/{name}")
        (user,) = (world.site.server_folder(world) / "storage" / "home").iterdir()
        return read_tree(source), read_tree(user / name)

    def check(self, record: Record) -> Iterator[str]:
        for name, (source, target) in record.collected(self.kind).items():
            if source != (target := without_kept(record, target)):
                differing = sorted(set(source.items()) ^ set(target.items()))[:5]
                yield f"copy {name}: the target differs: {differing}"


def without_kept(record: Record, tree: Tree) -> Tree:
    """Leave out parts of copies that could not record that they ran: these are kept for a day."""
    if not any("disk" in step.kind for step in record.plan.faults):
        return tree
    return {name: digest for name, digest in tree.items() if not UNCLAIMED.search(name)}


def make_tree(folder: Path, seed: int) -> None:
    """Write a folder of small files and one of a few megabytes."""
    chance = random.Random(seed)
    for number in range(chance.randrange(1, 40)):
        path = folder / chance.choice(("", "a", "a/b", "c")) / f"{number}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(chance.randbytes(chance.randrange(3000)))
    (folder / "large.bin").write_bytes(chance.randbytes(chance.randrange(1 << 20, 8 << 20)))


def read_tree(folder: Path) -> Tree:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
