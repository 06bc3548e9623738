"""How long `inv --list` takes with our tasks, compared with bare Invoke: python benchmarks/startup.py

Three projects, run in turn so that a busy machine disturbs all alike: an almost empty tasks.py, one with
our namespace, and one with our namespace and 70 more tasks of 15 options. The target is 1.15 times bare.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RUNS = 15
TARGET = 1.15
OPTIONS = ", ".join(f"option_{i}={i}" for i in range(15))
BARE = "from invoke import task\n\n@task\ndef hello(c):\n    pass\n"
OURS = "from openpai_tasks.tasks import namespace\n\nns = namespace()\n"
MANY = "from openpai_tasks.tasks import namespace\nimport many\n\nns = namespace(many)\n"


def synthetic(count: int = 70) -> str:
    """A module of many tasks, as it would be in an installed package."""
    helps = ", ".join(f"'option_{i}': 'what it is for'" for i in range(15))
    body = f"(c, {OPTIONS}):\n    'Do it.'\n"
    tasks = [f"@task(help={{{helps}}})\ndef task_{i}{body}" for i in range(count)]
    return "\n".join(["from openpai_tasks.tasks import task", *tasks])


def projects(folder: Path) -> dict[str, Path]:
    """The three projects, by name."""
    for name, text in {"bare": BARE, "ours": OURS, "ours + 70 tasks": MANY}.items():
        (folder / name).mkdir()
        (folder / name / "tasks.py").write_text(text)
    (folder / "ours + 70 tasks" / "many.py").write_text(synthetic())
    return {path.name: path for path in sorted(folder.iterdir())}


def seconds(folder: Path) -> float:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPATH"] = str(ROOT)
    start = time.perf_counter()
    command = [sys.executable, "-m", "invoke", "--list"]
    subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def measure(runs: int = RUNS) -> dict[str, float]:
    """Median seconds of each project; the first round only warms up."""
    with tempfile.TemporaryDirectory() as folder:
        places = projects(Path(folder))
        rounds = [{name: seconds(path) for name, path in places.items()} for _ in range(runs + 1)][1:]
    return {name: statistics.median(row[name] for row in rounds) for name in places}


def main() -> int:
    medians = measure()
    for name, median in medians.items():
        print(f"{name:16} {median * 1000:6.0f} ms  {median / medians['bare']:.3f}")
    return int(any(median > TARGET * medians["bare"] for median in medians.values()))


if __name__ == "__main__":
    sys.exit(main())
