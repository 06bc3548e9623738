"""What a person has for OpenSSH and Fabric, and how both come to read our file of hosts.

Paramiko, and so Fabric, knows no ``Include``: a small ``~/.fabric.py`` has it read our file too.
"""

from __future__ import annotations

import fnmatch
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from openpai_tasks.sdk.ssh.host_blocks import config_path
from openpai_tasks.sdk.ssh.hosts_file import escaped
from openpai_tasks.sdk.ssh.user_files import read, replace
from openpai_tasks.settings.home import locked

_MADE = "# Made by `container.ssh-config`"
FABRIC_LINE = "from openpai_tasks.sdk.fabric_hosts import include; include()"
_FABRIC = f"""\
{_MADE}: Fabric's parser of ~/.ssh/config knows no Include, so this has it read the
# hosts of jobs as well, and the tasks of a project that has a tasks.py alone. Remove this file to undo it.
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
    """The hosts that ~/.ssh/config names itself, without patterns."""
    named = [words for keyword, words in _lines() if keyword == "host"]
    return frozenset(word for words in named for word in words if not re.search(r"[*?!]", word))


def is_included() -> bool:
    """Whether ~/.ssh/config includes our file, where it counts: before any host."""
    for keyword, words in _lines():
        if keyword in ("host", "match"):
            return False
        if keyword == "include" and any(map(_is_ours, words)):
            return True
    return False


def include_hosts() -> Path:
    """Have ~/.ssh/config include our file; it must come first, as of two values the first one counts."""
    path = user_config_path().resolve()  # it may be a link into somebody's collection of such files
    with locked(config_path()):
        before = read(path)
        end = "\r\n" if "\r\n" in before else "\n"
        replace(path, f"{_include()}{end}{end if before else ''}{before}")
    return user_config_path()


def manual_steps() -> str:
    """What a person can do instead."""
    return f"put this line at the top of {user_config_path()}: {_include()}"


def user_config_path() -> Path:
    return Path.home() / ".ssh" / "config"


def fabric_settings() -> Path | None:
    """The file of the person's own settings for Fabric, if there is one: of several, the one it reads."""
    files = [_fabric().with_suffix(end) for end in (".yaml", ".yml", ".json", ".py")]
    first = next((path for path in files if path.exists()), None)
    return None if first is None or read(first).startswith(_MADE) else first


def is_fabric_configured() -> bool:
    """Whether Fabric reads our hosts: by the file that we made, or by a line in that of the person."""
    own = fabric_settings()
    return read(_fabric()) == _FABRIC if own is None else own == _fabric() and "fabric_hosts" in read(own)


def fabric_manual(own: Path) -> str:
    """What a person with such settings can do."""
    if own == _fabric():
        return f"so that Fabric finds them, put this line into your {own}: {FABRIC_LINE}"
    way = f"`fab -S {config_path()} -H HOST` finds them, but takes any host key"
    return f"Fabric reads your {own} and so no {_fabric()}: {way}"


def configure_fabric() -> Path:
    """Make the file for Fabric, or renew the one that is ours."""
    replace(_fabric(), _FABRIC)
    return _fabric()


def _fabric() -> Path:
    return Path.home() / ".fabric.py"


def _lines() -> Iterator[tuple[str, list[str]]]:
    """The keyword and the words of each line, as OpenSSH takes them apart."""
    for line in read(user_config_path()).splitlines():
        keyword, _, rest = re.sub(r"^\s*([A-Za-z]+)\s*[\s=]\s*", r"\1 ", line).partition(" ")
        try:
            yield keyword.lower(), shlex.split(rest, comments=True)
        except ValueError:  # quotes that do not end
            yield keyword.lower(), rest.split()


def _is_ours(pattern: str) -> bool:
    whole = os.path.join(user_config_path().parent, os.path.expanduser(pattern)).replace("%%", "%")
    ours = str(config_path())
    return fnmatch.fnmatchcase(ours, whole) or os.path.realpath(whole) == os.path.realpath(ours)


def _include() -> str:
    return f"Include {escaped(config_path())}"
