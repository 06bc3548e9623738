"""Jobs that write much to both streams and to files; all of it is compared with what they wrote."""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.endurance.operations.files import read_tree
from tests.endurance.operations.jobs import Submit, stopped_labels, submission
from tests.endurance.plan import Options, Step
from tests.endurance.world import Record, World, label_of

FILES = ("data.txt", "a/b/more.txt")
STREAMS = ("stdout", "stderr")
GENERATE = """\
awk 'BEGIN {{
  x = {seed}
  for (i = 0; i < {count}; i++) {{
    x = (x * 16807) % 2147483647; s = ""
    for (j = x % 60; j > 0; j--) {{ x = (x * 16807) % 2147483647; s = s sprintf("%c", 33 + x % 94) }}
    print "é\\t" s
  }}
  printf "end {seed}"
}}'"""


def generated(seed: int, count: int) -> str:
    """Return what `GENERATE` prints: lines of all sizes, the last one without a line break."""
    x, lines = seed, []
    for _ in range(count):
        x = (x * 16807) % 2147483647
        line = ""
        for _ in range(x % 60):
            x = (x * 16807) % 2147483647
            line += chr(33 + x % 94)
        lines.append(f"é\t{line}\n")
    return "".join(lines) + f"end {seed}"


class Output(Submit):
    kind, weight, writes_files = "output", 3, True

    def plan(self, chance: random.Random, label: str, labels: list[str]) -> Options:
        options = super().plan(chance, label, labels)
        return {**options, "seed": chance.randrange(1, 1 << 30), "count": chance.choice((0, 7, 400, 3000))}

    def command(self, world: World, options: Options) -> list[str]:
        seed, count = options["seed"], options["count"]
        parts = [GENERATE.format(seed=seed + number, count=count) for number in range(4)]
        targets = (">&1", ">&2", *(f'> "$PAI_OUTPUT_DIR/{name}"' for name in FILES))
        more = [f"{part} {target}" for part, target in zip(parts, targets, strict=True)]
        return submission(world, options, more="\n".join(['mkdir -p "$PAI_OUTPUT_DIR/a/b"', *more]))

    def collect(self, world: World, steps: Sequence[Step]) -> dict[str, Any]:
        labels = {step.options["label"] for step in steps}
        listed = json.loads(world.pai("job.list", "--limit", "100000", "-o", "json").stdout)
        names = [job["name"] for job in listed if label_of(job["name"]) in labels]
        return {name: self._collect(world, name) for name in names}

    @staticmethod
    def _collect(world: World, name: str) -> dict[str, Any]:
        target = world.folder / "outputs" / name
        world.pai("job.outputs", name, "--to", str(target))
        status = json.loads(world.pai("job.status", name, "-o", "json").stdout)
        names = STREAMS if world.site.separates_streams else ("stdout",)
        streams = {stream: world.pai("job.logs", name, f"--{stream}").stdout for stream in names}
        return {**streams, "code": status["exit_code"], "files": read_tree(target)}

    def check(self, record: Record) -> Iterator[str]:
        steps = {ran.step.options["label"]: ran.step for ran in record.of_kind(self.kind)}
        states = {job["name"]: job["state"] for job in record.jobs}
        for name, found in record.collected(self.kind).items():
            options = steps[label_of(name)].options
            if record.is_lossy(name):
                continue  # its commands fail that cannot write files
            is_complete = not record.is_hurt(name) and states.get(name) in ("SUCCEEDED", "FAILED")
            yield from _differences(name, found, options, is_complete)
            if states.get(name) == "STOPPED" and label_of(name) not in stopped_labels(record):
                yield f"{name} was stopped by nobody"


def _differences(name: str, found: Mapping[str, Any], options: Options, is_complete: bool) -> Iterator[str]:
    texts = [generated(options["seed"] + number, options["count"]) for number in range(4)]
    lines = "".join(f"{options['label']} line {number}\n" for number in range(options["lines"]))
    streams = dict(zip(STREAMS, (lines + texts[0], texts[1]), strict=True))
    if "stderr" not in found:
        yield from _mixed_differences(name, found["stdout"], streams, is_complete)
        streams = {}
    for stream, wanted in streams.items():
        if found[stream] != wanted if is_complete else not wanted.startswith(found[stream]):
            yield f"{name}: {stream} differs: {len(found[stream])} of {len(wanted)} characters"
    if not is_complete:
        return
    if found["code"] != options["code"]:
        yield f"{name}: exit code {found['code']} instead of {options['code']}"
    sums = {
        file: hashlib.sha256(text.encode()).hexdigest() for file, text in zip(FILES, texts[2:], strict=True)
    }
    if found["files"] != sums:
        yield f"{name}: output files differ: {found['files']} instead of {sums}"


def _mixed_differences(name: str, found: str, streams: Mapping[str, str], is_complete: bool) -> Iterator[str]:
    """A log of both streams has the lines of each; those without a line break are at its end."""
    *lines, end = found.split("\n")
    parts = [text.split("\n") for text in streams.values()]
    wanted = Counter(line for part in parts for line in part[:-1])
    if Counter(lines) != wanted if is_complete else Counter(lines) - wanted:
        yield f"{name}: the log differs: {len(lines)} of {wanted.total()} lines"
    ends = [part[-1] for part in parts]
    if is_complete and end not in ("".join(ends), "".join(reversed(ends))):
        yield f"{name}: the log ends with {end!r} instead of {ends}"
