"""Start-up: `inv --list` beside bare Invoke, and commands that ask the cluster beside `import invoke`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.side_by_side import OURS, Comparison, Turn

ROOT = Path(__file__).resolve().parent.parent
ROUNDS = 25
OPTIONS = ", ".join(f"option_{i}={i}" for i in range(15))
BARE = "from invoke import task\n\n@task\ndef hello(c):\n    pass\n"
OWN = "from openpai_tasks.tasks import namespace\n\nns = namespace()\n"
MANY = "from openpai_tasks.tasks import namespace\nimport many\n\nns = namespace(many)\n"


def comparisons(folder: Path) -> Iterator[Comparison]:
    bare, own, many = projects(folder).values()
    listing = [sys.executable, "-m", "invoke", "--list"]
    peers, goal = {"bare Invoke": python(listing, bare)}, {"bare Invoke": 1.10}
    yield Comparison("inv --list", {OURS: python(listing, own), **peers}, goal, rounds=ROUNDS)
    yield Comparison("inv --list, 70 tasks more", {OURS: python(listing, many), **peers}, rounds=ROUNDS)
    yield from commands(folder)


def commands(folder: Path) -> Iterator[Comparison]:
    """Yield comparisons of commands that talk to the embedded cluster."""
    pai = [sys.executable, "-m", "openpai_tasks"]
    home = {"OPENPAI_HOME": str(folder / "home")}
    importing = {"import invoke": python([sys.executable, "-c", "import invoke"], folder)}
    try:
        python([*pai, "cluster.start"], folder, **home)()
        for line, goal in ((["job.list"], 1.25), (["job.sub", "true"], 2.0)):
            contenders = {OURS: python([*pai, *line], folder, **home), **importing}
            yield Comparison(f"pai {' '.join(line)}", contenders, {"import invoke": goal}, rounds=ROUNDS)
    finally:
        python([*pai, "cluster.stop"], folder, **home)()


def synthetic(count: int = 70) -> str:
    """Return a module of many tasks, as an installed package would have it."""
    helps = ", ".join(f"'option_{i}': 'what it is for'" for i in range(15))
    body = f"(c, {OPTIONS}):\n    'Do it.'\n"
    tasks = [f"@task(help={{{helps}}})\ndef task_{i}{body}" for i in range(count)]
    return "\n".join(["from openpai_tasks.tasks import task", *tasks])


def projects(folder: Path) -> dict[str, Path]:
    """Create three projects: without our tasks, with them, and with 70 more."""
    for name, text in {"bare": BARE, "ours": OWN, "ours and 70 more": MANY}.items():
        (folder / name).mkdir()
        (folder / name / "tasks.py").write_text(text)
    (folder / "ours and 70 more" / "many.py").write_text(synthetic())
    return {path.name: path for path in sorted(folder.iterdir())}


def python(command: list[str], folder: Path, **variables: str) -> Turn:
    """Return a turn that runs the command; bytecode is written, as it is for an installed package."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PYTHONPATH": str(ROOT), **variables}

    def turn() -> None:
        subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)

    return turn
