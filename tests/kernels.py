"""A real IPython kernel that runs cells in the environment of a shell."""

from __future__ import annotations

import contextlib
import queue
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyter_client.manager import KernelManager

from tests.conftest import Shell

SECONDS = 200


@dataclass
class Shown:
    """The output of a cell, by kind."""

    out: str = ""
    err: str = ""
    pictures: list[dict[str, Any]] = field(default_factory=list)
    error: tuple[str, str] | None = None  # the message, and the whole traceback

    def add(self, message: dict[str, Any]) -> None:
        content = message["content"]
        if message["msg_type"] == "stream" and content["name"] == "stdout":
            self.out += content["text"]
        elif message["msg_type"] == "stream":
            self.err += content["text"]
        elif message["msg_type"] in ("display_data", "execute_result"):
            self.pictures.append(content["data"])
        elif message["msg_type"] == "error":
            self.error = (content["evalue"], "\n".join(content["traceback"]))

    @property
    def html(self) -> str:
        return "".join(picture.get("text/html", "") for picture in self.pictures)


class Kernel:
    def __init__(self, manager: KernelManager, client: Any) -> None:
        self.manager, self.client = manager, client

    def run(self, code: str) -> Shown:
        """Run a cell to its end."""
        shown = Shown()
        reply = self.client.execute_interactive(
            code, allow_stdin=False, timeout=SECONDS, output_hook=shown.add
        )
        assert (reply["content"]["status"] == "ok") == (shown.error is None)
        return shown

    def ok(self, code: str) -> Shown:
        shown = self.run(code)
        assert shown.error is None, shown
        return shown

    def interrupt_when(self, code: str, text: str) -> Shown:
        """Run a cell, and interrupt it as soon as it has printed the text."""
        shown, request = Shown(), self.client.execute(code, allow_stdin=False)
        limit, is_done = time.monotonic() + SECONDS, False
        while True:
            try:
                message = self.client.get_iopub_msg(timeout=1)
            except queue.Empty:
                assert time.monotonic() < limit, shown
                continue
            if message["parent_header"].get("msg_id") != request:
                continue
            shown.add(message)
            if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                return shown
            if text in shown.out and not is_done:
                self.manager.interrupt_kernel()
                is_done = True


@contextlib.contextmanager
def kernel_in(shell: Shell, folder: Path | None = None, **environment: str) -> Iterator[Kernel]:
    """Start a kernel that listens on files: another process may take a port before the kernel does."""
    with tempfile.TemporaryDirectory() as sockets:  # whose paths must be short
        manager = KernelManager(kernel_name="python3", transport="ipc", ip=f"{sockets}/kernel")
        manager.start_kernel(
            cwd=str(folder or shell.project), env={**shell.environment, **environment}, extra_arguments=QUIET
        )
        client = manager.blocking_client()
        try:
            client.start_channels()
            client.wait_for_ready(timeout=SECONDS)
            yield Kernel(manager, client)
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)


QUIET = ["--log-level=ERROR"]
