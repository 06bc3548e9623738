"""This project's tasks: everything that openpai_tasks brings, and its benchmarks."""

import shlex
import sys

from openpai_tasks.tasks import namespace, task


@task(
    help={
        "topics": "what to measure, separated by commas; default: everything",
        "rounds": "of each comparison",
    }
)
def bench(c, topics="", rounds=5):
    """Measure our speed beside other tools."""
    c.run(
        shlex.join(
            [sys.executable, "-m", "benchmarks", "--rounds", str(rounds), *filter(None, topics.split(","))]
        )
    )


ns = namespace(bench)
