"""Fuzz one target for some seconds; started by ``python -m tests.fuzz``, as libFuzzer ends its process."""

from __future__ import annotations

import hashlib
import random
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from tests.fuzz.mutations import mutate
from tests.fuzz.target import Target

LONGEST = 1 << 16  # bytes of an input; the buffer of a socket takes it


def main(module: str, name: str, seconds: int, seed: int, corpus: Path, failures: Path) -> None:
    """Keep new inputs in ``corpus``, and the shortest input of each kind of problem in ``failures``."""
    try:
        import atheris
    except ImportError:
        return _fuzz_blindly(_find(module, name), seconds, seed, corpus, failures)
    with atheris.instrument_imports(include=["openpai_tasks"]):
        from tests.fuzz.limits import problem

        target = _find(module, name)
        for one in target.seeds:
            problem(target, one)  # loads the modules that are imported in functions

    def run(data: bytes) -> None:
        if found := problem(target, data):
            _keep(failures, found.kind, data)

    def change(data: bytes, limit: int, number: int) -> bytes:
        chance = random.Random(number)
        if chance.random() < 0.5:
            return atheris.Mutate(data, limit)
        return mutate(data, chance, target.seeds)[:limit]

    flags = f"-max_total_time={seconds} -seed={seed} -max_len={LONGEST} -timeout=10 -rss_limit_mb=0"
    atheris.Setup(
        [sys.argv[0], *flags.split(), "-print_final_stats=1", str(corpus)], run, custom_mutator=change
    )
    atheris.Fuzz()


def _find(module: str, name: str) -> Target:
    """Return a target from its module; other modules would take long to load and instrument."""
    return next(one for one in import_module(module).TARGETS if one.name == name)


def _fuzz_blindly(target: Target, seconds: int, seed: int, corpus: Path, failures: Path) -> None:
    """Mutate the inputs without knowing what they reach."""
    from tests.fuzz.limits import problem

    known = [file.read_bytes() for file in corpus.iterdir()]
    end, count = time.monotonic() + seconds, 0
    for data in _mutations(known, random.Random(seed)):
        if found := problem(target, data):
            _keep(failures, found.kind, data)
        count += 1
        if time.monotonic() > end:
            break
    print(f"stat::number_of_executed_units: {count}")


def _mutations(known: list[bytes], chance: random.Random) -> Iterator[bytes]:
    while True:
        yield mutate(chance.choice(known), chance, known)[:LONGEST]


def _keep(folder: Path, kind: str, data: bytes) -> None:
    file = folder / hashlib.sha256(kind.encode()).hexdigest()[:12]
    if not file.exists() or file.stat().st_size > len(data):
        file.write_bytes(data)


if __name__ == "__main__":
    module, name, seconds, seed, *folders = sys.argv[1:]
    main(module, name, int(seconds), int(seed), *map(Path, folders))
