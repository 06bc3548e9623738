"""Read and write our ssh hosts file: a block for each job, with a section for each host."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from openpai_tasks.sdk.ssh.user_files import read, replace
from openpai_tasks.settings.home import home, locked

HEAD = "# Hosts of jobs, written by `container.ssh-config`; changes here are lost.\n"
GATEWAY = "openpai-gateway-"
"""Prefix of gateway host names."""
_BLOCK = re.compile(r"^# job (\S+) (\S+)\n", re.M)
_SECTION = re.compile(r"^(?=Host )", re.M)
_KEY_ALIAS = re.compile(r"^[ #]*HostKeyAlias (\S+)$", re.M)

JobId = tuple[str, str]
"""Cluster and key of a job."""
Block = tuple[JobId, str]
"""A job and the text of its block."""


def config_path() -> Path:
    return home() / "ssh" / "config"


def read_blocks() -> list[Block]:
    """Return the blocks of the file."""
    pieces = _BLOCK.split(read(config_path()))[1:]
    whole = zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True)
    return [((alias, key), f"# job {alias} {key}\n{rest.rstrip()}\n") for alias, key, rest in whole]


def write_blocks(texts: Iterable[str]) -> None:
    """Write the file with these blocks; the caller holds its lock."""
    replace(config_path(), "\n".join([HEAD, *texts]))


def drop_blocks(is_over: Callable[[JobId], bool]) -> list[Block]:
    """Remove blocks from the file and return them."""
    if not any(is_over(job) for job, _ in read_blocks()):
        return []
    with locked(config_path()):
        found = read_blocks()
        write_blocks(text for job, text in found if not is_over(job))
    return [block for block in found if is_over(block[0])]


def host_names(block: str) -> set[str]:
    """Return the host names of the containers in the block."""
    lines = [line.split()[1:] for line in block.splitlines() if line.startswith("Host ")]
    return {name for found in lines for name in found if not name.startswith(GATEWAY)}


def key_aliases(block: str) -> list[str]:
    """Return the names of the containers' host keys."""
    return _KEY_ALIAS.findall(block)


def without_names(block: str, taken: Collection[str]) -> str:
    """Return the block without these names; of a host without names, only its key alias is left."""
    head, *sections = _SECTION.split(block)
    return head + "".join(_without_names(section, taken) for section in sections)


def _without_names(section: str, taken: Collection[str]) -> str:
    first, _, rest = section.partition("\n")
    left = [name for name in first.split()[1:] if name not in taken]
    if left:
        return f"Host {' '.join(left)}\n{rest}"
    return "".join(f"# HostKeyAlias {name}\n" for name in key_aliases(rest))
