"""Fuzz the targets for some minutes; print each problem with the command that repeats it."""

from __future__ import annotations

import argparse
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatch
from importlib.util import find_spec
from pathlib import Path

from tests.fuzz.limits import problem
from tests.fuzz.target import Target
from tests.fuzz.targets import targets

KEPT = Path(".fuzz")  # what earlier runs have found: inputs that reach new code, and failures
SAVED = Path(__file__).parent / "corpus"
SHRINKING = 20.0  # seconds for one failure
ENDING = 300.0  # seconds besides its time; to load and instrument the server takes long on a busy machine
COUNT = re.compile(r"stat::number_of_executed_units:\s*(\d+)")


def fuzz(target: Target, seconds: int, seed: int, corpus: Path) -> tuple[int, list[Path]]:
    """Fuzz a target in a process; return the number of inputs and the files of the failures."""
    corpus.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate([*target.seeds, *saved_inputs(target.name)]):
        (corpus / f"seed-{number}").write_bytes(data)
    failures = KEPT / "failures" / target.name
    shutil.rmtree(failures, ignore_errors=True)
    failures.mkdir(parents=True)
    argv = [
        sys.executable,
        "-m",
        "tests.fuzz.worker",
        module_of(target),
        target.name,
        str(seconds),
        str(seed),
    ]
    environment = {
        **os.environ,
        "MALLOC_ARENA_MAX": "1",
    }  # an arena for each thread would look like memory in use
    with tempfile.TemporaryDirectory() as home:
        environment |= {"HOME": home, "OPENPAI_HOME": home, "TMPDIR": home}
        done = subprocess.run(
            [*argv, str(corpus.resolve()), str(failures.resolve())],
            capture_output=True,
            text=True,
            errors="replace",
            env=environment,
            timeout=seconds + ENDING,
        )
    counted = COUNT.search(done.stdout + done.stderr)
    if done.returncode or not counted:
        raise RuntimeError(f"{target.name}: the fuzzer ended early:\n{(done.stdout + done.stderr)[-3000:]}")
    return int(counted[1]), sorted(failures.iterdir())


def module_of(target: Target) -> str:
    """Return the module that has a target in its ``TARGETS``."""
    modules = ((name, getattr(module, "TARGETS", ())) for name, module in sys.modules.items())
    return next(name for name, found in modules if target in found)


def saved_inputs(name: str) -> list[bytes]:
    """Return the saved inputs of a target, which failed once."""
    return [file.read_bytes() for file in sorted((SAVED / name).glob("*"))]


def shrink(data: bytes, fails: Callable[[bytes], bool]) -> bytes:
    """Cut parts out of an input, each half as long as the one before, as long as it fails."""
    size = len(data) // 2
    while size:
        at = 0
        while at < len(data):
            shorter = data[:at] + data[at + size :]
            data, at = (shorter, at) if fails(shorter) else (data, at + size)
        size //= 2
    return data


def report(target: Target, file: Path) -> bool:
    """Print a failing input as short as it can be cut; return whether it also fails in this process."""
    data, end = file.read_bytes(), time.monotonic() + SHRINKING
    found = problem(target, data)
    if found is None:
        return False
    kind = found.kind

    def fails(shorter: bytes) -> bool:
        again = problem(target, shorter) if time.monotonic() < end else None
        return again is not None and again.kind == kind

    file.write_bytes(shrink(data, fails))
    print(f"{target.name}: {found.text}\n  input: {file.read_bytes()!r:.300}")
    print(f"  repeat it: {shlex.join(['inv', 'fuzz', '--target', target.name, '--input', str(file)])}")
    print(
        f"  keep it: cp {shlex.quote(str(file))} {SAVED.relative_to(Path.cwd())}/{target.name}/", flush=True
    )
    return True


def repeat(target: Target, file: Path) -> int:
    """Parse one input and show where it fails."""
    found = problem(target, file.read_bytes())
    print(found.details if found else f"{target.name}: no problem")
    return int(found is not None)


def main() -> int:
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--target", default="*", help="a name or a pattern")
    parser.add_argument("--seed", type=int, help="start from the same inputs with the same random numbers")
    parser.add_argument("--input", type=Path, help="parse only this file")
    given = parser.parse_args()
    chosen = [one for name, one in sorted(targets().items()) if fnmatch(name, given.target)]
    if not chosen:
        parser.error(f"no target {given.target!r}; targets: {', '.join(sorted(targets()))}")
    if given.input:
        return repeat(chosen[0], given.input)
    cores = min(len(os.sched_getaffinity(0)), len(chosen))
    seconds = max(1, round(given.minutes * 60 * cores / len(chosen)))
    seed = given.seed if given.seed is not None else random.randrange(1 << 31)
    how = (
        "guided by coverage"
        if find_spec("atheris")
        else "random: `pip install -e '.[fuzz]'` guides it by coverage"
    )
    print(f"{len(chosen)} targets, {seconds} s each, seed {seed}, {how}", flush=True)
    failed = 0
    with tempfile.TemporaryDirectory() as fresh, ThreadPoolExecutor(cores) as pool:
        inputs = Path(fresh) if given.seed is not None else KEPT / "corpus"
        runs = [pool.submit(fuzz, one, seconds, seed, inputs / one.name) for one in chosen]
        for target, run in zip(chosen, runs, strict=True):
            count, failures = run.result()
            print(f"{target.name}: {count} inputs, {len(failures)} kinds of failures", flush=True)
            failed += sum([report(target, file) for file in failures])
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
