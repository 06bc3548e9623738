"""``with`` blocks that are ending with an error at this moment.

Those of fsspec and pandas then just close their files, as after a success.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import FrameType


def failures() -> list[BaseException]:
    """Return the errors of these blocks."""
    return [error for frame in _frames() for error in _failing(frame)]


def is_cut_short() -> bool:
    """Whether fsspec's cache sends a file only because a failing block closes it."""
    from fsspec.implementations.cached import LocalTempFile  # type: ignore[import-untyped]

    frames = iter(_frames())
    is_cached = any(frame.f_code is LocalTempFile.commit.__code__ for frame in frames)
    closing = next((frame for frame in frames if _is_exit(frame)), None) if is_cached else None
    return closing is not None and bool(_failing(closing))


def _frames() -> Iterator[FrameType]:
    frame = inspect.currentframe()
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_exit(frame: FrameType) -> bool:
    return frame.f_code.co_name in ("__exit__", "__aexit__")


def _failing(frame: FrameType) -> list[BaseException]:
    """Return the errors passed to an ``__exit__`` method."""
    if not _is_exit(frame):
        return []
    given = inspect.getargvalues(frame)
    values = [given.locals.get(name) for name in given.args]
    values += given.locals.get(given.varargs, ()) if given.varargs else ()
    return [value for value in values if isinstance(value, BaseException)]
