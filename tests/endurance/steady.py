"""Many jobs without faults: the memory and the descriptors of server and portal stay as they were."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from tests.endurance.operations.portal import portal_command
from tests.endurance.world import World
from tests.processes import open_files

GROWTH = 0.10
PROGRAMS = {"server": "openpai_tasks.server --home {} ", "portal": "openpai_tasks.portal "}
BATCH = 10
WARM_UP = 2  # batches before the first measurement


def use(world: World, number: int) -> None:
    """Run a few jobs at a time, and read what a user would."""
    label = f"steady{number}"
    sweep = ("--sweep", f"x=1..{BATCH}", "--cpu", "1", *world.site.job_flags())
    world.pai("job.sub", 'echo {x}; seq 200; echo "$x" > "$PAI_OUTPUT_DIR/x"', "-j", label, *sweep)
    world.pai("job.list", "-o", "json")
    world.pai("job.logs", f"{label}-x-1")
    world.pai("storage.copy", sys.executable, f"pai://{world.site.alias}/home/{label}")
    world.call(portal_command(world, "list"))


def measure(world: World) -> dict[str, tuple[int, int, int]]:
    """Return the process, the memory in KB and the open files of each program."""
    found = {}
    for program, words in PROGRAMS.items():
        (pid,) = world.pids(words.format(world.site.server_folder(world)))
        status = Path(f"/proc/{pid}/status").read_text()
        memory = int(status.partition("VmRSS:")[2].split()[0])
        found[program] = (pid, memory, len(list(open_files(Path(f"/proc/{pid}")))))
    return found


def growth(before: dict[str, tuple[int, int, int]], after: dict[str, tuple[int, int, int]]) -> Iterator[str]:
    """Yield what has grown by more than a tenth."""
    for program, (pid, *values) in before.items():
        if after[program][0] != pid:
            yield f"the {program} has ended meanwhile"
        for what, old, new in zip(("KB of memory", "open files"), values, after[program][1:], strict=True):
            if new > old * (1 + GROWTH) + 1:
                yield f"the {program} has {new} {what}, and had {old}"


def run_steady(world: World, jobs: int) -> Iterator[str]:
    """Run this many jobs after a warm-up; yield what has grown."""
    world.make_folders()
    world.site.start(world)
    for number in range(WARM_UP):
        use(world, number)
    before = measure(world)
    print(f"before: {before}", flush=True)
    for number in range(jobs // BATCH):
        use(world, WARM_UP + number)
    after = measure(world)
    print(f"after {jobs} jobs: {after}")
    yield from growth(before, after)
