"""Wait for jobs and read their output without blocking the event loop.

Requests run in threads, and the pauses between them are the loop's: hundreds of jobs need few threads, and a
wait that is cancelled ends at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from openpai_tasks import sdk
from openpai_tasks.protocol.models import JobInfo

if TYPE_CHECKING:
    from openpai_tasks.backends.base import Backend
    from openpai_tasks.sdk.logs.output import LogChoice

T = TypeVar("T")


async def wait(connect: Callable[[], Backend], name: str, timeout: float | None) -> JobInfo:
    """Wait for a job to end and return it."""
    backend = await asyncio.to_thread(connect)
    last: JobInfo | None = None
    async for step in _in_threads(sdk.jobs.watch_steps(backend, name, timeout)):
        if isinstance(step, JobInfo):
            last = step
        else:
            await asyncio.sleep(step)
    assert last is not None
    return last


async def read_lines(
    connect: Callable[[], Backend], name: str, which: LogChoice, follow: bool, lines: int | None, plain: bool
) -> AsyncIterator[str]:
    """Yield the lines of a job's output, so far or until it ends."""
    backend = await asyncio.to_thread(connect)
    splitter = sdk.logs.LineSplitter()
    steps = sdk.logs.output_steps(backend, name, which, follow, lines, None, plain)
    steps = sdk.logs.add_times(steps, backend.say) if which.timed else steps
    async for chunk in _in_threads(steps):
        for line in splitter.feed(chunk):
            yield line.text
        if chunk.pause:
            await asyncio.sleep(chunk.pause)
    for line in splitter.end():
        yield line.text


async def _in_threads(steps: Iterator[T]) -> AsyncIterator[T]:
    """Yield what an iterator yields; each step, which may send requests, runs in a thread."""
    end: Any = object()
    while (step := await asyncio.to_thread(next, steps, end)) is not end:
        yield step
