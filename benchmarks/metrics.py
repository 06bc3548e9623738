"""Metrics: a training that records a point at each step, beside the same training that records none.

It is as small as trainings get: two layers, for pictures of 28 by 28 points, in batches of 64.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.side_by_side import OURS, Comparison, Turn

RUNTIME = Path(__file__).resolve().parent.parent / "openpai_tasks"
TRAINING = """
import sys, time
sys.path.insert(0, sys.argv[1])
import numpy, runtime

steps, records = int(sys.argv[2]), sys.argv[3] == "yes"
chance = numpy.random.default_rng(0)
inputs, wanted = chance.normal(size=(64, 784)), chance.normal(size=(64, 10))
first, second = chance.normal(size=(784, 128)) / 28, chance.normal(size=(128, 10)) / 11
begun = time.process_time()
for step in range(steps):
    hidden = numpy.maximum(inputs @ first, 0)
    error = hidden @ second - wanted
    loss = float((error * error).mean())
    back = (error @ second.T) * (hidden > 0)
    second -= 0.0001 * hidden.T @ error
    first -= 0.0001 * inputs.T @ back
    if records:
        runtime.log_metric("loss", loss, step=step)
runtime.flush()
print(time.process_time() - begun)
"""


def comparisons(folder: Path, steps: int = 3_000) -> Iterator[Comparison]:
    turns = {OURS: training(folder, steps, "yes"), "without metrics": training(folder, steps, "no")}
    yield Comparison("training with metrics", turns, {"without metrics": 1.05}, steps, "steps")


def training(folder: Path, steps: int, records: str) -> Turn:
    """Return a turn that measures the processor time of a training, with that of the writing thread."""
    variables = {"PAI_JOB_NAME": "me~bench", "PAI_OUTPUT_DIR": str(folder), "OPENBLAS_NUM_THREADS": "1"}

    def take() -> float:
        line = [sys.executable, "-c", TRAINING, str(RUNTIME), str(steps), records]
        done = subprocess.run(
            line, env={**os.environ, **variables}, check=True, capture_output=True, text=True
        )
        return float(done.stdout)

    return take
