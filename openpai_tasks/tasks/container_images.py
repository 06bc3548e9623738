"""Write Dockerfiles; build, push, list and check images with docker or podman."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from invoke.exceptions import CommandTimedOut

from openpai_tasks import render, sdk
from openpai_tasks.errors import TimedOut
from openpai_tasks.hints import command
from openpai_tasks.settings.credentials import hidden_environment
from openpai_tasks.tasks.framework import terminal
from openpai_tasks.tasks.framework.base import say, settings, show
from openpai_tasks.tasks.framework.task import task

LISTED = ("repository", "tag", "id", "created", "space")
FOUND = ("program", "there", "version", "required", "needed_for")
STDOUT = "-"


@task(
    positional=["folder"],
    iterable=["build_arg"],
    help={
        "folder": "folder to build the image from (default: this one)",
        "tag": "name of the image, such as lab/train:1",
        "file": "the Dockerfile (default: the one in the folder)",
        "build-arg": "value of an ARG in the Dockerfile, NAME=VALUE, not for secrets; repeat for more",
        "fresh": "use no cache of earlier builds, and pull the newest base image",
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


@task(positional=["image"], help={"image": "name of the image, beginning with its registry"})
def push(c, image):
    """Push an image to its registry, with the login of docker or podman."""
    engine = _engine(c)
    done = _run(c, sdk.images.push_command(engine, image), pty=_is_terminal())
    sdk.images.check_push(engine, image, done.exited)


@task(positional=["name"], help={"name": "only images with this name"})
def images(c, name=None, output=None):
    """List the images on this machine."""
    engine = _engine(c)
    done = _run(c, sdk.images.list_command(engine, name), sdk.images.LIST_SECONDS, hide="out")
    sdk.images.check_ended(engine, "list images", done.exited)
    if not c.config.run.dry:
        show(c, sdk.images.parse_images(done.stdout), LISTED, output)


@task(
    positional=["image"],
    help={"image": "name of the image; pulled if it is not here", "ssh": "also require what ssh needs"},
)
def check(c, image, ssh=True, output=None):
    """Check whether an image has what jobs need: a shell, sshd, curl, python and more."""
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
        "base": "base image (default: the setting `image`)",
        "pip": "Python package to install; repeat for more",
        "apt": "Debian package to install; repeat for more",
        "ssh": "add openssh-server and curl, which OpenPAI needs for ssh logins",
        "file": "the file to write; - prints it",
        "yes": "overwrite an existing file",
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
    say(f"wrote {file}; `{command('container.build')} --tag NAME` builds it")


def _run(c, argv, longest=None, **how):
    """Run a command of the engine, with a time limit that is shown."""
    limit = c.config.timeouts.command or longest or sdk.images.LONGEST_SECONDS
    what = " ".join(argv[:2])
    if not c.config.run.dry:
        say(f"`{what}` may take {render.duration(limit)} (`{command('-T SECONDS ...')}` changes the limit)")
    try:
        alone = hidden_environment()
        return c.run(shlex.join(argv), warn=True, timeout=limit, env=alone, replace_env=True, **how)
    except CommandTimedOut as err:
        raise TimedOut(f"`{what}` did not finish within {render.duration(limit)} and was stopped") from err


def _engine(c):
    return sdk.images.find_engine(settings(c).container_engine)


def _is_terminal():
    return sys.stdin.isatty() and sys.stdout.isatty()
