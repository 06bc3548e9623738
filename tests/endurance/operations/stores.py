"""Copy, sync, move, pack, mount and remove files on storages of real servers."""

from __future__ import annotations

import io
import json
import random
import sys
import tarfile
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from tests.endurance.operations.files import Tree, read_tree
from tests.endurance.plan import Operation, Options, Step
from tests.endurance.sites.stores import Stores
from tests.endurance.store_servers import SERVERS, StoreServer
from tests.endurance.world import PAI, Ran, Record, World

PART = ".pai-part-"  # the documented prefix of unfinished files
MOVE = """\
import fsspec
fsspec.filesystem("pai").mv("{source}", "{target}", recursive=True)
print("moved")
"""
MOUNT = """\
import hashlib, json, pathlib, signal, subprocess, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
pai, source, folder = {pai!r}, {source!r}, pathlib.Path({folder!r})
code = subprocess.run([pai, "storage.mount", source, str(folder), "--background"]).returncode
if code:
    sys.exit(code)
found = {{}}
try:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            found[str(path.relative_to(folder))] = hashlib.sha256(path.read_bytes()).hexdigest()
    print(json.dumps(found))
except OSError as err:
    print(err, file=sys.stderr)
sys.exit(subprocess.run([pai, "storage.unmount", str(folder)]).returncode)
"""


def make_files(folder: Path, seed: int) -> Path:
    """Write a folder of files from nothing to 20 MB."""
    if folder.exists():
        return folder
    chance = random.Random(seed)
    for number in range(chance.randrange(2, 12)):
        path = folder / chance.choice(("", "a", "a/b", "c d")) / f"{number}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(chance.randbytes(chance.choice((0, 1, 4096, 5000, 300_000))))
    (folder / "large.bin").write_bytes(chance.randbytes(chance.choice((1 << 20, 9_000_000, 20 << 20))))
    return folder


def place(world: World, options: Options) -> str:
    """Return the folder of an operation on its server."""
    return f"{world.folder.parent.name}/{options['label']}"


def url(world: World, options: Options, store: str = "store") -> str:
    return f"{server_of(options, store).url()}/{place(world, options)}"


def server_of(options: Options, store: str = "store") -> StoreServer:
    return SERVERS[options[store]]


class OfStore(Operation):
    """An operation on a storage; ``collect`` reads the target, repeats the command, and reads it again."""

    weight = 4

    def fits(self, world: World) -> bool:
        return isinstance(world.site, Stores)

    def plan(self, chance: random.Random, label: str, labels: list[str]) -> Options:
        source, target = chance.choice(list(SERVERS)), chance.choice(list(SERVERS))
        return {"label": label, "store": target, "from": source, "seed": chance.randrange(1000)}

    def source(self, world: World, options: Options) -> Path:
        return make_files(world.folder / "trees" / options["label"], options["seed"])

    def target(self, world: World, options: Options) -> Tree:
        return server_of(options).read(place(world, options))

    def again(self, world: World, options: Options) -> str:
        """Repeat the command, undisturbed; return what it says if it fails."""
        done = world.pai(*self.command(world, options)[1:])
        return f"exit code {done.returncode}: {done.stderr[-500:]}" if done.returncode else ""

    def collect(self, world: World, steps: Sequence[Step]) -> dict[str, Any]:
        return {step.options["label"]: self.observe(world, step.options) for step in steps}

    def observe(self, world: World, options: Options) -> dict[str, Any]:
        source, before = read_tree(self.source(world, options)), self.target(world, options)
        problem = self.again(world, options)
        return {
            "source": source,
            "before": before,
            "after": self.target(world, options),
            "problem": problem,
        }

    def check(self, record: Record) -> Iterator[str]:
        found = record.collected(self.kind)
        for ran in record.of_kind(self.kind):
            seen = found[ran.step.options["label"]]
            yield from (f"{ran.step}: {line}" for line in self.judge(ran, seen))

    def judge(self, ran: Ran, seen: dict[str, Any]) -> Iterator[str]:
        """A finished copy is complete; under its final name, a file is whole; repeated, all is there."""
        source, before, after = seen["source"], seen["before"], seen["after"]
        if seen["problem"]:
            yield f"repeated: {seen['problem']}"
        if ran.code == 0 and not ran.is_killed and before != source:
            yield f"it succeeded, but the target differs: {differing(source, before)}"
        yield from self.judge_interrupted(source, before)
        if not seen["problem"] and after != source:
            yield f"repeated, the target differs: {differing(source, after)}"

    def judge_interrupted(self, source: Tree, before: Tree) -> Iterator[str]:
        for name, digest in before.items():
            if PART not in name and source.get(name) != digest:
                yield f"{name} is not whole, or not from the source"


def differing(one: Tree, other: Tree) -> list[str]:
    return sorted({name for name, _ in set(one.items()) ^ set(other.items())})[:5]


class Upload(OfStore):
    kind = "store upload"

    def command(self, world: World, options: Options) -> list[str]:
        return [PAI, "storage.copy", str(self.source(world, options)), url(world, options)]


class Download(OfStore):
    kind = "store download"

    def command(self, world: World, options: Options) -> list[str]:
        folder = world.folder / "fetched" / options["label"]
        if not folder.parent.exists() or not folder.exists():
            server_of(options).plant(place(world, options), self.source(world, options))
        return [PAI, "storage.copy", url(world, options), str(folder)]

    def target(self, world: World, options: Options) -> Tree:
        folder = world.folder / "fetched" / options["label"]
        return read_tree(folder) if folder.exists() else {}


class Between(OfStore):
    kind = "store copy between"

    def plan(self, chance: random.Random, label: str, labels: list[str]) -> Options:
        options = super().plan(chance, label, labels)
        if options["from"] == options["store"]:
            options["from"] = next((one for one in SERVERS if one != options["store"]), options["store"])
        return options

    def command(self, world: World, options: Options) -> list[str]:
        source = {**options, "label": f"{options['label']}-source"}
        if not (world.folder / "trees" / options["label"]).exists():
            files = self.source(world, options)
            server_of(options, "from").plant(place(world, source), files)
        return [PAI, "storage.copy", url(world, source, "from"), url(world, options)]


class Sync(OfStore):
    """Replace an older version of a folder, with other files, by a newer one."""

    kind = "store sync"

    def command(self, world: World, options: Options) -> list[str]:
        if not (world.folder / "trees" / options["label"]).exists():
            old = make_files(world.folder / "trees" / f"{options['label']}-old", options["seed"] + 1)
            server_of(options).plant(place(world, options), old)
        source = str(self.source(world, options))
        return [PAI, "storage.sync", source, url(world, options), "--delete", "--checksum"]

    def observe(self, world: World, options: Options) -> dict[str, Any]:
        old = read_tree(world.folder / "trees" / f"{options['label']}-old")
        return {**super().observe(world, options), "old": old}

    def judge(self, ran: Ran, seen: dict[str, Any]) -> Iterator[str]:
        old = seen["old"]
        kept = {name: digest for name, digest in seen["before"].items() if old.get(name) == digest}
        before = {name: digest for name, digest in seen["before"].items() if name not in kept}
        yield from self.judge_interrupted(seen["source"], before)
        yield from super().judge(ran, {**seen, "before": seen["before"] if ran.code == 0 else {}})


class Remove(OfStore):
    kind, weight = "store remove", 2

    def command(self, world: World, options: Options) -> list[str]:
        if not (world.folder / "trees" / options["label"]).exists():
            server_of(options).plant(place(world, options), self.source(world, options))
        return [PAI, "storage.rm", "-r", "--yes", url(world, options)]

    def judge(self, ran: Ran, seen: dict[str, Any]) -> Iterator[str]:
        if ran.code == 0 and not ran.is_killed and seen["before"]:
            yield f"it succeeded, but {len(seen['before'])} files are there"
        if seen["after"]:
            yield f"repeated, {len(seen['after'])} files are there: {seen['problem']}"


class Move(OfStore):
    kind = "store move"

    def command(self, world: World, options: Options) -> list[str]:
        target = {**options, "label": f"{options['label']}-moved"}
        server_of(options, "from").plant(place(world, options), self.source(world, options))
        program = world.folder / "project" / f"{options['label']}.py"
        program.write_text(MOVE.format(source=url(world, options, "from"), target=url(world, target)))
        return [sys.executable, str(program)]

    def observe(self, world: World, options: Options) -> dict[str, Any]:
        target = {**options, "label": f"{options['label']}-moved"}
        return {
            "source": read_tree(self.source(world, options)),
            "before": server_of(options, "from").read(place(world, options)),
            "after": server_of(options).read(place(world, target)),
        }

    def judge(self, ran: Ran, seen: dict[str, Any]) -> Iterator[str]:
        """No file is lost: it is whole at the source or the target."""
        source, before, after = seen["source"], seen["before"], seen["after"]
        lost = [name for name, digest in source.items() if digest not in (before.get(name), after.get(name))]
        if lost:
            yield f"lost: {lost[:5]}"
        yield from self.judge_interrupted(source, after)
        if "moved\n" in ran.out and not ran.is_killed and (before or after != source):
            yield f"it succeeded, but {len(before)} files are left, and {differing(source, after)} differ"


class Pack(OfStore):
    kind, weight = "store pack", 2

    def command(self, world: World, options: Options) -> list[str]:
        folder = str(self.source(world, options))
        return [PAI, "storage.pack", folder, url(world, options), "--shard-size", "8M", "--replace"]

    def target(self, world: World, options: Options) -> Tree:
        """Return the files of the complete shards, and everything else that is there."""
        server, folder = server_of(options), place(world, options)
        found = {name: digest for name, digest in server.read(folder).items() if not name.endswith(".tar")}
        is_complete = any(Path(name).name == "index.jsonl" for name in found)
        for name in server.read(folder) if is_complete else ():
            if name.endswith(".tar"):
                with tarfile.open(fileobj=io.BytesIO(server.fetch(f"{folder}/{name}"))) as tar:
                    for member in tar:
                        if file := tar.extractfile(member):
                            found[member.name] = sha256(file.read()).hexdigest()
        return {name: digest for name, digest in found.items() if Path(name).name != "index.jsonl"}


class MountRead(OfStore):
    kind, weight = "store mount", 2

    def command(self, world: World, options: Options) -> list[str]:
        server_of(options).plant(place(world, options), self.source(world, options))
        program = world.folder / "project" / f"{options['label']}.py"
        folder = world.folder / "mounts" / options["label"]
        folder.mkdir(parents=True)
        program.write_text(MOUNT.format(pai=PAI, source=url(world, options), folder=str(folder)))
        return [sys.executable, str(program)]

    def observe(self, world: World, options: Options) -> dict[str, Any]:
        folder = world.folder / "mounts" / options["label"]
        if f" {folder} " in Path("/proc/mounts").read_text():
            world.pai("storage.unmount", str(folder))
        return {"source": read_tree(self.source(world, options))}

    def judge(self, ran: Ran, seen: dict[str, Any]) -> Iterator[str]:
        lines = [line for line in ran.out.splitlines() if line.startswith("{")]
        if lines and (found := json.loads(lines[0])) != seen["source"]:
            yield f"it read something else: {differing(found, seen['source'])}"
