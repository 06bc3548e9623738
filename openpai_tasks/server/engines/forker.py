"""The process that forks runners (see runner/), controlled through a pipe; closing the pipe ends it."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
from collections.abc import Sequence

from openpai_tasks.server import variables


class Forker:
    """It has the variables of tasks, and init as its parent, as tasks can read the variables of ancestors."""

    def __init__(self, command: Sequence[str]) -> None:
        end, stdout = os.pipe()  # closed when the forker ends, which alone holds the other side
        try:
            with subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=stdout,
                stderr=subprocess.DEVNULL,
                env=variables.for_tasks(os.environ),
                start_new_session=True,
                bufsize=0,
            ) as process:
                assert process.stdin is not None
                self._requests, process.stdin = process.stdin, None
        except BaseException:
            os.close(end)
            raise
        finally:
            os.close(stdout)
        self._end = end
        self.pid = int(os.read(end, 20) or 0)  # written once it is a child of init

    def is_alive(self) -> bool:
        poller = select.poll()
        poller.register(self._end, select.POLLIN)
        return not poller.poll(0)

    def send(self, request: bytes) -> None:
        self._requests.write(request)

    def close(self) -> None:
        """End the process and wait for it; its runners continue."""
        with contextlib.suppress(BrokenPipeError):
            self._requests.close()
        while os.read(self._end, 1):
            pass
        os.close(self._end)
