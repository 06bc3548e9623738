"""Our file of hosts, taken apart: a block for each job, a section for each host in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from openpai_tasks.sdk.ssh.user_files import read, replace
from openpai_tasks.settings.home import home, locked

HEAD = "# Hosts of jobs, written by `container.ssh-config`; changes made here are lost.\n"
GATEWAY = "openpai-gateway-"
"""What the names of hosts that others are reached through begin with."""
_BLOCK = re.compile(r"^# job (\S+) (\S+)\n", re.M)
_SECTION = re.compile(r"^(?=Host )", re.M)
_KEPT_UNDER = re.compile(r"^[ #]*HostKeyAlias (\S+)$", re.M)

Whose = tuple[str, str]
"""Cluster and key of a job."""
Block = tuple[Whose, str]
"""Whose it is, and its text."""


def config_path() -> Path:
    return home() / "ssh" / "config"


def kept() -> list[Block]:
    """The blocks of the file."""
    return blocks(read(config_path()))


def write(texts: Iterable[str]) -> None:
    """Replace the file by these blocks, under its lock."""
    replace(config_path(), "\n".join([HEAD, *texts]))


def drop(is_over: Callable[[Whose], bool]) -> list[Block]:
    """Take blocks out of the file; those that were."""
    if not any(is_over(whose) for whose, _ in kept()):
        return []
    with locked(config_path()):
        found = kept()
        write(text for whose, text in found if not is_over(whose))
    return [block for block in found if is_over(block[0])]


def blocks(text: str) -> list[Block]:
    pieces = _BLOCK.split(text)[1:]
    whole = zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True)
    return [((alias, key), f"# job {alias} {key}\n{rest.rstrip()}\n") for alias, key, rest in whole]


def names(block: str) -> set[str]:
    """What the containers in it are called."""
    lines = [line.split()[1:] for line in block.splitlines() if line.startswith("Host ")]
    return {name for found in lines for name in found if not name.startswith(GATEWAY)}


def kept_under(block: str) -> list[str]:
    """What the host keys of its containers are kept under."""
    return _KEPT_UNDER.findall(block)


def without_names(block: str, taken: Collection[str]) -> str:
    """The block without these names; of a host without any, only what its key is kept under is left."""
    head, *sections = _SECTION.split(block)
    return head + "".join(_without_names(section, taken) for section in sections)


def _without_names(section: str, taken: Collection[str]) -> str:
    first, _, rest = section.partition("\n")
    left = [name for name in first.split()[1:] if name not in taken]
    if left:
        return f"Host {' '.join(left)}\n{rest}"
    return "".join(f"# HostKeyAlias {name}\n" for name in kept_under(rest))
