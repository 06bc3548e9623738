"""This project's tasks: all of openpai_tasks, the benchmarks, and the pictures of the documentation."""

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


@task(help={"to": "the folder to write them into"})
def screenshots(c, to="docs/images"):
    """Take the pictures of the portal for the documentation."""
    c.run(shlex.join([sys.executable, "-m", "tests.portal.screenshots", to]))


ns = namespace(bench, screenshots)
