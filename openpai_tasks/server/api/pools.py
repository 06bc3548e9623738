"""Thread pools for slow handlers, so that many slow calls cannot block the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import anyio
import anyio.to_thread

from openpai_tasks.errors import ApiError
from openpai_tasks.server.api.handlers import authn, jobs, jobs_v1, users

T = TypeVar("T")

PASSWORDS, DOCUMENTS, REMOVALS = "passwords", "documents", "removals"
SIZES = {PASSWORDS: 2, DOCUMENTS: 2, REMOVALS: 4}
MOST_WAITING = 200
POOL_OF_HANDLER: dict[Callable[..., Any], str] = {
    authn.login: PASSWORDS,
    users.create_user: PASSWORDS,
    users.update_user: PASSWORDS,
    users.update_me: PASSWORDS,
    users.set_password: PASSWORDS,
    jobs.submit: DOCUMENTS,
    jobs.get_config: DOCUMENTS,
    jobs_v1.submit: DOCUMENTS,
    jobs_v1.submit_either: DOCUMENTS,
    jobs_v1.get_config: DOCUMENTS,
    jobs_v1.get_document: DOCUMENTS,
    jobs_v1.remove: REMOVALS,  # it waits for the end of the job
}


class ThreadPools:
    def __init__(self) -> None:
        self._limiters: dict[str, anyio.CapacityLimiter] = {}

    async def run(self, handler: Callable[..., Any] | None, function: Callable[..., T], *arguments: Any) -> T:
        """Call the function in a thread of the handler's pool, or of the default pool."""
        name = POOL_OF_HANDLER.get(handler, "") if handler else ""
        limiter = self._limiter(name) if name else None
        if limiter and limiter.statistics().tasks_waiting >= MOST_WAITING:
            raise ApiError("Too many such requests at once, please try again later.", 503)
        return await anyio.to_thread.run_sync(function, *arguments, limiter=limiter)

    def _limiter(self, name: str) -> anyio.CapacityLimiter:
        if name not in self._limiters:
            self._limiters[name] = anyio.CapacityLimiter(SIZES[name])  # needs a running event loop
        return self._limiters[name]
