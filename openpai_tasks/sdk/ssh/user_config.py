"""The user's settings for OpenSSH and Fabric, and how both are made to read our hosts file.

Paramiko, and so Fabric, does not support ``Include``; a small ``~/.fabric.py`` makes it read our file too.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from openpai_tasks.sdk.ssh.host_blocks import config_path
from openpai_tasks.sdk.ssh.hosts_file import escape_path
from openpai_tasks.sdk.ssh.user_files import read, replace
from openpai_tasks.settings.home import locked
from openpai_tasks.text import wildcards

_HEADER = "# Made by `container.ssh-config`"
FABRIC_LINE = "from openpai_tasks.sdk.fabric_hosts import include; include()"
_FABRIC = f"""\
{_HEADER}: Fabric's parser of ~/.ssh/config ignores Include, so this file makes it read
# the hosts of jobs, and the tasks of a project that has only a tasks.py. Remove this file to undo it.
try:
    from openpai_tasks.sdk.fabric_hosts import include, tasks_of
except ImportError:
    pass
else:
    include()
    tasks = tasks_of()
    del include, tasks_of
"""


def named_hosts() -> frozenset[str]:
    """Return the hosts in ~/.ssh/config itself, without patterns."""
    named = [words for keyword, words in _lines() if keyword == "host"]
    return frozenset(word for words in named for word in words if not re.search(r"[*?!]", word))


def is_included() -> bool:
    """Return whether ~/.ssh/config includes our file before any host, where it counts."""
    for keyword, words in _lines():
        if keyword in ("host", "match"):
            return False
        if keyword == "include" and any(map(_is_ours, words)):
            return True
    return False


def include_hosts() -> Path:
    """Include our file at the top of ~/.ssh/config, as the first value counts."""
    path = user_config_path().resolve()  # it may be a link into a dotfiles repository
    with locked(config_path()):
        before = read(path)
        end = "\r\n" if "\r\n" in before else "\n"
        replace(path, f"{_include()}{end}{end if before else ''}{before}")
    return user_config_path()


def manual_steps() -> str:
    """Return what the user can do by hand instead."""
    return f"put this line at the top of {user_config_path()}: {_include()}"


def user_config_path() -> Path:
    return Path.home() / ".ssh" / "config"


def fabric_settings() -> Path | None:
    """Return the user's own settings file that Fabric reads, if any."""
    files = [_fabric().with_suffix(end) for end in (".yaml", ".yml", ".json", ".py")]
    first = next((path for path in files if path.exists()), None)
    return None if first is None or read(first).startswith(_HEADER) else first


def is_fabric_configured() -> bool:
    """Return whether Fabric reads our hosts, by our file or by a line in the user's."""
    own = fabric_settings()
    return read(_fabric()) == _FABRIC if own is None else own == _fabric() and "fabric_hosts" in read(own)


def fabric_manual(own: Path) -> str:
    """Return what a user with own Fabric settings can do."""
    if own == _fabric():
        return f"to let Fabric find them, put this line into your {own}: {FABRIC_LINE}"
    command = f"`fab -S {config_path()} -H HOST` finds the hosts, but accepts any host key"
    return f"Fabric reads your {own} instead of {_fabric()}: {command}"


def configure_fabric() -> Path:
    """Write our file for Fabric."""
    replace(_fabric(), _FABRIC)
    return _fabric()


def _fabric() -> Path:
    return Path.home() / ".fabric.py"


def _lines() -> Iterator[tuple[str, list[str]]]:
    """Yield the keyword and arguments of each line, as OpenSSH parses them."""
    for line in read(user_config_path()).splitlines():
        keyword, _, rest = re.sub(r"^\s*([A-Za-z]+)\s*[\s=]\s*", r"\1 ", line).partition(" ")
        try:
            yield keyword.lower(), shlex.split(rest, comments=True)
        except ValueError:  # unbalanced quotes
            yield keyword.lower(), rest.split()


def _is_ours(pattern: str) -> bool:
    if "\0" in pattern:
        return False
    whole = os.path.join(user_config_path().parent, os.path.expanduser(pattern)).replace("%%", "%")
    ours = str(config_path())
    return wildcards.matches(ours, whole) or os.path.realpath(whole) == os.path.realpath(ours)


def _include() -> str:
    return f"Include {escape_path(config_path())}"
