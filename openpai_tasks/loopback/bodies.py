"""Limits on the forms of callers who have not signed in."""

from __future__ import annotations

import anyio
from starlette.datastructures import FormData
from starlette.formparsers import MultiPartException
from starlette.requests import Request
from starlette.types import Message

SECONDS = 10.0  # for the whole form to arrive


async def read_small_form(web: Request, limit: int) -> FormData:
    """Read a form without files; raise MultiPartException if it is too large or arrives too slowly."""
    size = 0

    async def receive() -> Message:
        nonlocal size
        message = await web.receive()
        size += len(message.get("body", b""))
        if size > limit:
            raise MultiPartException(f"it is larger than {limit >> 10} KB")
        return message

    try:
        with anyio.fail_after(SECONDS):
            return await Request(web.scope, receive).form(max_files=0, max_part_size=limit)
    except TimeoutError as err:
        raise MultiPartException(f"it did not arrive within {SECONDS:g} s") from err
