"""This project's tasks: all of openpai_tasks, the benchmarks, and the pictures of the documentation."""

import shlex
import sys

from invoke.collection import Collection

from openpai_tasks.tasks import namespace, task


@task(
    help={
        "topics": "what to measure, separated by commas; default: everything",
        "rounds": "of each comparison; default: 3 to 25, depending on how long one takes",
        "write": "keep the results of these topics, and write docs/performance.md from those of all",
    }
)
def bench(c, topics="", rounds=0, write=False):
    """Measure our speed beside other tools."""
    flags = [*(["--rounds", str(rounds)] if rounds else []), *(["--write"] if write else [])]
    c.run(shlex.join([sys.executable, "-m", "benchmarks", *flags, *filter(None, topics.split(","))]))


@task(help={"to": "the folder to write them into"})
def screenshots(c, to="docs/images"):
    """Take the pictures of the portal for the documentation."""
    c.run(shlex.join([sys.executable, "-m", "tests.portal.screenshots", to]))


@task(help={"to": "the file to write"})
def recording(c, to="docs/images/session.svg"):
    """Record a session on a terminal as an animated picture for the README."""
    c.run(shlex.join([sys.executable, "-m", "tests.recording", to]))


ns = namespace(bench, screenshots, Collection("docs", recording))
