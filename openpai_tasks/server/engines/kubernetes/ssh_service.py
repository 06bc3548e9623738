"""The SSH service of a task in a pod: a process of this machine, since the image may have no sshd."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Sequence

from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.server import ssh
from openpai_tasks.server.engines.base import Launch
from openpai_tasks.server.engines.kubernetes.kubectl import Kubectl, reason
from openpai_tasks.server.engines.kubernetes.pods import TASK
from openpai_tasks.server.engines.runner import free_ports
from openpai_tasks.server.ssh import layout

PAUSE = 1.0  # seconds between two looks at the process
SHORTEST = 5.0  # seconds that it must run to be started again
LOG = "log"
PORT_TRIES, PORT_PAUSE = 50, 0.1  # seconds
_PROGRAM = "openpai_tasks.server.engines.kubernetes.serve_ssh"


@dataclass(frozen=True)
class PodCommands:
    """How to run commands in the container of a task."""

    kubectl: Kubectl
    namespace: str
    name: str  # of the pod

    @property
    def environment(self) -> dict[str, str]:
        return self.kubectl.environment

    def exec(self, *command: str, flags: Sequence[str] = ()) -> list[str]:
        where = (f"--namespace={self.namespace}", self.name, f"--container={TASK}")
        return self.kubectl.words("exec", *where, *flags, "--", *command)


class SshService:
    """The service of one task; its port is open before the process that answers there is ready."""

    def __init__(self, launch: Launch) -> None:
        self._launch, self._folder = launch, launch.folder.absolute()
        self._socket: socket.socket | None = None
        self._port = launch.ssh.port if launch.ssh else 0  # the recorded one, after a restart

    def open_port(self) -> int:
        """Listen on the recorded port of this machine, or on a free one, and return it."""
        while self._socket is None:
            port = self._port or free_ports.choose(self._launch.uid, {"ssh": 1})["ssh"][0]
            try:
                self._socket = socket.create_server((ssh.HOST, port))
            except OSError as err:  # the service of a server that was killed may be ending
                if self._port or err.errno != errno.EADDRINUSE:
                    break
            else:
                self._port = port
        return self._port

    async def serve(self, pod: PodCommands, proxy: str) -> str:
        """Serve until cancelled; return why that cannot be done."""
        process = None
        try:
            for _ in range(PORT_TRIES):
                self.open_port()
                if self._socket:
                    break
                await asyncio.sleep(PORT_PAUSE)
            else:
                return f"cannot listen on port {self._port} of this machine"
            while True:
                began, process = time.monotonic(), self._start(self._socket, pod, proxy)
                while process.poll() is None:
                    await asyncio.sleep(PAUSE)
                if why := ssh.failure(self._folder):
                    return why
                if time.monotonic() < began + SHORTEST:
                    log = (self._folder / ssh.FOLDER / LOG).read_text(encoding="utf-8", errors="replace")
                    return f"its program has ended: {reason(log)}"
        except OSError as err:
            return f"{err.strerror}: {err.filename}"
        finally:
            if self._socket:
                self._socket.close()
            if process and process.stdin:
                process.stdin.close()  # which it waits for
            shutil.rmtree(self._folder / ssh.FOLDER, ignore_errors=True)

    def _start(self, port: socket.socket, pod: PodCommands, proxy: str) -> subprocess.Popen[bytes]:
        assert self._launch.ssh
        shutil.rmtree(self._folder / ssh.FOLDER, ignore_errors=True)
        keys = layout.write_keys(self._folder, dataclasses.replace(self._launch.ssh, job_key=None))
        about = (pod.name, pod.namespace, proxy, pod.kubectl.kubeconfig, pod.kubectl.context)
        handle = os.open(keys / LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(handle, "wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", _PROGRAM, str(port.fileno()), *about],
                cwd=self._folder,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=(port.fileno(),),
                start_new_session=True,
            )
