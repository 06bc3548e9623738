"""This project's tasks: all of openpai_tasks, the benchmarks, and the documentation."""

import shlex
import sys
from pathlib import Path

from invoke import Collection

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


@task(help={"to": "the folder to write it into (default: site)"})
def build(c, to=None):
    """Build the documentation site; every warning is an error."""
    _mkdocs(c, "build", *(["--site-dir", str(Path(to).resolve())] if to else []))


@task(help={"port": "port of this machine"})
def serve(c, port=8000):
    """Show the documentation site in a browser, and build it again whenever a file changes."""
    _mkdocs(c, "serve", "--no-strict", "--dev-addr", f"127.0.0.1:{port}")


@task
def commands(c):
    """Write docs/commands.md, the list of all commands."""
    c.run(shlex.join([sys.executable, "-m", "docsite.commands"]))


@task(help={"to": "the folder to write them into"})
def screenshots(c, to="docs/images"):
    """Take the pictures of the portal for the documentation."""
    c.run(shlex.join([sys.executable, "-m", "tests.portal.screenshots", to]))


@task(help={"to": "the file to write"})
def recording(c, to="docs/images/session.svg"):
    """Record a session on a terminal as an animated picture for the README."""
    c.run(shlex.join([sys.executable, "-m", "tests.recording", to]))


def _mkdocs(c, *words):
    quiet = {"NO_MKDOCS_2_WARNING": "1"}  # an announcement of the theme's next generation
    with c.cd(str(Path(__file__).parent)):
        c.run(shlex.join([sys.executable, "-m", "mkdocs", *words]), env=quiet)


docs = Collection("docs", build, serve, commands, screenshots, recording)
docs.__doc__ = "Build the documentation."
ns = namespace(bench, docs)
