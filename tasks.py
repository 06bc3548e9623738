"""This project's tasks: all of openpai_tasks, the benchmarks, and the documentation."""

import shlex
import sys
from importlib.util import find_spec
from pathlib import Path

from invoke import Collection

from openpai_tasks.errors import ConfigError
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


@task(
    help={
        "minutes": "how long to go on",
        "seed": "run only the history of this seed and, if it fails, cut it down",
        "first": "begin with the history of this seed (default: a random one)",
        "engine": "what runs the jobs: process, docker, podman, slurm, ssh, ssh-slurm, kubernetes or stores",
        "steady": "run this many jobs without faults instead, and compare memory and open files",
        "faults": "only these kinds of faults, separated by commas",
        "repeat": "repeat a history that fails, and fail only if it fails again",
    }
)
def endure(c, minutes=30, seed=None, first=None, engine="process", steady=0, faults=None, repeat=False):
    """Run random histories of operations and faults, and check what really happened."""
    given = {"minutes": minutes, "seed": seed, "first": first, "engine": engine, "steady": steady}
    given["faults"] = faults
    flags = [word for name, value in given.items() if value for word in (f"--{name}", str(value))]
    flags += ["--repeat"] if repeat else []
    c.run(shlex.join([sys.executable, "-m", "tests.endurance", *flags]))


@task(
    help={
        "minutes": "how long to go on, for all targets together",
        "target": "the name of a target, or a pattern such as hdfs-*; default: all",
        "seed": "start from the same inputs, with the same random numbers",
        "input": "parse only this file, and show where it fails",
    }
)
def fuzz(c, minutes=10, target="", seed=None, input=None):
    """Give changed bytes to every parser of foreign bytes, guided by coverage."""
    values = {"--target": target, "--seed": seed, "--input": input}
    flags = [word for flag, value in values.items() if value for word in (flag, value)]
    c.run(shlex.join([sys.executable, "-m", "tests.fuzz", "--minutes", str(minutes), *flags]))


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


@task
def troubleshooting(c):
    """Write docs/troubleshooting.md from the table of causes."""
    c.run(shlex.join([sys.executable, "-m", "docsite.troubleshooting"]))


@task(help={"to": "the folder to write them into"})
def screenshots(c, to="docs/images"):
    """Take the pictures of the portal for the documentation."""
    c.run(shlex.join([sys.executable, "-m", "tests.portal.screenshots", to]))


@task(help={"to": "the animated picture to write; the still one is next to it"})
def recording(c, to="docs/images/session.svg"):
    """Record a session on a terminal as an animated and a still picture for the README."""
    c.run(shlex.join([sys.executable, "-m", "tests.recording", to]))


def _mkdocs(c, *words):
    if not all(map(find_spec, ("mkdocs", "material", "mkdocstrings"))):
        raise ConfigError("the packages of the documentation are missing: `pip install -e '.[docs]'`")
    quiet = {"NO_MKDOCS_2_WARNING": "1"}  # an announcement of the theme's next generation
    with c.cd(str(Path(__file__).parent)):
        c.run(shlex.join([sys.executable, "-m", "mkdocs", *words]), env=quiet)


docs = Collection("docs", build, serve, commands, troubleshooting, screenshots, recording)
docs.__doc__ = "Build the documentation."
ns = namespace(bench, docs, endure, fuzz)
