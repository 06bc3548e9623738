"""Thread pools for slow handlers, so that many slow calls cannot block the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import anyio
import anyio.to_thread

from openpai_tasks.errors import ApiError

T = TypeVar("T")

PASSWORDS, DOCUMENTS, REMOVALS = "passwords", "documents", "removals"
SIZES = {PASSWORDS: 2, DOCUMENTS: 2, REMOVALS: 4}
MOST_WAITING = 200


class ThreadPools:
    def __init__(self) -> None:
        self._limiters: dict[str, anyio.CapacityLimiter] = {}

    async def run(self, name: str, function: Callable[..., T], *arguments: Any) -> T:
        """Call the function in a thread of this pool, or of the default pool if the name is empty."""
        limiter = self._limiter(name) if name else None
        if limiter and limiter.statistics().tasks_waiting >= MOST_WAITING:
            raise ApiError("Too many such requests at once, please try again later.", 503)
        return await anyio.to_thread.run_sync(function, *arguments, limiter=limiter)

    def _limiter(self, name: str) -> anyio.CapacityLimiter:
        if name not in self._limiters:
            self._limiters[name] = anyio.CapacityLimiter(SIZES[name])  # needs a running event loop
        return self._limiters[name]
