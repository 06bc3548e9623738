"""This project's tasks: everything that openpai_tasks brings, and its benchmarks."""

import shlex
import sys

from openpai_tasks.tasks import namespace, task


@task(
    help={
        "topics": "what to measure, separated by commas; default: everything",
        "rounds": "of each comparison",
        "write": "write docs/performance.md",
    }
)
def bench(c, topics="", rounds=5, write=False):
    """Measure our speed beside other tools."""
    flags = ["--rounds", str(rounds), *(["--write"] if write else [])]
    c.run(shlex.join([sys.executable, "-m", "benchmarks", *flags, *filter(None, topics.split(","))]))


ns = namespace(bench)
