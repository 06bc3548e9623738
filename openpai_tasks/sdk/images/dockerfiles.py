"""Write a Dockerfile with the packages that a job needs."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from openpai_tasks.errors import ConfigError, PathError
from openpai_tasks.sdk.images.programs import check_reference

_APT = re.compile(r"[a-z0-9][a-z0-9+.-]+(?::[a-z0-9-]+)?(?:=[A-Za-z0-9.+:~-]+|/[A-Za-z0-9.-]+)?")
_PIP_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_PIP_VERSION = r"\s*(?:===|~=|==|!=|<=|>=|<|>)\s*[A-Za-z0-9.*+!_-]+"
_PIP_MARKER = r"""\s*;[A-Za-z0-9_.'"<>=!~ ()-]+"""
_PIP = re.compile(
    rf"{_PIP_NAME}(?:\[{_PIP_NAME}(?:\s*,\s*{_PIP_NAME})*\])?"
    rf"(?:(?:{_PIP_VERSION}(?:\s*,{_PIP_VERSION})*)?|\s*@\s*(?:git\+)?https?://[^\s'\"\\$`]+)(?:{_PIP_MARKER})?"
)
SSH_PACKAGES = ("curl", "openssh-server")

_HEAD = "# Written by `container.dockerfile`; build it with `pai container.build --tag NAME`.\nFROM {base}\n"
_APT_STEP = """
RUN apt-get update \\
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \\
{packages} \\
 && rm -rf /var/lib/apt/lists/*
"""
_SSH_STEP = "\nRUN mkdir -p /run/sshd\n"
_PIP_STEP = """
RUN {python} -m pip install --no-cache-dir \\
{packages}
"""


def dockerfile(
    base: str, pip: Sequence[str] = (), apt: Sequence[str] = (), ssh: bool = False, python: str = "python3"
) -> str:
    """Return the text of a Dockerfile; check every name, as it becomes part of a shell command."""
    made = _HEAD.format(base=check_reference(base, "--base"))
    wanted = [_check(_APT, name, "--apt", "a Debian package such as git or git=1:2.39") for name in apt]
    debian = list(dict.fromkeys([*(SSH_PACKAGES if ssh else ()), *wanted]))
    if debian:
        made += _APT_STEP.format(packages=_lines(debian))
    if ssh:
        made += _SSH_STEP
    if pip:
        packages = [_check(_PIP, name, "--pip", "a package such as torch or 'torch>=2'") for name in pip]
        program = _check(re.compile(r"[A-Za-z0-9_./-]+"), python, "python", "the name of a program")
        made += _PIP_STEP.format(python=program, packages=_lines(packages))
    return made


def _check(pattern: re.Pattern[str], text: str, where: str, what: str) -> str:
    if not pattern.fullmatch(text):
        raise ConfigError(f"{where} needs {what}, got {text!r}")
    return text


def _lines(packages: Iterable[str]) -> str:
    return " \\\n".join(f"    {shlex.quote(package)}" for package in packages)


def write_dockerfile(path: Path, text: str, replace: bool) -> None:
    """Write the file atomically; ``replace`` allows overwriting."""
    if path.is_dir():
        raise PathError(f"{path} is a folder; name the file to write with --file")
    if not replace and os.path.lexists(path):
        raise PathError(f"{path} exists; overwrite it with --yes or name another file with --file")
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        aside.write_text(text, encoding="utf-8")
        os.replace(aside, path)
    except OSError as err:
        aside.unlink(missing_ok=True)
        raise PathError(f"cannot write {path}: {err.strerror}") from err
