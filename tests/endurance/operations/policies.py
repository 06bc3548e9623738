"""Jobs that are kept after a failure, or run again at their time limit."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tests.endurance.operations.jobs import Submit, stopped_labels, submission
from tests.endurance.plan import Options
from tests.endurance.world import Record, World, label_of

TIMES = 2  # that a job is run again


class KeepFailed(Submit):
    kind, weight = "keep failed", 1

    def plan(self, chance: random.Random, label: str, labels: list[str]) -> Options:
        return {**super().plan(chance, label, labels), "code": chance.choice((0, 3, 3))}

    def command(self, world: World, options: Options) -> list[str]:
        return submission(world, options, "--keep-failed", "3s")

    def check(self, record: Record) -> Iterator[str]:
        return iter(())  # it ends like every other job


class Requeue(Submit):
    """A job that reaches its time limit in each attempt but the last one, and continues where it was."""

    kind, weight, is_plain = "requeue", 1, False

    def plan(self, chance: random.Random, label: str, labels: list[str]) -> Options:
        options = super().plan(chance, label, labels)
        job = {"lines": 1, "seconds": 0, "code": 0, "needed": chance.randrange(1, TIMES + 3)}
        return {**options, **job}

    def command(self, world: World, options: Options) -> list[str]:
        more = f"""\
echo x >> "$PAI_OUTPUT_DIR/parts"
if [ $(wc -l < "$PAI_OUTPUT_DIR/parts") -lt {options["needed"]} ]; then sleep 60; exit 9; fi"""
        flags = ("--max-time", "3s", "--grace", "1s", "--requeue-on-timeout", str(TIMES))
        return submission(world, options, *flags, more=more)

    def check(self, record: Record) -> Iterator[str]:
        if record.plan.has("upgrade"):
            return  # 0.2.0 does not run such jobs again
        steps = {ran.step.options["label"]: ran.step for ran in record.of_kind(self.kind)}
        for job in record.jobs:
            name, state, label = job["name"], job["state"], label_of(job["name"])
            is_hurt = record.is_hurt(name) or record.is_lossy(name)  # its file could not be written
            if label not in steps or is_hurt or label in stopped_labels(record):
                continue
            needed = steps[label].options["needed"]
            starts = [
                line
                for line in record.journals.get(label, ())
                if line.startswith("start ") and f"~{name}/" in line
            ]
            if state != ("SUCCEEDED" if needed <= TIMES + 1 else "FAILED"):
                yield f"{name} is {state}, but it needs {needed} attempts of {TIMES + 1}"
            if len(starts) != min(needed, TIMES + 1):
                yield f"{name} ran {len(starts)} times, but needs {needed} of {TIMES + 1} attempts"
