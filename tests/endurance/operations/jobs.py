"""Submit, follow, stop, resubmit and list jobs, and read their logs."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator

from tests.endurance.plan import Operation, Options, Step
from tests.endurance.world import FINAL, PAI, Ran, Record, World, label_of

SCRIPT = """\
journal={journal}
echo "start {attempt}" >> "$journal"
n=0
while [ $n -lt {lines} ]; do echo "{label} line $n"; n=$((n + 1)); done
{more}
sleep {seconds}
echo "end {attempt}" >> "$journal"
exit {code}
"""


NOT_FOUND = "no job named "
"""In the error about a name that no job has: it is not submitted yet, or its name has further letters."""


def plan_job(chance: random.Random, label: str) -> Options:
    return {
        "label": label,
        "lines": chance.choice((1, 10, 300)),
        "seconds": chance.choice((0, 0, 0.3, 2)),
        "code": chance.choice((0, 0, 0, 3)),
        "random_name": chance.random() < 0.5,
    }


def script(world: World, options: Options, more: str = ":") -> str:
    """Return the commands of a job, which write to its journal; it also does ``more``."""
    site, label = world.site, options["label"]
    return SCRIPT.format(journal=site.journal(world, label), attempt=site.attempt, more=more, **options)


def submission(world: World, options: Options, *flags: str, more: str = ":") -> list[str]:
    """Return the command that submits a job which writes to its journal; it also does ``more``."""
    return [PAI, *job_sub(world, options, *flags, more=more)]


def job_sub(world: World, options: Options, *flags: str, more: str = ":") -> list[str]:
    """Return the words of that command, without the program."""
    name = f"{options['label']}-$" if options["random_name"] else options["label"]
    what = script(world, options, more)
    return ["job.sub", what, "-j", name, "--cpu", "1", *world.site.job_flags(), *flags]


class Submit(Operation):
    kind, weight = "submit", 8
    is_plain = True
    """Whether its job runs once and ends with the exit code of its options, unless it is stopped."""
    writes_files = False
    """Whether its commands write to the disk of the cluster, and fail if it is full."""

    def plan(self, chance: random.Random, label: str, labels: list[str]) -> Options:
        labels.append(label)
        return plan_job(chance, label)

    def command(self, world: World, options: Options) -> list[str]:
        return submission(world, options)

    def check(self, record: Record) -> Iterator[str]:
        yield from _submissions(record)
        yield from _executions(record)
        yield from _results(record)


class Follow(Submit):
    kind, weight = "follow", 4

    def command(self, world: World, options: Options) -> list[str]:
        return submission(world, options, "--follow")

    def check(self, record: Record) -> Iterator[str]:
        stopped = stopped_labels(record)
        lossy = {label_of(job["name"]) for job in record.jobs if record.is_lossy(job["name"])}
        for ran in record.of_kind(self.kind):
            options, label = ran.step.options, ran.step.options["label"]
            if ran.is_killed or ran.code != options["code"] or label in stopped:
                continue
            lines = [line for line in ran.out.splitlines() if line.startswith(f"{label} line")]
            wanted = [f"{label} line {number}" for number in range(options["lines"])]
            if lines != wanted and not (label in lossy and _is_part(lines, wanted)):
                yield f"{ran.step}: --follow printed {len(lines)} of {options['lines']} lines"


class _OfEarlierJob(Operation):
    """A command about a job that was submitted before it."""

    def plan(self, chance: random.Random, label: str, labels: list[str]) -> Options | None:
        return {"label": chance.choice(labels)} if labels else None

    def command(self, world: World, options: Options) -> list[str]:
        return [PAI, f"job.{self.kind}", options["label"]]


class Stop(_OfEarlierJob):
    kind, weight = "stop", 3


class Resubmit(_OfEarlierJob):
    kind, weight = "resubmit", 2


class Logs(_OfEarlierJob):
    kind, weight = "logs", 2

    def check(self, record: Record) -> Iterator[str]:
        for ran in record.of_kind(self.kind):
            if ran.fails_alone and NOT_FOUND not in ran.err:
                yield f"{ran.step}: it fails without a fault: {ran.err}"


class List(Operation):
    kind, weight = "list", 1

    def command(self, world: World, options: Options) -> list[str]:
        return [PAI, "job.list", "-o", "json"]


def stopped_labels(record: Record) -> set[str]:
    return {ran.step.options["label"] for ran in record.of_kind("stop", "portal stop")}


def submitted_steps(record: Record) -> dict[str, Step]:
    """Return the step that submitted the job of each label."""
    return {ran.step.options["label"]: ran.step for ran in record.of_kind(*submissions())}


def submissions() -> dict[str, type[Submit]]:
    """Return the operations that submit one job, by kind."""
    found = [Submit]
    for kind in found:
        found += kind.__subclasses__()
    return {one.kind: one for one in found}


def _submissions(record: Record) -> Iterator[str]:
    """Every accepted submission is exactly one job."""
    found = Counter(label_of(job["name"]) for job in record.jobs)
    certain, possible = Counter[str](), Counter[str]()
    for ran in record.of_kind(*submissions(), "resubmit"):
        label = ran.step.options["label"]
        possible[label] += 1
        certain[label] += _is_accepted(ran)
    for label in possible:
        if not certain[label] <= found[label] <= possible[label]:
            yield f"{label}: {found[label]} jobs, but {certain[label]} to {possible[label]} were submitted"


def _is_accepted(ran: Ran) -> bool:
    if ran.step.kind == "follow":
        return " submitted to " in ran.err
    return ran.code == 0


def _executions(record: Record) -> Iterator[str]:
    """A command runs at most once for each attempt, and at least once unless the job was stopped."""
    for label, lines in record.journals.items():
        for line, times in Counter(lines).items():
            if times > 1:
                yield f"{label}: {times} times in the journal: {line}"
    starts, ends = Counter[str](), Counter[str]()
    for lines in record.journals.values():
        for line in lines:
            (starts if line.startswith("start ") else ends)[_job_of(line)] += 1
    for job in record.jobs:
        name, state = job["name"], job["state"]
        if label_of(name) not in submitted_steps(record):
            continue
        if state in ("SUCCEEDED", "FAILED") and not starts[name]:
            if state == "SUCCEEDED" or not record.is_hurt(name):
                yield f"{name} is {state}, but its command never ran"
        elif state == "SUCCEEDED" and not ends[name]:
            yield f"{name} is {state}, but its command did not reach its end"


def _job_of(line: str) -> str:
    """Return the job in a line of a journal: ``start FOLDER/jobs/USER~NAME/...``."""
    return line.partition("/jobs/")[2].partition("/")[0].partition("~")[2]


def _results(record: Record) -> Iterator[str]:
    """States, exit codes and logs are those of the command."""
    steps, stopped = submitted_steps(record), stopped_labels(record)
    for job in record.jobs:
        name, state, label = job["name"], job["state"], label_of(job["name"])
        step = steps.get(label)
        if step is None or state not in FINAL:
            continue
        options = step.options
        wanted = [f"{label} line {number}" for number in range(options["lines"])]
        # Behind what the other stream has printed without a line break.
        logged = re.findall(rf"{label} line \d+$", record.logs[name], re.MULTILINE)
        if record.is_lossy(name):
            logged = wanted if _is_part(logged, wanted) else logged
        if logged != wanted[: len(logged)]:
            yield f"{name}: the log is out of order or has lines twice: {len(logged)} of {len(wanted)} lines"
        kind = submissions()[step.kind]
        is_certain = kind.is_plain and not (kind.writes_files and record.is_lossy(name))
        if not is_certain or record.is_hurt(name) or (state == "STOPPED" and label in stopped):
            continue
        if state != ("FAILED" if options["code"] else "SUCCEEDED"):
            yield f"{name} is {state}, but its command exits with {options['code']}"
        if logged != wanted:
            yield f"{name}: the log has {len(logged)} of {len(wanted)} lines"


def _is_part(logged: list[str], wanted: list[str]) -> bool:
    """Whether the lines of a log with gaps are in order; one with a gap inside matches none."""
    numbers = [wanted.index(line) for line in logged if line in wanted]
    return numbers == sorted(set(numbers))
