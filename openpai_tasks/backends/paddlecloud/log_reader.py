"""The log of one pod, read incrementally although the server only returns the last lines."""

from __future__ import annotations

import re
from collections.abc import Iterator

from openpai_tasks.backends.paddlecloud.client import PaddleClient

EVERYTHING = 1_000_000  # lines
OVERLAP = 1 << 16  # characters that are compared, where the server has cut the beginning off
LEAST = 16  # characters that are the same by chance only in repeated lines
_BANNER = re.compile(r"^={26}([^\s=]+)={26}\n", re.MULTILINE)


class PaddleLog:
    """A ``TaskLog`` of a pod; of a killed job, whose pods are not listed, that of the trainer at an index."""

    def __init__(
        self, client: PaddleClient, job: str, pod: str, index: int, has_started: bool, is_known: bool = True
    ) -> None:
        self._client, self._job, self._pod, self._index = client, job, pod, index
        self._has_started = has_started
        self._position = 0
        self._last = ""  # the end of what was read
        self.is_absent = not is_known

    def read(self) -> Iterator[bytes]:
        if self.is_absent or not self._begun():
            return
        text = self._text()
        if text.endswith("\ufffd"):
            text = text[:-1]  # the first bytes of a character, whose others have not arrived yet
        new = text[self._start(text) :]
        self._position += len(new)
        self._last = (self._last + new)[-OVERLAP:]
        if new:
            yield new.encode()

    def rewind(self) -> None:
        self._position, self._last = 0, ""

    def size(self) -> None:
        return None

    def read_range(self, start: int, stop: int) -> bytes:
        raise NotImplementedError("this log has no size")

    def read_end(self, length: int) -> None:
        return None

    def seek(self, offset: int) -> None:
        raise NotImplementedError("this log has no size")

    def _begun(self) -> bool:
        """Whether the pod has a log: instead of that of a waiting pod, servers return a sentence."""
        if not self._has_started:
            pods = self._client.workers(self._job, "all")
            self._has_started = any(pod.name == self._pod and pod.phase != "Pending" for pod in pods)
        return self._has_started

    def _text(self) -> str:
        if self._pod:
            return self._client.logs(self._job, EVERYTHING, self._pod)
        parts = _BANNER.split(self._client.logs(self._job, EVERYTHING))
        return "".join(parts[2 * self._index + 2 : 2 * self._index + 3])

    def _start(self, text: str) -> int:
        """Return where the new text begins."""
        is_whole = text[self._position - len(self._last) : self._position] == self._last
        if is_whole and len(text) >= self._position:
            return self._position
        place = text.rfind(self._last)  # the server has cut off the beginning
        return place + len(self._last) if place >= 0 else self._overlap(text)

    def _overlap(self, text: str) -> int:
        """Return how many characters the text begins with that were read last."""
        starts = (at.start() for at in re.finditer(f"(?={re.escape(text[:LEAST])})", self._last))
        shared = (len(self._last) - start for start in starts)
        return next((size for size in shared if self._last.endswith(text[:size])), 0)
