"""The user's own ``kubectl``: a proxy to the API in the background, and commands in pods."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from openpai_tasks.errors import ConfigError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.server import variables
from openpai_tasks.text.plain import last_line

EXEC_SECONDS = 60.0
EXECS = 16  # commands in pods at the same time; each is a process of some 50 MB
START_SECONDS = 30.0  # a login by a plug-in may take a while
_WATCHED = '"$@" & read -r _; kill $!'
"""Runs a command until the pipe to this script is closed, however this process ends."""


@dataclass(frozen=True)
class ExecResult:
    """What a command in a pod has printed, and its exit code; None if it was not run."""

    code: int | None
    out: bytes
    err: str


class Kubectl:
    """Runs ``kubectl`` with the chosen kubeconfig and context."""

    def __init__(self, kubeconfig: str, context: str) -> None:
        self.kubeconfig, self.context = kubeconfig, context
        self._program = shutil.which("kubectl") or "kubectl"
        self._flags = [f"--kubeconfig={os.path.expanduser(kubeconfig)}"] if kubeconfig else []
        self._flags += [f"--context={context}"] if context else []
        self.environment = variables.for_program(os.environ)
        self._proxy: subprocess.Popen[bytes] | None = None
        self._slots = asyncio.Semaphore(EXECS)

    def words(self, *words: str) -> list[str]:
        return [self._program, *self._flags, *words]

    def namespace(self) -> str:
        """Return the namespace of the context; raise if the configuration cannot be read."""
        done = subprocess.run(
            self.words("config", "view", "--minify", "--output=jsonpath={..namespace}"),
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=START_SECONDS,
            check=False,
        )
        if "current-context" in done.stderr:
            raise ConfigError("kubectl has no current context; set KUBECONFIG or local.kubernetes-kubeconfig")
        if done.returncode:
            raise ConfigError(f"kubectl: {reason(done.stderr)}")
        return done.stdout.strip() or "default"

    def start_proxy(self, socket: Path) -> None:
        """Start a proxy that ends with this process; end the one before."""
        self.close()
        socket.unlink(missing_ok=True)
        words = self.words("proxy", f"--unix-socket={socket}")
        with open(socket.with_suffix(".log"), "wb") as log:
            self._proxy = subprocess.Popen(
                ["/bin/sh", "-c", _WATCHED, "sh", *words],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=self.environment,
                start_new_session=True,
            )

    async def wait_for_proxy(self, socket: Path) -> bool:
        """Wait until the proxy listens; return whether it does."""
        end = asyncio.get_running_loop().time() + START_SECONDS
        while asyncio.get_running_loop().time() < end:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_unix_connection(str(socket))
                writer.close()
                return True
            await asyncio.sleep(0.05)
        return False

    async def exec(
        self,
        namespace: str,
        pod: str,
        container: str,
        *command: str,
        stdin: BinaryIO | None = None,
        seconds: float = EXEC_SECONDS,
    ) -> ExecResult:
        """Run a command in a container of a pod; its input is a file, from the current position on."""
        words = ["exec", f"--namespace={namespace}", pod, f"--container={container}"]
        words += ["--stdin"] if stdin else []
        async with self._slots:
            return await self._run_exec([*words, "--", *command], stdin, seconds)

    async def _run_exec(self, words: Sequence[str], stdin: BinaryIO | None, seconds: float) -> ExecResult:
        process = await asyncio.create_subprocess_exec(
            *self.words(*words),
            stdin=stdin or subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment,
        )
        try:
            out, err = await asyncio.wait_for(process.communicate(), seconds)
        except asyncio.TimeoutError:
            return ExecResult(None, b"", f"no answer within {seconds:g} s")
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        return ExecResult(process.returncode, out, err.decode("utf-8", "replace"))

    def close(self) -> None:
        """End the proxy."""
        if self._proxy:
            self._proxy.communicate()  # closes its pipe
            self._proxy = None


def reason(printed: str) -> str:
    """Return why kubectl failed."""
    return last_line(printed).removeprefix("error: ") or "it printed nothing"
