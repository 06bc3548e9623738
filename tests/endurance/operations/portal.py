"""Use the portal as a client: submit with its form or its editor, stop, and read its list of jobs."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.endurance.operations.jobs import Submit, job_sub, plan_job, script
from tests.endurance.plan import Operation, Options, Step
from tests.endurance.world import Record, World

NOT_FOUND = "HTTP 404 "  # a job that is not submitted yet, or has a longer name
PROGRAM = Path(__file__).parents[1] / "programs" / "portal_client.py"


def portal_command(world: World, *words: str) -> list[str]:
    return [sys.executable, str(PROGRAM), world.site.alias, *words]


def failures(record: Record, kind: str) -> Iterator[str]:
    """Yield what a visitor was refused without a fault as the reason."""
    for ran in record.of_kind(kind):
        if ran.fails_alone and not ran.err.startswith(NOT_FOUND):
            yield f"{ran.step}: it fails without a fault: {ran.err}"


class PortalSubmit(Submit):
    kind, weight = "portal submit", 2

    def plan(self, chance: random.Random, label: str, labels: list[str]) -> Options:
        labels.append(label)
        return {**plan_job(chance, label), "random_name": False, "page": chance.choice(("form", "file"))}

    def command(self, world: World, options: Options) -> list[str]:
        if options["page"] == "file" or world.site.update:  # which the form does not have
            return portal_command(world, "file", options["label"], *job_sub(world, options))
        memory = str(world.site.memory or "")
        return portal_command(world, "form", options["label"], script(world, options), memory)

    def check(self, record: Record) -> Iterator[str]:
        yield from failures(record, self.kind)  # and what is true of all submissions

    def collect(self, world: World, steps: Sequence[Step]) -> None:
        world.pai("cluster.portal", "--stop")


class PortalStop(Operation):
    kind, weight = "portal stop", 1

    def plan(self, chance: random.Random, label: str, labels: list[str]) -> Options | None:
        return {"label": chance.choice(labels)} if labels else None

    def command(self, world: World, options: Options) -> list[str]:
        return portal_command(world, "stop", options["label"])

    def check(self, record: Record) -> Iterator[str]:
        yield from failures(record, self.kind)

    def collect(self, world: World, steps: Sequence[Step]) -> None:
        world.pai("cluster.portal", "--stop")


class PortalList(Operation):
    kind, weight = "portal list", 2

    def command(self, world: World, options: Options) -> list[str]:
        return portal_command(world, "list")

    def collect(self, world: World, steps: Sequence[Step]) -> str:
        done = world.call(portal_command(world, "list"))
        world.pai("cluster.portal", "--stop")
        return done.stdout if done.returncode == 0 else done.stderr

    def check(self, record: Record) -> Iterator[str]:
        yield from failures(record, self.kind)
        pages = [ran.out for ran in record.of_kind(self.kind) if ran.code == 0]
        for page in [*pages, *([record.collected(self.kind)] if pages else [])]:
            try:
                found = json.loads(page)
            except ValueError:
                yield f"the last list of the portal failed: {page}"
                continue
            if twice := {name for name in found["page"] if found["page"].count(name) > 1}:
                yield f"the portal lists jobs twice: {twice}"
            if missing := set(found["before"]) - set(found["page"]):
                yield f"the portal does not list {missing}"
