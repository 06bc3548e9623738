"""The ports of tasks: those of OpenPAI's hash, or else the next free ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from openpai_tasks.errors import ConfigError
from openpai_tasks.server.engines.base import Ports, PortShortage
from openpai_tasks.server.engines.runner.free_ports import END, FIRST, choose, is_bindable

RECHECK_AFTER = PortShortage.retry_after  # until a port that another program used is tried again
ALWAYS = {"ssh": 1, "http": 1}
"""Labels that every task has, whatever its document asks for."""


def count(wanted: Mapping[str, int]) -> int:
    """Return the number of ports of a task that asks for these."""
    return sum(counts(wanted).values())


class PortPool:
    """The ports in use, by tasks or by other programs; the latter are tried again after a while."""

    def __init__(self, free: Callable[[int], bool] = is_bindable) -> None:
        self._free = free
        self._held: set[int] = set()
        self._others: set[int] = set()
        self._forget_at = 0.0

    def hold(self, held: Iterable[int]) -> None:
        """Learn the ports that tasks have."""
        self._held = set(held)
        if time.monotonic() >= self._forget_at:
            self._others.clear()
            self._forget_at = time.monotonic() + RECHECK_AFTER

    def take(self, wanted: Mapping[str, Mapping[str, int]]) -> dict[str, Ports]:
        """Choose the ports of several tasks, by uid and label: all of them, or raise an error."""
        needed, total = sum(map(count, wanted.values())), END - FIRST
        if needed > total:
            raise ConfigError(
                f"the job asks for {needed} ports with those for ssh and http, and there are {total}"
                " on this machine: ask for fewer"
            )
        taken = self._held | self._others
        if needed > total - len(taken):
            raise PortShortage(
                f"needs {needed} ports; free on this machine are {total - len(taken)} of {total}"
            )
        try:
            chosen = {uid: choose(uid, counts(ports), taken, self._is_free) for uid, ports in wanted.items()}
        except OSError as err:
            raise PortShortage(
                f"other programs use {len(self._others)} of the {total} ports of this machine"
            ) from err
        self._held = taken - self._others
        return chosen

    def _is_free(self, port: int) -> bool:
        is_free = self._free(port)
        if not is_free:
            self._others.add(port)
        return is_free


def counts(wanted: Mapping[str, int]) -> dict[str, int]:
    return {**ALWAYS, **{label: max(0, number) for label, number in wanted.items()}}
