"""Answers of Kubernetes: pods, events of a watch, logs, nodes and quotas, files of a pod, forwarded ports."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Coroutine, Mapping
from typing import Any, cast

from openpai_tasks.protocol.json_text import parse
from openpai_tasks.server.engines.kubernetes import access, capacity, pod_state, transfer
from openpai_tasks.server.engines.kubernetes.api import KubeApi, KubeError, reading
from openpai_tasks.server.engines.kubernetes.log_copy import LogCopy
from openpai_tasks.server.engines.kubernetes.mirror import PodMirror
from openpai_tasks.server.engines.kubernetes.pod_ports import PodConnection
from openpai_tasks.server.engines.kubernetes.pods import FOLDER, TASK, UID
from openpai_tasks.server.engines.kubernetes.site import KubeSite
from openpai_tasks.server.engines.runner.usage import parse_rows
from tests.fuzz.scratch import empty_folder
from tests.fuzz.target import Target
from tests.fuzz.targets.packing import TARS, checksummed

SITE = KubeSite(
    *("", "", ("default",), {}, ({"key": "gpu", "operator": "Exists"},)),
    *("", (), "nvidia.com/gpu", "", "", "own", {}, {}),
)
_LOOP = asyncio.new_event_loop()


class _Api(KubeApi):
    """Gets the same answer to each request."""

    def __init__(self, answer: bytes) -> None:
        super().__init__("")
        self._answer = answer

    async def _request(
        self, method: str, path: str, body: Mapping[str, Any] | None
    ) -> AsyncGenerator[bytes, None]:
        half = len(self._answer) // 2
        yield self._answer[:half]
        yield self._answer[half:]


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    return _LOOP.run_until_complete(work)


def _mirror(data: bytes) -> PodMirror:
    return PodMirror(_Api(data), "home", empty_folder("kube") / "trouble", lambda uid: None)


def _pods(data: bytes) -> object:
    """Read a list of pods."""
    mirror = _mirror(data)
    with reading():  # as ``run`` does
        _run(mirror._list("default"))
    return _explain(mirror)


def _events(data: bytes) -> object:
    """Read the events of a watch, one in each line."""
    mirror = _mirror(data)
    with contextlib.suppress(KubeError), reading():
        for line in data.split(b"\n"):
            mirror._apply(parse(line))
    return _explain(mirror)


def _explain(mirror: PodMirror) -> object:
    """Show each pod; its words go to the user, its numbers to the database."""
    found = []
    for pod in mirror.pods.values():
        end = pod_state.read_exit(pod, is_stopped=False)
        _check_numbers(end.user_code, end.ended, end.peak_memory_mb)
        failure = pod_state.start_failure(pod, "image")
        found.append("\n".join([pod_state.why_waiting(pod, "image"), failure.reason, end.reason]).encode())
    return found


def _check_numbers(*numbers: int | None) -> None:
    """Raise unless the database can hold the numbers."""
    for number in numbers:
        assert number is None or (isinstance(number, int) and abs(number) < 1 << 63), number


def _capacity(data: bytes) -> object:
    """Read nodes and quotas, and what the user may do."""
    _run(access.missing_rights(_Api(data), "default"))
    return _run(capacity.read_capacity(_Api(data), SITE, ["default"]))


def _log(data: bytes) -> object:
    """Copy the log of a container, and go on from the file with the position; it is before an empty line."""
    position, _, log = data.rpartition(b"\n\n")
    folder = empty_folder("kube")
    (folder / "position").write_bytes(position)
    copy = LogCopy(
        *(_Api(log), "default", "pod", TASK, folder / "log", folder / "position", folder / "usage")
    )
    for _ in range(2):
        _run(copy.run(follow=False))
    usage = folder / "usage"
    return parse_rows(usage.read_bytes().decode("ascii", "replace")) if usage.exists() else None


def _archive(data: bytes) -> object:
    """Unpack the output files of a pod."""
    folder = empty_folder("kube")
    (folder / "packed").write_bytes(checksummed(data))
    with open(folder / "packed", "rb") as packed:
        try:
            transfer.unpack(packed, folder / "output")
        except OSError as err:  # as the driver of a task does
            return str(err)
    outside = [path for path in folder.rglob("*") if path.name not in ("packed", "output")]
    assert all(path.is_relative_to(folder / "output") for path in outside), outside
    return outside


class _Writer:
    def write(self, data: bytes) -> None: ...

    async def drain(self) -> None: ...

    def close(self) -> None: ...


def _frames(data: bytes) -> object:
    """Read what a forwarded port sends, in the frames of a WebSocket."""

    async def read_all() -> int:
        reader = asyncio.StreamReader()
        reader.feed_data(data)
        reader.feed_eof()
        connection, size = PodConnection(reader, cast(Any, _Writer()), b""), 0
        with contextlib.suppress(ConnectionRefusedError):
            while piece := await connection.read():
                size += len(piece)
        return size

    return _run(read_all())


_TERMINATED = {
    "exitCode": 1,
    "reason": "Error",
    "message": "memory.peak 1048576\ncpu.stat usage_usec 12000000\n",
    "finishedAt": "2026-01-02T10:00:00Z",
}
_STATUS = {
    "phase": "Running",
    "podIP": "10.0.0.7",
    "conditions": [
        {"type": "PodScheduled", "status": "True", "message": "0/3 nodes are available"},
        {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"},
    ],
    "containerStatuses": [{"name": TASK, "state": {"terminated": _TERMINATED}}],
}
_META = {
    "name": "pai-1",
    "namespace": "default",
    "resourceVersion": "7",
    "labels": {UID: "1"},
    "annotations": {FOLDER: "/jobs/1"},
}
POD = {"metadata": _META, "spec": {"nodeName": "n1"}, "status": _STATUS}
WAITING = {
    "metadata": {**_META, "name": "pai-2"},
    "spec": {},
    "status": {
        "phase": "Pending",
        "reason": "Evicted",
        "message": "low on disk",
        "containerStatuses": [
            {"name": TASK, "state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}
        ],
    },
}
PODS = json.dumps({"items": [POD, WAITING], "metadata": {"resourceVersion": "9"}}).encode()
EVENTS = b"\n".join(
    json.dumps(event).encode()
    for event in (
        {"type": "ADDED", "object": POD},
        {"type": "DELETED", "object": WAITING},
        {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "12"}}},
        {"type": "ERROR", "object": {"message": "too old resource version", "code": 410}},
    )
)
_NODE = {
    "metadata": {"name": "n1", "labels": {"pool": "gpu"}},
    "spec": {"taints": [{"key": "gpu", "effect": "NoSchedule", "value": "x"}]},
    "status": {
        "conditions": [{"type": "Ready", "status": "True"}],
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        "allocatable": {"cpu": "7900m", "memory": "16384Ki", "nvidia.com/gpu": "8"},
    },
}
_QUOTA = {"metadata": {}, "spec": {"hard": {"limits.cpu": "4", "requests.memory": "1e3"}}}
NODES = json.dumps({"metadata": {}, "items": [_NODE], "status": {"allowed": True}}).encode()
QUOTAS = json.dumps({"metadata": {}, "items": [_QUOTA], "status": {}}).encode()
LOG = (
    b"10 2026-01-02T10:00:00.000000000 1\n\n\n2026-01-02T10:00:00.123456789Z first\n"
    b"2026-01-02T10:00:01.5Z second\x1eusage 1700000000000 5.00 cpu=0.5:1 memory=1:2 gpu0=50:90\n"
    b"2026-01-02T10:00:03Z last"
)
FRAMES = b"\x82\x03\x00\x50\x00\x82\x03\x01\x50\x00\x82\x06\x00hello\x89\x00\x82\x04\x01err\x88\x00"

TARGETS = (
    Target("kube-pods", _pods, (PODS,)),
    Target("kube-events", _events, (EVENTS,)),
    Target("kube-capacity", _capacity, (NODES, QUOTAS)),
    Target("kube-log", _log, (LOG,)),
    Target("kube-archive", _archive, TARS),
    Target("kube-ports", _frames, (FRAMES,)),
)
