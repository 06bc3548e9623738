"""Images: the command lines of docker and podman, as argv lists, and what their answers say."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from openpai_tasks.errors import ConfigError, PathError

AUTO, ENGINES = "auto", ("docker", "podman")
BUILD_FILES = ("Dockerfile", "Containerfile")
LONGEST = 2 * 60 * 60  # seconds for a build, a push, or a look that fetches the image first
LISTING = 60  # seconds for a list of what is on this machine
NO_SUCH_PROGRAM = 127  # what an engine ends with where the image lacks what it shall run

_NAME = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]+)?|\[[0-9a-fA-F:]+\](?::[0-9]+)?)"
_REFERENCE = re.compile(
    rf"(?:{_HOST}/)?{_NAME}(?:/{_NAME})*(?::[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?(?:@sha256:[0-9a-f]{{64}})?"
)
_VERSION = re.compile(r"[0-9]+(?:\.[0-9]+)+(?:p[0-9]+)?")
_FIELDS = ("Repository", "Tag", "ID", "CreatedAt", "Size")
_FORMAT = "\t".join(f"{{{{.{name}}}}}" for name in _FIELDS)
_MARK = "pai-check"


def find_engine(wanted: str, find: Callable[[str], str | None] = shutil.which) -> str:
    """The program that handles images: the one that is wanted, or the first that is installed."""
    names = ENGINES if wanted == AUTO else (wanted,)
    for name in names:
        if find(name):
            return name
    hint = "install one" if wanted == AUTO else "install it, or set container.engine=auto"
    raise ConfigError(f"there is no {' or '.join(names)} on this machine: {hint}")


def reference(text: str, where: str = "the image") -> str:
    """The name of an image, if it can be one; it then is no option, and nothing a shell would read."""
    if not _REFERENCE.fullmatch(text):
        raise ConfigError(f"{where} needs a name such as lab/train:1 or host:5000/train, got {text!r}")
    return text


# Building and pushing


def build_command(
    engine: str,
    folder: str,
    tag: str,
    file: str | None = None,
    arguments: Sequence[str] = (),
    fresh: bool = False,
    only_shown: bool = False,
) -> list[str]:
    """Build the folder's Dockerfile; ``fresh`` takes nothing from earlier builds.

    Where the command is only shown, its file need not be there yet.
    """
    argv = [engine, "build", "--tag", reference(tag, "--tag")]
    argv += ["--file", _build_file(folder, file, only_shown)]
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) or not equals:
            raise ConfigError(f"--build-arg needs NAME=VALUE, got {argument!r}")
        argv += ["--build-arg", argument]
    return [*argv, *(["--no-cache", "--pull"] if fresh else []), _no_option(folder)]


def _build_file(folder: str, file: str | None, only_shown: bool) -> str:
    if not os.path.isdir(folder):
        raise PathError(f"there is no folder {folder!r} to build an image from")
    names = [file] if file else [os.path.join(folder, name) for name in BUILD_FILES]
    for name in names:
        if os.path.isfile(name):
            return _no_option(name)
    if only_shown:
        return _no_option(names[0])
    missing = f"there is no {file!r}" if file else f"there is no Dockerfile in {folder!r}"
    raise PathError(f"{missing}; `container.dockerfile` writes one")


def _no_option(path: str) -> str:
    return os.path.join(".", path) if path.startswith("-") else path


def push_command(engine: str, image: str) -> list[str]:
    return [engine, "push", reference(image)]


def check_push(engine: str, image: str, code: int) -> None:
    """What to do about a push that failed; the password is asked for by the engine, and by nobody else."""
    if code:
        first, slash, _ = image.partition("/")
        registry = f" {first}" if slash and re.search(r"[.:]|^localhost$", first) else ""
        hint = f"if it asks for a login, `{engine} login{registry}` keeps one"
        raise ConfigError(f"{image} is not pushed ({engine} ended with {code}); {hint}")


def check_ended(engine: str, act: str, code: int) -> None:
    """The engine itself has said why; it is often not running at all."""
    if code:
        raise ConfigError(
            f"{engine} cannot {act} (it ended with {code}); `{engine} info` tells whether it runs"
        )


# Listing


@dataclass(frozen=True)
class Image:
    repository: str
    tag: str
    id: str
    created: str
    space: str  # as the engine says it


def list_command(engine: str, name: str | None = None) -> list[str]:
    return [engine, "images", "--format", _FORMAT, *([reference(name)] if name else [])]


def parse_images(text: str) -> list[Image]:
    """The images that the engine told."""
    rows = [line.split("\t") for line in text.splitlines()]
    return [
        Image(repository, tag, id, created[:19], space)
        for repository, tag, id, created, space in (row for row in rows if len(row) == len(_FIELDS))
    ]


# Checking


@dataclass(frozen=True)
class Tool:
    """A program that jobs use in an image, and what for."""

    name: str
    needed_for: str
    asked: str = "--version"
    required: bool = True
    of_ssh: bool = False


SSH = "`container.ssh` and its kin"
TOOLS = (
    Tool("sh", "every job"),
    Tool("bash", "every job: OpenPAI runs commands with it"),
    Tool("curl", SSH, of_ssh=True),
    Tool("sshd", SSH, "-V", of_ssh=True),
    Tool("python3", "`--pip-installs`, notebooks", required=False),
    Tool("sha256sum", "`--sources`"),
    Tool("tar", "`--sources`"),
)


@dataclass(frozen=True)
class Finding:
    """Whether an image has a program."""

    program: str
    there: bool
    version: str
    required: bool
    needed_for: str


def check_command(engine: str, image: str) -> list[str]:
    """Look at the programs in the image, with nothing but its own shell, and without a network."""
    lines = "\n".join(f"look {tool.name} {tool.asked}" for tool in TOOLS)
    run = [engine, "run", "--rm", "--network", "none", "--entrypoint", "sh"]
    return [*run, reference(image), "-c", f"{_LOOK}{lines}"]


_LOOK = f"""\
PATH=$PATH:/usr/sbin:/usr/local/sbin:/sbin
set -f
look() {{
  command -v "$1" >/dev/null || return 0
  said=$("$1" "$2" 2>&1 </dev/null) || :
  printf '%s' "{_MARK} $1 "
  echo $said
}}
"""


def parse_findings(engine: str, image: str, code: int, text: str, with_ssh: bool = True) -> list[Finding]:
    """What the look brought to light; an image without a shell has nothing that could be used."""
    if code != NO_SUCH_PROGRAM:
        check_ended(engine, f"run the image {image}", code)
    words = (line.split(" ", 2) for line in text.splitlines())
    told = {row[1]: row[2] for row in words if len(row) == 3 and row[0] == _MARK}
    if code == NO_SUCH_PROGRAM:
        told = {}
    return [
        Finding(
            tool.name,
            tool.name in told,
            _version(told.get(tool.name, "")),
            tool.required and (with_ssh or not tool.of_ssh),
            tool.needed_for,
        )
        for tool in TOOLS
    ]


def _version(said: str) -> str:
    found = _VERSION.search(said)
    return found[0] if found else ""


def check_findings(image: str, found: Iterable[Finding]) -> None:
    """Raise when something is missing that jobs cannot do without."""
    missing = [one.program for one in found if one.required and not one.there]
    if missing:
        ssh = {tool.name for tool in TOOLS if tool.of_ssh}
        hint = f"; `container.dockerfile --base {image} --ssh` adds sshd and curl" if ssh & {*missing} else ""
        raise ConfigError(f"{image} lacks {', '.join(missing)}{hint}")
