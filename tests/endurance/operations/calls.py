"""Call functions in jobs."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from tests.endurance.plan import Operation, Options, Step
from tests.endurance.world import Record, World

MEMORY = 100  # MB of Python
PROGRAM = """\
from openpai_tasks import PaiExecutor

def square(number):
    return number * number

with PaiExecutor(cluster={alias!r}, cpu=1, **{flags}) as executor:
    print("value", executor.submit(square, {number}).result())
"""


def executor(world: World) -> dict[str, Any]:
    """Return the cluster of an executor, and the arguments that its jobs need there."""
    site = world.site
    flags: dict[str, Any] = {"memoryMB": site.memory + MEMORY} if site.memory else {}
    return {"alias": site.alias, "flags": flags | ({"update": [site.update]} if site.update else {})}


class Call(Operation):
    kind, weight = "call", 1

    def plan(self, chance: random.Random, label: str, labels: list[str]) -> Options:
        return {"label": label, "number": chance.randrange(1000)}

    def command(self, world: World, options: Options) -> list[str]:
        program = world.folder / "project" / f"{options['label']}.py"
        program.write_text(PROGRAM.format(**executor(world), **options))
        return [sys.executable, str(program)]

    def check(self, record: Record) -> Iterator[str]:
        for ran in record.of_kind(self.kind):
            value = f"value {ran.step.options['number'] ** 2}\n"
            if not ran.is_killed and ran.code == 0 and ran.out.count(value) != 1:
                yield f"{ran.step}: printed {ran.out!r}"


MAP = """\
from openpai_tasks import PaiExecutor

def run(number):
    with open({journal!r}, "a") as file:
        file.write(f"call {{number}}\\n")
    return number * number

with PaiExecutor(cluster={alias!r}, name={label!r}, batch={batch}, cpu=1, **{flags}) as executor:
    for number, value in zip({numbers}, executor.map(run, {numbers}), strict=True):
        print("value", number, value, flush=True)
"""
ATTACH = """\
import sys
from openpai_tasks import PaiExecutor
from openpai_tasks.errors import PaiError

with PaiExecutor.attach({label!r}) as executor:
    for future in executor.futures:
        error = future.exception()
        print("error", type(error).__name__) if error else print("value", future.result())
"""


class Map(Operation):
    """Call a function with several values; another program collects what a killed one has left."""

    kind, weight = "map", 1

    def plan(self, chance: random.Random, label: str, labels: list[str]) -> Options:
        numbers = chance.sample(range(10000), chance.randrange(2, 6))
        return {"label": label, "numbers": numbers, "batch": chance.choice((1, 2))}

    def command(self, world: World, options: Options) -> list[str]:
        program = world.folder / "project" / f"{options['label']}.py"
        journal = world.site.journal(world, options["label"])
        program.write_text(MAP.format(journal=journal, **executor(world), **options))
        return [sys.executable, str(program)]

    def collect(self, world: World, steps: Sequence[Step]) -> dict[str, str]:
        """Collect the results of all calls once more, by the names of their executors."""
        return {step.options["label"]: self._attach(world, step.options["label"]) for step in steps}

    @staticmethod
    def _attach(world: World, label: str) -> str:
        if not (world.home / "executors" / f"{label}.jsonl").exists():
            return ""  # killed before the first call
        program = world.folder / "project" / f"{label}-attach.py"
        program.write_text(ATTACH.format(label=label))
        done = world.call([sys.executable, str(program)])
        return done.stdout + done.stderr

    def check(self, record: Record) -> Iterator[str]:
        for ran in record.of_kind(self.kind):
            numbers, label = ran.step.options["numbers"], ran.step.options["label"]
            wanted = [f"value {number} {number * number}" for number in numbers]
            printed = ran.out.splitlines()
            is_whole = not ran.is_killed and ran.code == 0
            if printed != wanted if is_whole else printed != wanted[: len(printed)]:
                yield f"{ran.step}: printed {ran.out!r}"
            collected = record.collected(self.kind)[label].splitlines()
            is_hurt = any(f"~{label}-" in folder for folder in record.killed_tasks)
            values = [f"value {number * number}" for number in numbers][: len(collected)]
            is_submitted = is_whole or any(job["name"].startswith(f"{label}-") for job in record.jobs)
            if collected != values and is_submitted and not is_hurt:
                yield f"{label}: collected {collected}"
            for number in numbers:
                if record.journals.get(label, ()).count(f"call {number}") > 1:
                    yield f"{label}: call {number} ran twice"
