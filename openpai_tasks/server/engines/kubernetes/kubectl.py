"""The user's own ``kubectl``: a proxy to the API in the background, and commands in pods."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
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

SILENT_SECONDS = 60.0  # without input or output, after which a script in a pod counts as hung
EXECS = 16  # scripts in pods at the same time; each is a process of some 50 MB
START_SECONDS = 30.0  # a login by a plug-in may take a while
_WATCHED = '"$@" & read -r _; kill $!'
"""Runs a command until the pipe to this script is closed, however this process ends."""
_CONFIRMED = "({}\n) && printf '\\nend\\n'"
"""kubectl also exits with 0 if its connection is lost. The outer shell keeps the output open: if nobody does,
the input ends."""
_END = b"\nend\n"


@dataclass(frozen=True)
class ExecResult:
    """What a script in a pod has printed, and its exit code; None if it may not have run to its end."""

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
        try:
            done = subprocess.run(
                self.words("config", "view", "--minify", "--output=jsonpath={..namespace}"),
                env=self.environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=START_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as err:
            raise ConfigError(f"kubectl: no answer within {START_SECONDS:g} s") from err
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

    async def run_script(
        self,
        namespace: str,
        pod: str,
        container: str,
        script: str,
        *words: str,
        stdin: BinaryIO | None = None,
    ) -> ExecResult:
        """Run a shell script in a container of a pod; its input is the rest of an unbuffered file."""
        command = [
            pod,
            f"--container={container}",
            "--",
            "/bin/sh",
            "-c",
            _CONFIRMED.format(script),
            "sh",
            *words,
        ]
        flags = ["--stdin"] if stdin else []
        async with self._slots:
            done = await self._run_exec(["exec", f"--namespace={namespace}", *flags, *command], stdin)
        if done.code == 0 and not done.out.endswith(_END):
            return ExecResult(None, b"", "the connection to the pod was lost")
        return dataclasses.replace(done, out=done.out.removesuffix(_END))

    async def _run_exec(self, words: Sequence[str], stdin: BinaryIO | None) -> ExecResult:
        process = await asyncio.create_subprocess_exec(
            *self.words(*words),
            stdin=stdin or subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment,
        )
        assert process.stdout and process.stderr
        out, err = bytearray(), bytearray()
        ended = asyncio.gather(_read(process.stdout, out), _read(process.stderr, err), process.wait())
        before = None
        try:
            while not ended.done():
                # kubectl shares the position of the file.
                passed = len(out), len(err), stdin.tell() if stdin else 0
                if passed == before:
                    return ExecResult(None, b"", f"no answer within {SILENT_SECONDS:g} s")
                before = passed
                await asyncio.wait({ended}, timeout=SILENT_SECONDS)
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
            ended.add_done_callback(lambda one: one.cancelled() or one.exception())  # or asyncio logs it
            ended.cancel()
        return ExecResult(process.returncode, bytes(out), err.decode("utf-8", "replace"))

    def close(self) -> None:
        """End the proxy."""
        if self._proxy:
            self._proxy.communicate()  # closes its pipe
            self._proxy = None


async def _read(stream: asyncio.StreamReader, found: bytearray) -> None:
    while data := await stream.read(1 << 16):
        found += data


def reason(printed: str) -> str:
    """Return why kubectl failed."""
    return last_line(printed).removeprefix("error: ") or "it printed nothing"
