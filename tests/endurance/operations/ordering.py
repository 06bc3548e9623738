"""Jobs that wait for others, have a priority, or are submitted twice under one name; sweeps."""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.endurance.operations.jobs import Submit, plan_job, stopped_labels, submission
from tests.endurance.plan import Operation, Options, Step
from tests.endurance.world import PAI, Record, World, label_of

WANTED = {
    "after": ("SUCCEEDED",),
    "after-failed": ("FAILED",),
    "after-any": ("SUCCEEDED", "FAILED", "STOPPED"),
}
"""The states of the first job in which the second one starts, by flag."""
TWINS = Path(__file__).parents[1] / "programs" / "twins.py"


class After(Submit):
    kind, weight, is_plain = "after", 3, False

    def plan(self, chance: random.Random, label: str, labels: list[str]) -> Options | None:  # type: ignore[override]
        if not labels:
            return None
        first = chance.choice(labels)
        labels.append(label)
        job = {**plan_job(chance, label), "random_name": False}
        return {**job, "first": first, "flag": chance.choice(["after", *WANTED])}

    def command(self, world: World, options: Options) -> list[str]:
        listed = world.pai("job.list", "--limit", "100000", "-o", "json").stdout or "[]"
        names = [job["name"] for job in json.loads(listed) if label_of(job["name"]) == options["first"]]
        first = min(names, key=len, default=options["first"])
        journal, own = world.site.journal(world, options["first"]), world.site.attempt
        more = f'echo "after {first} {own}" >> "$journal"; sed "s|^|saw {own} |" {journal} >> "$journal"'
        return submission(world, options, f"--{options['flag']}", first, more=more)

    def check(self, record: Record) -> Iterator[str]:
        if record.plan.has("upgrade"):
            return  # 0.2.0 knows no order, and our commands only report that the server is older
        states = {job["name"]: job["state"] for job in record.jobs}
        for ran in record.of_kind(self.kind):
            label, flag = ran.step.options["label"], ran.step.options["flag"]
            lines = record.journals.get(label, ())
            for line in lines:
                if line.startswith("after ") and f"~{label}/" in line:
                    first = line.split()[1]
                    yield from _order(label, first, flag, states.get(first, "GONE"), lines, record)
            if states.get(label) != "STOPPED" or label in stopped_labels(record):
                continue
            if any(line.startswith("start ") and f"~{label}/" in line for line in lines):
                yield f"{label} was stopped by nobody after it had started"
            first_states = [states[name] for name in states if label_of(name) == ran.step.options["first"]]
            if first_states and all(state in WANTED[flag] for state in first_states):
                yield f"{label} is STOPPED, but what it waited for is {first_states}"


def _order(
    label: str, first: str, flag: str, state: str, lines: Sequence[str], record: Record
) -> Iterator[str]:
    """Yield what is wrong if the job started before the one that it waited for had ended as wanted."""
    if state not in WANTED[flag]:
        yield f"{label} started --{flag} {first}, which is {state}"
    is_hurt = record.is_hurt(first)
    seen = [line.split() for line in lines if line.startswith("saw ")]
    has_seen_end = any(
        f"~{label}/" in words[1] and words[2] == "end" and f"~{first}/" in words[3] for words in seen
    )
    if state == "SUCCEEDED" and not is_hurt and not has_seen_end:
        yield f"{label} started before the end of {first}"


class Prioritized(Submit):
    kind, weight = "priority", 1

    def plan(self, chance: random.Random, label: str, labels: list[str]) -> Options:
        return {**super().plan(chance, label, labels), "priority": chance.choice(("low", "normal", "high"))}

    def command(self, world: World, options: Options) -> list[str]:
        return submission(world, options, "--priority", options["priority"], "--mem", "256m")

    def check(self, record: Record) -> Iterator[str]:
        return iter(())


class Twins(Submit):
    """Two clients submit a job of the same name at the same time: one of them succeeds."""

    kind, weight = "twins", 2

    def plan(self, chance: random.Random, label: str, labels: list[str]) -> Options:
        return {**super().plan(chance, label, labels), "random_name": False}

    def command(self, world: World, options: Options) -> list[str]:
        return [sys.executable, str(TWINS), *submission(world, options, more='echo "twin $TWIN"')]

    def check(self, record: Record) -> Iterator[str]:
        names = Counter(job["name"] for job in record.jobs)
        for ran in record.of_kind(self.kind):
            label = ran.step.options["label"]
            if names[label] > 1:
                yield f"{label}: {names[label]} jobs of the same name"
            codes = ran.out.split()
            if not ran.is_killed and codes.count("0") > 1:
                yield f"{ran.step}: both clients say that they have submitted it"
            twins = [line for line in record.logs.get(label, "").splitlines() if line.startswith("twin ")]
            if "0" in codes and twins and twins != [f"twin {codes.index('0')}"]:
                yield f"{ran.step}: the exit codes are {codes}, but {twins} ran"


class Sweep(Operation):
    kind, weight = "sweep", 1

    def plan(self, chance: random.Random, label: str, labels: list[str]) -> Options:
        return {"label": label, "parallel": chance.choice((0, 2))}

    def command(self, world: World, options: Options) -> list[str]:
        journal, attempt = world.site.journal(world, options["label"]), world.site.attempt
        command = f'echo "start {attempt}" >> {journal}; echo {{x}}; echo "end {attempt}" >> {journal}'
        flags = ["--max-parallel", str(options["parallel"])] if options["parallel"] else []
        names = ["-j", options["label"], "--sweep", "x=1..5", "--detach", "--cpu", "1"]
        return [PAI, "job.sub", command, *names, *flags, *world.site.job_flags()]

    def collect(self, world: World, steps: Sequence[Step]) -> dict[str, list[str]]:
        """Run each sweep again, undisturbed, and list its jobs when they have ended."""
        for step in steps:
            world.pai(*self.command(world, step.options)[1:])
        for step in steps:
            world.pai("job.wait", step.options["label"])
        listed = json.loads(world.pai("job.list", "--limit", "100000", "-o", "json").stdout)
        labels = [step.options["label"] for step in steps]
        return {
            label: sorted(job["name"] for job in listed if label_of(job["name"]) == label) for label in labels
        }

    def check(self, record: Record) -> Iterator[str]:
        for label, names in record.collected(self.kind).items():
            if names != [f"{label}-x-{number}" for number in range(1, 6)]:
                yield f"sweep {label}: its jobs are {names}"
            starts = [line for line in record.journals.get(label, ()) if line.startswith("start ")]
            if len(starts) != 5 and not any(f"~{label}-x-" in folder for folder in record.killed_tasks):
                yield f"sweep {label}: {len(starts)} of 5 commands ran"
