"""Run histories for some minutes; print what was done, and each failing history with its seed."""

from __future__ import annotations

import argparse
import contextlib
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Collection
from pathlib import Path

from tests.endurance.checks import violations
from tests.endurance.found import FAULTS, OPERATIONS, SITES
from tests.endurance.plan import Plan, make_plan
from tests.endurance.shrink import shrink
from tests.endurance.sites.base import Site
from tests.endurance.steady import run_steady
from tests.endurance.world import Record, World

SHRINKING = 300.0  # seconds to cut down a history, if no more are left


def new_world(site: Site, seed: int = 0) -> World:
    """Return a new world; with an odd seed, its paths are too long for Unix sockets."""
    return World(Path(tempfile.mkdtemp(prefix="endure-")) / ("world" * (1 + seed % 2 * 15)), site)


def plan_for(seed: int, site: Site, wanted: Collection[str] = FAULTS, most_faults: int | None = None) -> Plan:
    """Return the history of this seed on a site: it has what can be done there, and the wanted faults."""
    world = World(Path("/nowhere"), site)
    operations = {kind: one for kind, one in OPERATIONS.items() if one.fits(world)}
    faults = {kind: one for kind, one in FAULTS.items() if kind in wanted and one.fits(world)}
    most = most_faults or site.most_faults
    return make_plan(seed, operations, faults, most_faults=most, fault_pause=site.fault_pause)


def run(plan: Plan, site: Site) -> tuple[Record, list[str]]:
    """Carry out one history in a new folder; keep the folder if it fails."""
    world = new_world(site, plan.seed)
    try:
        record = world.run(plan, OPERATIONS, FAULTS)
        found = list(violations(record))
    except Exception:
        record = Record(plan, (), (), (), {}, {}, frozenset(), {}, "", ())
        found = [f"the driver failed: {traceback.format_exc()}"]
    except BaseException:  # Ctrl-C, TERM
        world.remove()
        raise
    if found:
        print(f"its files are kept in {world.folder}")
    else:
        world.remove()
    return record, found


def steady(world: World, jobs: int) -> int:
    """Run jobs without faults; return 1 if something has grown."""
    try:
        found = list(run_steady(world, jobs))
    finally:
        with contextlib.ExitStack() as cleanups:
            cleanups.callback(world.remove)
            cleanups.callback(world.site.stop, world)
            world.abort()
    print(*found, sep="\n")
    return min(len(found), 1)


def main() -> int:
    parser = argparse.ArgumentParser(prog="endure", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, help="run only this history")
    parser.add_argument("--first", type=int, help="begin with this seed")
    parser.add_argument("--engine", default="process", choices=sorted(SITES))
    parser.add_argument(
        "--steady", type=int, metavar="JOBS", help="run jobs without faults, and compare memory"
    )
    parser.add_argument("--faults", help="only these kinds of faults, separated by commas")
    parser.add_argument("--most-faults", type=int, help="faults of one history")
    parser.add_argument("--repeat", action="store_true", help="fail only if a history fails twice")
    given = parser.parse_args()
    site = SITES[given.engine]
    wanted = given.faults.split(",") if given.faults else list(FAULTS)
    if unknown := set(wanted) - set(FAULTS):
        parser.error(f"no fault named {', '.join(sorted(unknown))}: there are {', '.join(FAULTS)}")
    if reason := site.missing():
        parser.error(f"{given.engine} cannot run here: {reason}")
    if given.steady:
        return steady(new_world(site), given.steady)
    first = next((one for one in (given.seed, given.first) if one is not None), random.randrange(1 << 32))
    until, seed = time.monotonic() + given.minutes * 60, first
    operations, faults, failed = Counter[str](), Counter[str](), list[Plan]()
    while seed == first or (given.seed is None and time.monotonic() < until):
        plan = plan_for(seed, site, wanted, given.most_faults)
        began = time.monotonic()
        record, found = run(plan, site)
        operations.update(ran.step.kind for ran in record.ran)
        faults.update(fault.partition(":")[0] for fault in record.faults)
        took = f"{len(record.jobs)} jobs, {time.monotonic() - began:.0f} s{': FAILED' if found else ''}"
        print(f"seed {seed}: {len(record.ran)} operations, {len(record.faults)} faults, {took}", flush=True)
        if found:
            print(*(f"  {line}" for line in found), sep="\n", flush=True)
            is_rare = given.repeat and not run(plan, site)[1]
            if is_rare:
                print(f"  seed {seed} has passed when it was repeated", flush=True)
            failed += [] if is_rare else [plan]
        seed += 1
    print(f"operations: {dict(operations)}\nfaults: {dict(faults)}\nfailed histories: {len(failed)}")
    sys.stdout.flush()
    if failed:
        end = max(until, time.monotonic() + SHRINKING)
        small = shrink(failed[0], lambda one: time.monotonic() < end and bool(run(one, site)[1]))
        print(f"the shortest history of seed {small.seed} that was seen to fail:\n{small}")
    return min(len(failed), 1)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("interrupted")
