"""What is done again when a connection breaks; copying tries whole files again by itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from openpai_tasks.errors import Unreachable
from openpai_tasks.storage import retry

Result = TypeVar("Result")


def again(begin: Callable[[], Iterator[Result]]) -> Iterator[Result]:
    """What ``begin`` brings; where a connection breaks it is called anew, unless nothing comes for long."""
    tries, pause = retry.TRIES, retry.FIRST_PAUSE
    while True:
        try:
            for item in begin():
                tries, pause = retry.TRIES, retry.FIRST_PAUSE
                yield item
            return
        except Unreachable:
            tries -= 1
            if not tries:
                raise
        paused(pause)
        pause *= 2


def twice(act: Callable[[int], Result]) -> Result:
    """Once more, by a new connection, if the one that was kept turns out dead; ``act`` is told which try."""
    try:
        return act(0)
    except Unreachable:
        return act(1)


def paused(seconds: float) -> bool:
    """Whether somebody ended the pause: nobody does."""
    time.sleep(seconds)
    return False
