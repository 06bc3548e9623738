"""Once more, after a pause, when that can help."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeVar

from openpai_tasks.errors import ApiError, PaiError, PathError, TooManyRequests, Unreachable

TRIES = 5
FIRST_PAUSE = 0.2  # seconds; each one after it is twice as long

Result = TypeVar("Result")


class Damaged(PathError):
    """What arrived is not what was sent; nothing of it was kept."""


def can_help(err: PaiError) -> bool:
    """Whether the same call may go well the next time: not after a refusal, and not on a full disk."""
    if isinstance(err, (Unreachable, TooManyRequests, Damaged)):
        return True
    return isinstance(err, ApiError) and err.status >= 500


def retrying(act: Callable[[], Result], wait: Callable[[float], bool]) -> Result:
    """What ``act`` brings; ``wait(seconds)`` pauses, and True from it means that nobody waits any more."""
    pause = FIRST_PAUSE
    for _ in range(TRIES - 1):
        try:
            return act()
        except PaiError as err:
            if not can_help(err) or wait(pause * random.uniform(0.75, 1.25)):
                raise
        pause *= 2
    return act()
