"""Notify the hooks of jobs: a thread that is asleep until a delivery is due.

A delivery is in the database until it has succeeded or was given up, so each is attempted at least once,
also if the server is killed.
"""

from __future__ import annotations

import logging
import os
import shlex
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlencode

from openpai_tasks.hooks.delivery import DeliveryFailed, deliver
from openpai_tasks.hooks.hook import Hook
from openpai_tasks.hooks.messages import Facts
from openpai_tasks.portal import starting
from openpai_tasks.server.state.job_hooks import CHECK, Delivery, read_facts
from openpai_tasks.server.state.state import State, now
from openpai_tasks.server.variables import for_tasks

log = logging.getLogger(__name__)

ALIAS = "local"
AT_ONCE = 4
FIRST_PAUSE, LONGEST_PAUSE = 5_000, 3_600_000  # ms before the second attempt, and at most
GIVE_UP_AFTER = 24 * 3_600_000  # ms
RETRY_SECONDS = 5.0  # after an error of the database
CLOCK_SECONDS = 10.0  # after which the clock is read again, as it can be set


class Deliveries:
    """The thread; ``link`` returns the page of a job, or the command that explains it."""

    def __init__(self, state: State, link: Callable[[Facts], str]) -> None:
        self._state, self._table, self._link = state, state.hooks, link
        self._woken, self._closing = threading.Event(), False
        self._thread = threading.Thread(target=self._run, name="deliveries", daemon=True)
        self._table.woken = self._woken.set

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """End the thread; what is being sent is sent again at the next start, unless it ends soon."""
        self._closing = True
        self._woken.set()
        if self._thread.is_alive():
            self._thread.join(timeout=1)

    def _run(self) -> None:
        while not self._closing:
            self._woken.clear()
            try:
                pause = self._turn()
            except Exception:  # the next turn may succeed
                log.exception("cannot notify hooks")
                pause = RETRY_SECONDS
            self._woken.wait(pause)

    def _turn(self) -> float | None:
        """Attempt what is due; return the seconds until more is, None if there is nothing left."""
        while not self._closing and (found := self._due()):
            threads = [threading.Thread(target=self._attempt, args=[one], daemon=True) for one in found]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        due = self._table.next_due()
        return None if due is None else min(max(0.0, (due - now()) / 1000), CLOCK_SECONDS)

    def _due(self) -> list[Delivery]:
        return self._table.due(now(), AT_ONCE, FIRST_PAUSE, LONGEST_PAUSE)

    def _attempt(self, delivery: Delivery) -> None:
        """Notify a hook once; afterwards, the delivery is gone or due later."""
        try:
            if delivery.event == CHECK:
                self._table.check_sweep(delivery, now())
            elif hook := self._table.hook(delivery):
                self._notify(delivery, hook)
        except Exception:  # such as a database that is being closed; the next attempt may succeed
            if not self._closing:
                log.exception("cannot notify a hook")
                self._woken.clear()
                self._woken.wait(RETRY_SECONDS)

    def _notify(self, delivery: Delivery, hook: Hook) -> None:
        facts = read_facts(delivery.facts) if delivery.facts else self._table.waiting_facts(delivery, now())
        if facts is not None:
            begun = self._table.begin(delivery, now() + pause_after(delivery.tries))
            problem = self._send(hook, facts, begun)
            if problem and problem.again and now() - begun.created < GIVE_UP_AFTER:
                return
            if problem:
                self._report(begun, hook, problem)
        self._table.remove(delivery)

    def _send(self, hook: Hook, facts: Facts, delivery: Delivery) -> DeliveryFailed | None:
        facts = replace(facts, link=self._link(facts))
        try:
            deliver(hook, facts, for_tasks(os.environ), delivery.id, delivery.tries)
        except DeliveryFailed as err:
            return err
        return None

    def _report(self, delivery: Delivery, hook: Hook, problem: DeliveryFailed) -> None:
        tries = f" after {delivery.tries} attempts" if delivery.tries > 1 else ""
        message = f"{hook.label} was not notified of the {delivery.event}{tries}: {problem}"
        self._state.add_event(delivery.job, "Warning", "NotNotified", message)


def pause_after(tries: int) -> int:
    """Return the pause in ms before the attempt that follows this many and one."""
    return min(LONGEST_PAUSE, FIRST_PAUSE << 2 * min(tries, 6))


def job_link(home: Path, facts: Facts) -> str:
    """Return the page of a job in the user's portal if one runs, or the command that explains its state."""
    is_local = home.name == ALIAS  # portals show other servers under names that are unknown here
    uri = starting.running_portal(home.parent) if is_local and not facts.jobs else ""
    if uri:
        values = {"username": facts.user, "jobName": facts.name, "cluster": ALIAS}
        return f"{uri}/job-detail.html?{urlencode(values)}"
    return f"pai {'job.results' if facts.jobs else 'job.why'} {shlex.quote(facts.name)}"
