"""Images: write a Dockerfile, build, push, list and check, with docker or podman."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from invoke.exceptions import CommandTimedOut

from openpai_tasks import render, sdk
from openpai_tasks.errors import TimedOut
from openpai_tasks.tasks.framework import terminal
from openpai_tasks.tasks.framework.base import say, settings, show, task

LISTED = ("repository", "tag", "id", "created", "space")
FOUND = ("program", "there", "version", "required", "needed_for")
STDOUT = "-"


@task(
    positional=["folder"],
    iterable=["build_arg"],
    help={
        "folder": "the folder that the image is built from; this one if not given",
        "tag": "what the image shall be called, such as lab/train:1",
        "file": "the Dockerfile, if it isn't the folder's own",
        "build-arg": "value for an ARG of the Dockerfile, NAME=VALUE, no secret; repeat for more",
        "fresh": "take nothing from earlier builds, and the newest base",
    },
)
def build(c, folder=".", tag="", file=None, build_arg=None, fresh=False):
    """Build an image from a folder with a Dockerfile."""
    engine = _engine(c)
    argv = sdk.images.build_command(
        engine, folder, tag, file, build_arg or (), fresh, only_shown=c.config.run.dry
    )
    done = _run(c, argv, pty=_is_terminal())
    sdk.images.check_ended(engine, f"build {tag}", done.exited)


@task(positional=["image"], help={"image": "its name, which begins with the registry it goes to"})
def push(c, image):
    """Send an image to its registry; the engine's own `login` is used."""
    engine = _engine(c)
    done = _run(c, sdk.images.push_command(engine, image), pty=_is_terminal())
    sdk.images.check_push(engine, image, done.exited)


@task(positional=["name"], help={"name": "only images of this name"})
def images(c, name=None, output=None):
    """Show the images on this machine."""
    engine = _engine(c)
    done = _run(c, sdk.images.list_command(engine, name), sdk.images.LIST_SECONDS, hide="out")
    sdk.images.check_ended(engine, "list images", done.exited)
    if not c.config.run.dry:
        show(c, sdk.images.parse_images(done.stdout), LISTED, output)


@task(
    positional=["image"],
    help={"image": "its name; it is fetched if it is not here", "ssh": "whether what ssh needs is required"},
)
def check(c, image, ssh=True, output=None):
    """Look whether an image has what jobs need: a shell, sshd, curl, python and more."""
    engine = _engine(c)
    done = _run(c, sdk.images.check_command(engine, image), hide="out")
    if c.config.run.dry:
        return
    found = sdk.images.parse_findings(engine, image, done.exited, done.stdout, ssh)
    show(c, found, FOUND, output)
    sdk.images.check_findings(image, found)


@task(
    iterable=["pip", "apt"],
    help={
        "base": "the image to begin with; the setting `image` if not given",
        "pip": "Python package to install; repeat for more",
        "apt": "Debian package to install; repeat for more",
        "ssh": "add openssh-server and curl, which OpenPAI needs to let you in",
        "file": "the file to write; - prints it",
        "yes": "write over a file that is there",
    },
)
def dockerfile(c, base=None, pip=None, apt=None, ssh=False, file="Dockerfile", yes=False):
    """Write a Dockerfile with the packages that a job needs."""
    given = settings(c)
    text = sdk.images.dockerfile(base or given.image, pip or (), apt or (), ssh, given.python)
    if file == STDOUT or c.config.run.dry:
        terminal.exact(text)
        return
    sdk.images.write_dockerfile(Path(file), text, yes)
    say(f"wrote {file}; `container.build --tag NAME` builds it")


def _run(c, argv, longest=None, **how):
    """Run what may wait for an engine or a network, and for how long at most is told."""
    limit = c.config.timeouts.command or longest or sdk.images.LONGEST_SECONDS
    what = " ".join(argv[:2])
    if not c.config.run.dry:
        say(f"`{what}` has {render.duration(limit)} to end (`inv -T SECONDS` sets another limit)")
    try:
        return c.run(shlex.join(argv), warn=True, timeout=limit, **how)
    except CommandTimedOut as err:
        raise TimedOut(f"`{what}` did not end within {render.duration(limit)}; it was ended") from err


def _engine(c):
    return sdk.images.find_engine(settings(c).container_engine)


def _is_terminal():
    return sys.stdin.isatty() and sys.stdout.isatty()
