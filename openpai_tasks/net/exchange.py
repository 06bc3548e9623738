"""Limits of one exchange with a server: seconds of silence, seconds in total, and bytes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

CONNECT_SECONDS = 10.0
TOTAL = 4  # an exchange may take this many times the seconds of silence in total
STREAM_STEP = 1 << 16  # bytes of a stream that must arrive within the time of one exchange
OVERHEAD = 1 << 18  # bytes on the wire besides the content: headers, chunk sizes


class DeadlineExceeded(TimeoutError):
    """Raised when the server keeps sending but does not complete its answer in time."""


class AnswerTooLarge(OSError):
    """The server sent more bytes than an answer may have."""


class Exchange:
    """The limits of one request and its answer, checked at each send and receive.

    With ``is_secret``, only the server is logged, as the rest of the address is a secret.
    """

    def __init__(self, silence: float, seconds: float | None = None, is_secret: bool = False) -> None:
        self.silence, self.is_secret = silence, is_secret
        self.seconds = TOTAL * silence if seconds is None else seconds
        self.renew()

    def renew(self) -> None:
        """Start the clock and allow no content yet."""
        self._end = time.monotonic() + self.seconds
        self._streamed = 0
        self.allow(0)

    def allow(self, content: int) -> None:
        """Allow a number of bytes of content from now on."""
        self._room = 6 * content + OVERHEAD  # a chunk of one byte has five around it

    def time_left(self) -> float:
        """Return the seconds that the next send or receive may take."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise DeadlineExceeded(f"no complete answer within {self.seconds:g} s")
        return min(self.silence, left)

    def count_received(self, size: int) -> None:
        """Count received bytes."""
        self._room -= size
        if self._room < 0:
            raise AnswerTooLarge("its answer is too large")

    def count_streamed(self, size: int) -> None:
        """Count content of a stream; each step of it gets the time and bytes of a new exchange."""
        self._streamed += size
        if self._streamed >= STREAM_STEP:
            self.renew()
            self.allow(STREAM_STEP)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the clock while the content is used."""
        begun = time.monotonic()
        yield
        self._end += time.monotonic() - begun
