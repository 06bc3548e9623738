"""Jobs that are retried once."""

from __future__ import annotations

from collections.abc import Iterator

from tests.endurance.operations.jobs import Submit, stopped_labels, submission
from tests.endurance.plan import Options
from tests.endurance.world import Record, World, label_of


class Retry(Submit):
    kind, weight, is_plain = "retry", 2, False

    def command(self, world: World, options: Options) -> list[str]:
        return submission(world, options, "--retries", "1")

    def check(self, record: Record) -> Iterator[str]:
        steps = {ran.step.options["label"]: ran.step for ran in record.of_kind(self.kind)}
        for job in record.jobs:
            name, state, label = job["name"], job["state"], label_of(job["name"])
            if label not in steps or label in stopped_labels(record):
                continue
            if state == "FAILED" and job["retries"] != 1:
                yield f"{name} is FAILED after {job['retries']} of 1 retries"
            hurt = {folder for folder in record.killed_tasks if f"~{name}/" in folder}
            if state == "FAILED" and not steps[label].options["code"] and len(hurt) < 2:
                yield f"{name} is FAILED, but its command succeeds, and was killed {len(hurt)} times"
