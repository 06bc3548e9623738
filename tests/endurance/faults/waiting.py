"""Wait for something that a fault can hurt."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
SECONDS = 10.0


def wait_for(look: Callable[[], list[T]], seconds: float = SECONDS) -> list[T]:
    """Return what there is to hurt, as soon as there is something; nothing if it takes too long."""
    deadline = time.monotonic() + seconds
    while not (there := look()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return there
