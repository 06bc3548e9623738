"""The text of our file of hosts, taken apart: a block for each job, a section for each host in it."""

from __future__ import annotations

import re
from collections.abc import Collection

GATEWAY = "openpai-gateway-"
"""What the names of hosts that others are reached through begin with."""
_BLOCK = re.compile(r"^# job (\S+) (\S+)\n", re.M)
_SECTION = re.compile(r"^(?=Host )", re.M)
_KEPT_UNDER = re.compile(r"^[ #]*HostKeyAlias (\S+)$", re.M)

Block = tuple[tuple[str, str], str]
"""Whose it is, by cluster and key of the job, and its text."""


def blocks(text: str) -> list[Block]:
    """The blocks of the file."""
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
