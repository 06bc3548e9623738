"""Which ports a task gets: those OpenPAI's hash would give it, or the next ones that are free here."""

from __future__ import annotations

import contextlib
import hashlib
import socket
from collections.abc import Callable, Mapping

from openpai_tasks.errors import ConfigError

FIRST, END = 15000, 40000
ALWAYS = {"ssh": 1, "http": 1}
"""Labels every task has, whatever its document asks for."""


def hashed(uid: str, label: str, number: int) -> int:
    """The port a cluster gives to one numbered port of a label, by the task's uid alone."""
    text = f"[{uid}][{label}][{number}]"
    digest = hashlib.md5(text.encode("utf-8"), usedforsecurity=False).hexdigest()
    parts = (digest[:12], digest[12:24], digest[24:])
    return FIRST + sum(int(part, 16) for part in parts) % (END - FIRST)


def bindable(port: int) -> bool:
    """Whether a program here could listen on it now."""
    with contextlib.closing(socket.socket()) as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def choose(
    uid: str, wanted: Mapping[str, int], taken: set[int], free: Callable[[int], bool] = bindable
) -> dict[str, tuple[int, ...]]:
    """The ports of one task by label; they are added to ``taken``."""
    counts = {**ALWAYS, **{label: max(0, count) for label, count in wanted.items()}}
    return {
        label: tuple(_next(hashed(uid, label, number), taken, free) for number in range(count))
        for label, count in counts.items()
    }


def _next(start: int, taken: set[int], free: Callable[[int], bool]) -> int:
    for step in range(END - FIRST):
        port = FIRST + (start - FIRST + step) % (END - FIRST)
        if port not in taken and free(port):
            taken.add(port)
            return port
    raise ConfigError(f"no free port between {FIRST} and {END - 1}: stop some jobs first")
