"""The PaddleCloud API of the embedded cluster, below a prefix of the same server.

A submission becomes a job document with the task roles ``trainer`` and ``pserver``, so that the scheduler,
the engines, OpenPAI's API and the portal see an ordinary job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from openpai_tasks.server.api.context import Context


def build(context: Context) -> ASGIApp:
    """Return the application; its modules are loaded by the first call."""
    found: list[ASGIApp] = []

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if not found:
            from openpai_tasks.server.paddlecloud.app import PaddleCloudApp

            found.append(PaddleCloudApp(context))
        await found[0](scope, receive, send)

    return answer
