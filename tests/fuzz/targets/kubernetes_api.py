"""What arrives from Kubernetes' API and from pods: whole answers, WebSockets, and programs in pods."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

from openpai_tasks.protocol.json_text import parse
from openpai_tasks.server.engines.kubernetes import pod_ports, pod_sftp
from openpai_tasks.server.engines.kubernetes.api import KubeApi, KubeError, reading
from openpai_tasks.server.engines.kubernetes.kubectl import Kubectl
from openpai_tasks.server.engines.kubernetes.pod_listener import HEAD, PodListener
from tests.fuzz.feeding import replacing
from tests.fuzz.target import Target
from tests.fuzz.targets.kubernetes import FRAMES, PODS

_LOOP = asyncio.new_event_loop()


class _Writer:
    """An end of a connection, or a channel of SSH, that takes everything."""

    def write(self, data: bytes) -> None: ...

    def write_eof(self) -> None: ...

    async def drain(self) -> None: ...

    def close(self) -> None: ...


def _fed(data: bytes) -> asyncio.StreamReader:
    reader = asyncio.StreamReader(loop=_LOOP)
    reader.feed_data(data)
    reader.feed_eof()
    return reader


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    return _LOOP.run_until_complete(work)


def _connecting(data: bytes) -> contextlib.AbstractContextManager[None]:
    async def connect(path: str) -> Any:
        return _fed(data), _Writer()

    return replacing(asyncio, "open_unix_connection", connect)


def _answer(data: bytes) -> None:
    """Read a whole answer of the API: a list, a watch, an object that was created or deleted."""
    api = KubeApi("")

    async def ask() -> None:
        uses: tuple[Callable[[], Coroutine[Any, Any, object]], ...] = (
            lambda: api.get("/api"),
            lambda: api.create("/api", {}),
            lambda: api.delete("/api"),
            watch,
        )
        for use in uses:
            with contextlib.suppress(KubeError):
                await use()

    async def watch() -> None:
        async for line in api.lines("/watch"):
            with contextlib.suppress(ValueError):
                parse(line)

    with _connecting(data), reading():
        _run(ask())


def _upgrade(data: bytes) -> None:
    """Open a forwarded port, and read what it sends."""

    async def use() -> None:
        connection = await pod_ports.open_port("", "default", "pod", 80)
        with contextlib.suppress(ConnectionRefusedError):
            while await connection.read():
                pass
        connection.close()

    with _connecting(data):
        _run(use())


def _listener(data: bytes) -> None:
    """Read what the program prints that listens on a port of a pod."""

    class Connection:
        async def open_connection(self, *place: object) -> tuple[asyncio.StreamReader, _Writer]:
            return _fed(b"to the pod"), _Writer()

    async def use() -> None:
        process = SimpleNamespace(stdout=_fed(data), stdin=_Writer(), kill=lambda: None)
        listener = PodListener(cast(Any, Connection()), cast(Any, process), "127.0.0.1", 80)
        with contextlib.suppress(asyncio.CancelledError):  # it closes itself
            await listener._reading
        if listener._copies:
            await asyncio.wait(listener._copies)

    _run(use())


def _sftp(data: bytes) -> None:
    """Read what programs in a pod print about files; a failing one has exit code 1."""
    out, _, rest = data.partition(b"\f")

    class Shell:
        async def run(self, script: str | bytes) -> bytes:
            return out

        def close(self) -> None: ...

    async def use() -> None:
        server = pod_sftp.PodSftpServer.__new__(pod_sftp.PodSftpServer)
        server._shell, server._open = cast(Any, Shell()), set()
        with contextlib.suppress(OSError):
            (await server.stat(rest)).encode(3)
        with contextlib.suppress(OSError):
            await server.readlink(b"a")

        async def stat(path: bytes) -> None: ...

        with contextlib.suppress(OSError), replacing(server, "stat", stat):
            names: AsyncIterator[Any] = server.scandir(b"/")
            async for name in names:
                name.encode(3)

    _run(use())
    shell = pod_sftp.PodShell.__new__(pod_sftp.PodShell)
    mark = b"m"
    process = SimpleNamespace(stdin=_Writer(), stdout=_fed(data), stderr=_fed(rest), returncode=None)
    shell._process, shell._lock = cast(Any, process), asyncio.Lock()
    process.kill = lambda: None
    with (
        replacing(pod_sftp.secrets, "token_hex", lambda size: mark.decode()),
        contextlib.suppress(OSError),
    ):
        _run(shell.run("true"))


def _exec(data: bytes) -> object:
    """Read what ``kubectl exec`` prints."""
    kubectl = Kubectl("", "")

    async def start(*words: object, **options: object) -> Any:
        async def wait() -> int:
            return 0

        return SimpleNamespace(
            stdout=_fed(data), stderr=_fed(data), returncode=data[0] % 2 if data else 0, wait=wait
        )

    with replacing(asyncio, "create_subprocess_exec", start):
        return _run(kubectl.run_script("default", "pod", "task", "true"))


HEADERS = b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
STATUS = (
    b'{"kind": "Status", "metadata": {}, "message": "pods is forbidden", "reason": "Forbidden", "code": 403}'
)
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(PODS), PODS)
SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n" + FRAMES
LISTENER = HEAD.pack(1, 0, 0) + HEAD.pack(1, 1, 5) + b"hello" + HEAD.pack(1, 2, 0)
SFTP = b"81a4 5 0 0 1700000000 1700000000 ./a.txt/\n41ed 4096 0 0 1700000000 1700000000 ./d/\n\n\nm 0\n\ff"
TARGETS = (
    Target(
        "kube-answer",
        _answer,
        (
            HEADERS % (b"200 OK", len(PODS), PODS),
            HEADERS % (b"403 Forbidden", len(STATUS), STATUS),
            CHUNKED,
        ),
    ),
    Target("kube-upgrade", _upgrade, (SWITCHED,)),
    Target("pod-listener", _listener, (LISTENER,)),
    Target("pod-sftp", _sftp, (SFTP, b"81a4 5 0 0 1700000000 1700000000\n\nm 1\n\ff")),
    Target("pod-exec", _exec, (b"\0hello\nend\n",)),
)
