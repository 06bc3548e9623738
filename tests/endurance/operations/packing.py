"""Pack folders into sets, and unpack them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.endurance.operations.files import make_tree, read_tree
from tests.endurance.operations.syncing import storage_folder, storage_path
from tests.endurance.plan import Operation, Options, Step
from tests.endurance.world import PAI, Record, World

FORMATS = ("tar", "tfrecord", "sequencefile")


class Pack(Operation):
    kind, weight = "pack", 2

    def plan(self, chance: random.Random, label: str, labels: list[str]) -> Options:
        return {"tree": f"pack-{label}", "seed": chance.randrange(1000), "format": chance.choice(FORMATS)}

    def command(self, world: World, options: Options) -> list[str]:
        source = world.folder / "trees" / options["tree"]
        make_tree(source, options["seed"])
        return [PAI, "storage.pack", str(source), storage_path(world, options["tree"]), *_flags(options)]

    def collect(self, world: World, steps: Sequence[Step]) -> dict[str, Any]:
        return {step.options["tree"]: self._collect(world, step.options) for step in steps}

    @staticmethod
    def _collect(world: World, options: Options) -> dict[str, Any]:
        """Unpack what is there, pack again undisturbed, and unpack that."""
        tree = options["tree"]
        source, target = str(world.folder / "trees" / tree), storage_path(world, tree)
        has_index = any("index" in path.name for path in (storage_folder(world) / tree).glob("[!.]*"))
        unpacked = [world.folder / "unpacked" / f"{tree}-{number}" for number in range(2)]
        first = world.pai("storage.unpack", target, str(unpacked[0]))
        again = world.pai("storage.pack", source, target, "--replace", *_flags(options))
        second = world.pai("storage.unpack", target, str(unpacked[1]))
        return {
            "source": read_tree(Path(source)),
            "first": read_tree(unpacked[0]) if has_index else {},
            "has_index": has_index,
            "errors": [
                one.stderr for one in ([first] if has_index else []) + [again, second] if one.returncode
            ],
            "second": read_tree(unpacked[1]),
        }

    def check(self, record: Record) -> Iterator[str]:
        for tree, found in record.collected(self.kind).items():
            if found["errors"]:
                yield f"{tree}: {found['errors']}"
            if found["has_index"] and found["first"] != found["source"]:
                yield f"{tree}: a packed set is not complete"
            if found["second"] != found["source"]:
                yield f"{tree}: the unpacked files differ"
        yield from _accepted_without_set(record)


def _accepted_without_set(record: Record) -> Iterator[str]:
    for ran in record.of_kind("pack"):
        tree = ran.step.options["tree"]
        if ran.code == 0 and not record.collected("pack")[tree]["has_index"]:
            yield f"{tree}: packed, but there is no set"


class Unpack(Operation):
    kind, weight = "unpack", 1

    def plan(self, chance: random.Random, label: str, labels: list[str]) -> Options:
        return {"tree": f"unpack-{label}", "seed": chance.randrange(1000), "format": chance.choice(FORMATS)}

    def command(self, world: World, options: Options) -> list[str]:
        source, packed, target = _folders(world, options["tree"])
        make_tree(source, options["seed"])
        pack = ("storage.pack", str(source), str(packed), "--replace", *_flags(options))
        any(world.pai(*pack).returncode == 0 for _ in range(5))  # it may be killed with everything else
        return [PAI, "storage.unpack", str(packed), str(target)]

    def collect(self, world: World, steps: Sequence[Step]) -> dict[str, Any]:
        found = {}
        for step in steps:
            source, packed, target = _folders(world, step.options["tree"])
            ended = world.pai("storage.unpack", str(packed), str(target))
            found[step.options["tree"]] = (read_tree(source), read_tree(target), ended.stderr)
        return found

    def check(self, record: Record) -> Iterator[str]:
        for tree, (source, target, error) in record.collected(self.kind).items():
            if source != target:
                differing = sorted(set(source.items()) ^ set(target.items()))[:5]
                yield f"{tree}: the unpacked files differ: {differing} {error}"


def _folders(world: World, tree: str) -> tuple[Path, Path, Path]:
    return world.folder / "trees" / tree, world.folder / "packed" / tree, world.folder / "unpacked" / tree


def _flags(options: Options) -> tuple[str, ...]:
    return ("--format", options["format"], "--shard-size", "1M", "--name", "set")
