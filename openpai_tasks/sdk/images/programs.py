"""Command lines of docker and podman as argv lists, and parsers for their output."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable, Sequence

from openpai_tasks.errors import ConfigError, PathError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.settings import engines
from openpai_tasks.text.hints import command

BUILD_FILES = ("Dockerfile", "Containerfile")
LONGEST_SECONDS = 2 * 60 * 60  # for a build, a push, or a check that pulls the image first
LIST_SECONDS = 60  # for a list of local images
NO_SUCH_PROGRAM = 127  # exit code of an engine if the image lacks the program to run

_NAME = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]+)?|\[[0-9a-fA-F:]+\](?::[0-9]+)?)"
_REFERENCE = re.compile(
    rf"(?:{_HOST}/)?{_NAME}(?:/{_NAME})*(?::[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?(?:@sha256:[0-9a-f]{{64}})?"
)
_VERSION = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})+(?:p[0-9]{1,9})?")
_FIELDS = ("Repository", "Tag", "ID", "CreatedAt", "Size")
_FORMAT = "\t".join(f"{{{{.{name}}}}}" for name in _FIELDS)
_MARK = "pai-check"


def find_engine(
    wanted: str,
    find: Callable[[str], str | None] = shutil.which,
    is_usable: Callable[[str], bool] = engines.answers,
) -> str:
    """Return the wanted engine, or the first that answers."""
    if wanted == engines.AUTO:
        names, found, hint = engines.PROGRAMS, engines.answering_program(find, is_usable), "install one"
    else:
        names, found = (wanted,), wanted if find(wanted) else ""
        hint = "install it, or set container.engine=auto"
    if not found:
        raise ConfigError(f"{' or '.join(names)} not found on this machine: {hint}")
    return found


def check_reference(text: str, where: str = "the image") -> str:
    """Return the image name if it is valid, so that it can be neither an option nor shell syntax."""
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
    """Return the command that builds the folder's Dockerfile; ``fresh`` ignores earlier builds.

    With ``only_shown`` the file need not exist yet.
    """
    argv = [engine, "build", "--tag", check_reference(tag, "--tag")]
    argv += ["--file", _build_file(folder, file, only_shown)]
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) or not equals:
            raise ConfigError(f"--build-arg needs NAME=VALUE, got {argument!r}")
        argv += ["--build-arg", argument]
    return [*argv, *(["--no-cache", "--pull"] if fresh else []), _as_path(folder)]


def _build_file(folder: str, file: str | None, only_shown: bool) -> str:
    if not os.path.isdir(folder):
        raise PathError(f"no such folder: {folder!r}")
    names = [file] if file else [os.path.join(folder, name) for name in BUILD_FILES]
    for name in names:
        if os.path.isfile(name):
            return _as_path(name)
    if only_shown:
        return _as_path(names[0])
    missing = f"no such file: {file!r}" if file else f"no Dockerfile in {folder!r}"
    raise PathError(f"{missing}; write one with `{command('container.dockerfile')}`")


def _as_path(path: str) -> str:
    return os.path.join(".", path) if path.startswith("-") else path


def push_command(engine: str, image: str) -> list[str]:
    return [engine, "push", check_reference(image)]


def check_push(engine: str, image: str, code: int) -> None:
    """Raise if a push failed, with a hint at the engine's login, which asks for the password itself."""
    if code:
        first, slash, _ = image.partition("/")
        registry = f" {first}" if slash and re.search(r"[.:]|^localhost$", first) else ""
        hint = f"if the registry requires a login, run `{engine} login{registry}`"
        raise ConfigError(f"{image} was not pushed ({engine} exited with {code}); {hint}")


def check_ended(engine: str, action: str, code: int) -> None:
    """Raise if the engine failed, after it has printed the reason; often it is not running."""
    if code:
        raise ConfigError(
            f"{engine} cannot {action} (it exited with {code}); check that it runs with `{engine} info`"
        )


# Listing


@dataclass(frozen=True)
class Image:
    repository: str
    tag: str
    id: str
    created: str
    space: str  # as the engine formats it


def list_command(engine: str, name: str | None = None) -> list[str]:
    return [engine, "images", "--format", _FORMAT, *([check_reference(name)] if name else [])]


def parse_images(text: str) -> list[Image]:
    """Parse the engine's list of images."""
    rows = [line.split("\t") for line in text.splitlines()]
    return [
        Image(repository, tag, id, created[:19], space)
        for repository, tag, id, created, space in (row for row in rows if len(row) == len(_FIELDS))
    ]


# Checking


@dataclass(frozen=True)
class Tool:
    """A program that jobs need in an image, and what for."""

    name: str
    needed_for: str
    version_flag: str = "--version"
    required: bool = True
    for_ssh: bool = False


SSH_TASKS = "`container.ssh` and related tasks"
TOOLS = (
    Tool("sh", "every job"),
    Tool("bash", "every job: OpenPAI runs commands with it"),
    Tool("curl", SSH_TASKS, for_ssh=True),
    Tool("sshd", SSH_TASKS, "-V", for_ssh=True),
    Tool("python3", "`--pip-installs`, notebooks", required=False),
    Tool("sha256sum", "`--sources`"),
    Tool("tar", "`--sources`"),
)


@dataclass(frozen=True)
class ProgramCheck:
    """Whether an image has a program."""

    program: str
    there: bool
    version: str
    required: bool
    needed_for: str


def check_command(engine: str, image: str) -> list[str]:
    """Return a command that looks for the programs with the image's own shell, without network."""
    lines = "\n".join(f"look {tool.name} {tool.version_flag}" for tool in TOOLS)
    run = [engine, "run", "--rm", "--network", "none", "--entrypoint", "sh"]
    return [*run, check_reference(image), "-c", f"{_LOOK_SCRIPT}{lines}"]


_LOOK_SCRIPT = f"""\
PATH=$PATH:/usr/sbin:/usr/local/sbin:/sbin
set -f
look() {{
  command -v "$1" >/dev/null || return 0
  version=$("$1" "$2" 2>&1 </dev/null) || :
  printf '%s' "{_MARK} $1 "
  echo $version
}}
"""


def parse_findings(
    engine: str, image: str, code: int, text: str, with_ssh: bool = True
) -> list[ProgramCheck]:
    """Parse the output of the check; an image without a shell has no usable programs."""
    if code != NO_SUCH_PROGRAM:
        check_ended(engine, f"run the image {image}", code)
    words = (line.split(" ", 2) for line in text.splitlines())
    versions = {row[1]: row[2] for row in words if len(row) == 3 and row[0] == _MARK}
    if code == NO_SUCH_PROGRAM:
        versions = {}
    return [
        ProgramCheck(
            tool.name,
            tool.name in versions,
            _version(versions.get(tool.name, "")),
            tool.required and (with_ssh or not tool.for_ssh),
            tool.needed_for,
        )
        for tool in TOOLS
    ]


def _version(text: str) -> str:
    found = _VERSION.search(text)
    return found[0] if found else ""


def check_findings(image: str, found: Iterable[ProgramCheck]) -> None:
    """Raise if a required program is missing."""
    missing = [one.program for one in found if one.required and not one.there]
    if missing:
        ssh = {tool.name for tool in TOOLS if tool.for_ssh}
        add = f"; add sshd and curl with `{command('container.dockerfile', '--base', image, '--ssh')}`"
        hint = add if ssh & {*missing} else ""
        raise ConfigError(f"{image} lacks {', '.join(missing)}{hint}")
