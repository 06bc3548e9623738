"""Which ports a task gets: those OpenPAI's hash would give it, or the next ones that are free here."""

from __future__ import annotations

import contextlib
import hashlib
import socket
import time
from collections.abc import Callable, Iterable, Mapping

from openpai_tasks.errors import ConfigError, PaiError

FIRST, END = 15000, 40000
LOOK_AFTER = 5.0  # seconds until a port that another program used may be free again
ALWAYS = {"ssh": 1, "http": 1}
"""Labels every task has, whatever its document asks for."""

Ports = dict[str, tuple[int, ...]]


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


def count(wanted: Mapping[str, int]) -> int:
    """How many ports a task gets that asks for these."""
    return sum(_counts(wanted).values())


class Short(PaiError):
    """There are not enough free ports now; there may be later."""


class PortPool:
    """Which ports are whose; those of other programs are looked for anew from time to time."""

    def __init__(self, free: Callable[[int], bool] = bindable) -> None:
        self._free = free
        self._held: set[int] = set()
        self._others: set[int] = set()
        self._forget_at = 0.0

    def renew(self, held: Iterable[int]) -> None:
        """Learn which ones tasks have, before any are given away."""
        self._held = set(held)
        if time.monotonic() >= self._forget_at:
            self._others.clear()
            self._forget_at = time.monotonic() + LOOK_AFTER

    def take(self, wanted: Mapping[str, Mapping[str, int]]) -> dict[str, Ports]:
        """The ports of several tasks by uid and label: all of them, or none and an error."""
        needed, total = sum(map(count, wanted.values())), END - FIRST
        if needed > total:
            raise ConfigError(
                f"the job asks for {needed} ports with those for ssh and http, and there are {total}"
                " on this machine: ask for fewer"
            )
        taken = self._held | self._others
        if needed > total - len(taken):
            raise Short(f"needs {needed} ports; free on this machine are {total - len(taken)} of {total}")
        chosen = {uid: self._choose(uid, ports, taken) for uid, ports in wanted.items()}
        self._held = taken - self._others
        return chosen

    def _choose(self, uid: str, wanted: Mapping[str, int], taken: set[int]) -> Ports:
        return {
            label: tuple(self._next(hashed(uid, label, number), taken) for number in range(number_of))
            for label, number_of in _counts(wanted).items()
        }

    def _next(self, start: int, taken: set[int]) -> int:
        for step in range(END - FIRST):
            port = FIRST + (start - FIRST + step) % (END - FIRST)
            if port in taken:
                continue
            taken.add(port)
            if self._free(port):
                return port
            self._others.add(port)
        raise Short(f"other programs use {len(self._others)} of the {END - FIRST} ports of this machine")


def _counts(wanted: Mapping[str, int]) -> dict[str, int]:
    return {**ALWAYS, **{label: max(0, number) for label, number in wanted.items()}}
