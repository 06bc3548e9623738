"""Make folders identical to others that change meanwhile, to the storage and back; download copies."""

from __future__ import annotations

import json
import os
import random
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tests.endurance.operations.files import Tree, read_tree
from tests.endurance.plan import Operation, Options, Step
from tests.endurance.store_servers import again
from tests.endurance.world import PAI, Record, World

PART = ".pai-part-"
_LOCK = threading.Lock()


class Upload(Operation):
    """Sync one of a few folders to the storage, after some of its files have changed."""

    kind, weight = "sync", 3

    def plan(self, chance: random.Random, label: str, labels: list[str]) -> Options:
        return {"tree": f"{self.kind}-{chance.randrange(2)}", "seed": chance.randrange(1 << 30)}

    def command(self, world: World, options: Options) -> list[str]:
        source, target = self.ends(world, options["tree"])
        change_tree(world, self.folder(world, options["tree"]), options["seed"])
        return [PAI, "storage.sync", "--delete", source, target]

    def ends(self, world: World, tree: str) -> tuple[str, str]:
        """Return the source and the target."""
        return str(self.folder(world, tree)), storage_path(world, tree)

    def folder(self, world: World, tree: str) -> Path:
        """Return the folder that changes."""
        return world.folder / "trees" / tree

    def target(self, world: World, tree: str) -> Path:
        return storage_folder(world) / tree

    def collect(self, world: World, steps: Sequence[Step]) -> dict[str, Any]:
        """Look at each target, and sync it once more, undisturbed."""
        return {tree: self._collect(world, tree) for tree in {step.options["tree"] for step in steps}}

    def _collect(self, world: World, tree: str) -> dict[str, Any]:
        before = read_tree(self.target(world, tree))
        ended = world.pai("storage.sync", "--delete", *self.ends(world, tree))
        versions = _versions(world, tree).read_text().splitlines()
        return {
            "before": {name: digest for name, digest in before.items() if PART not in name},
            "versions": {tuple(json.loads(line)) for line in versions},
            "source": read_tree(self.folder(world, tree)),
            "target": read_tree(self.target(world, tree)),
            "error": ended.stderr if ended.returncode else "",
        }

    def check(self, record: Record) -> Iterator[str]:
        for tree, found in record.collected(self.kind).items():
            if torn := sorted(set(found["before"].items()) - found["versions"])[:3]:
                yield f"{tree}: files that the source never had: {torn}"
            if found["error"]:
                yield f"{tree}: the last sync failed: {found['error']}"
            if found["source"] != found["target"]:
                differing = sorted(set(found["source"].items()) ^ set(found["target"].items()))[:5]
                yield f"{tree}: the target differs: {differing}"


class Download(Upload):
    """Sync a folder of the storage, which changes there, to this machine."""

    kind, weight = "sync back", 2

    def ends(self, world: World, tree: str) -> tuple[str, str]:
        return storage_path(world, tree), str(self.target(world, tree))

    def folder(self, world: World, tree: str) -> Path:
        return storage_folder(world) / tree

    def target(self, world: World, tree: str) -> Path:
        return world.folder / "downloads" / tree


class CopyBack(Download):
    """Copy such a folder, which does not remove what the source has lost."""

    kind, weight = "copy back", 1

    def command(self, world: World, options: Options) -> list[str]:
        return [PAI, "storage.copy", *super().command(world, options)[3:]]


def storage_folder(world: World) -> Path:
    """Return the user's folder on the storage; start the cluster if it was never used."""
    homes = world.site.server_folder(world) / "storage" / "home"
    while not (homes.is_dir() and (found := list(homes.iterdir()))):
        world.pai("storage.ls", storage_path(world, ""))
        world.pai("storage.copy", __file__, storage_path(world, "first"))
    return found[0]


def storage_path(world: World, name: str) -> str:
    """Return the address of a folder of the user on the storage."""
    return f"pai://{world.site.alias}/home/{name}"


def change_tree(world: World, folder: Path, seed: int) -> None:
    """Write, replace and remove some files, each in one step, and note their versions."""
    chance = random.Random(seed)
    with _LOCK:
        disks = (*(home for home in world.homes() if folder.is_relative_to(home)), world.folder)
        begun = disks[0] / "new"
        begun.mkdir(mode=0o700, exist_ok=True)
        for number in range(chance.randrange(1, 30)):
            path = folder / chance.choice(("", "a", "a/b", "c")) / f"{chance.randrange(40)}.bin"
            path.parent.mkdir(parents=True, exist_ok=True)
            size = chance.randrange(4 << 20) if number == 0 else chance.randrange(3000)
            new = begun / f"{seed}-{number}"
            content = chance.randbytes(size)
            again(partial(new.write_bytes, content))  # the disk may be full
            os.replace(new, path)
        known = sorted(path for path in folder.rglob("*.bin"))
        gone = set(chance.sample(known, len(known) // 8))
        for path in gone:
            path.unlink()
        with _versions(world, folder.name).open("a") as file:
            file.writelines(json.dumps(item) + "\n" for item in read_tree(folder).items())


def _versions(world: World, tree: str) -> Path:
    return world.folder / f"{tree}.versions"


__all__ = ["CopyBack", "Download", "Tree", "Upload", "storage_folder", "storage_path"]
