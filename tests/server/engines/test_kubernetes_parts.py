"""The parts of the engine kubernetes that need no cluster."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import errno
import functools
import gc
import itertools
import json
import os
import platform
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import asyncssh
import pytest

from openpai_tasks.errors import ConfigError
from openpai_tasks.sdk.ssh.connection import Remote
from openpai_tasks.server.engines.base import ContainerSpec, Launch, TaskExit, TaskQueued, TaskRunning
from openpai_tasks.server.engines.kubernetes import (
    capacity,
    driver,
    engine,
    gang,
    kubectl,
    mirror,
    pod_state,
    pod_usage,
    pods,
    transfer,
)
from openpai_tasks.server.engines.kubernetes import engine as engine_module
from openpai_tasks.server.engines.kubernetes.api import KubeApi, KubeError
from openpai_tasks.server.engines.kubernetes.driver import TaskDriver
from openpai_tasks.server.engines.kubernetes.engine import KubernetesEngine
from openpai_tasks.server.engines.kubernetes.gang import FreeNode, PodNeed
from openpai_tasks.server.engines.kubernetes.log_copy import LogCopy
from openpai_tasks.server.engines.kubernetes.mirror import PodMirror
from openpai_tasks.server.engines.kubernetes.pod_listener import DATA, HEAD, listen_in_pod
from openpai_tasks.server.engines.kubernetes.serve_ssh import PodSshServer
from openpai_tasks.server.engines.kubernetes.site import read_site
from openpai_tasks.server.engines.ports import is_bindable
from openpai_tasks.server.engines.runner import usage
from openpai_tasks.server.resources import ResourceAmount
from openpai_tasks.server.storages import FOLDER, Mount
from openpai_tasks.settings.engines import find_engine
from tests.needs import needs
from tests.ports import free_port
from tests.server.engines.contract import task as some_task
from tests.server.engines.odd_kubernetes import odd_kubernetes
from tests.server.workshop import until
from tests.storage import pod_service

OWNER = pods.PodOwner("abc", "host:/folder")


def test_home_of_a_pod_may_be_any_file(tmp_path):
    """Whoever can create pods chooses it: a pipe would block the engine. Found by ``inv fuzz``."""
    place = f"{platform.node()}:{tmp_path}"
    os.mkfifo(tmp_path / engine.ID)
    assert engine._is_orphan("abc", place)
    (tmp_path / engine.ID).unlink()
    for content, is_orphan in ((b"abc\n", False), (b"\xff", True)):
        (tmp_path / engine.ID).write_bytes(content)
        assert engine._is_orphan("abc", place) == is_orphan
    assert not engine._is_orphan("abc", f"{place}\0")


def launch(uid: str = "uid", **more: Any) -> Launch:
    container = ContainerSpec(cpu=2, memory_mb=100, gpu=1, gpu_type="A100")
    return Launch(
        uid,
        "alice",
        Path("/jobs/job") / uid,
        {"command": "true"},
        {},
        "busybox",
        (),
        container=container,
        **more,
    )


def pod(options: dict[str, str] | None = None, count: int = 1) -> dict[str, Any]:
    site = read_site(find_engine("kubernetes").read_options(options or {}))
    marks = pods.gang_marks(site.gang, "group", count)
    made = pods.build_pod(launch(), OWNER, site, pods.FilePlan(), "name", marks)
    made["metadata"] |= {"uid": "1-2-3", "namespace": "ns"}
    return made


@pytest.mark.parametrize("workspace", ["../bob", "/../../bob", "a\0", ["a"]])
def test_outputs_of_a_pod_never_leave_the_storage(tmp_path: Path, workspace: object) -> None:
    """Found by ``inv fuzz``."""
    mount = Mount("/mnt/home", FOLDER, str(tmp_path / "ann"), True, "home")
    stamp = {"storage": "home", "workspace": workspace, "sourceArchive": "a\0" if workspace == ["a"] else "a"}
    made = dataclasses.replace(launch(), mounts=(mount,), extras={"openpaiTasks": stamp})
    site = read_site(find_engine("kubernetes").read_options({}))
    target = pods.plan_files(made, site).target
    assert target is None or target.is_relative_to(tmp_path / "ann")


def test_settings_of_the_site_are_in_the_pod() -> None:
    spec = pod({"kubernetes-tolerations": "gpu=yes:NoSchedule, spot", "kubernetes-pull-secrets": "own"})[
        "spec"
    ]
    assert spec["tolerations"][:2] == [
        {"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"},
        {"key": "spot", "operator": "Exists"},
    ]
    assert spec["imagePullSecrets"] == [{"name": "own"}]


def test_a_job_with_a_priority_gets_its_priority_class() -> None:
    given = {"kubernetes-priority-class": "usual", "kubernetes-priority-classes": "low=batch, high=urgent"}
    site = read_site(find_engine("kubernetes").read_options(given))
    found = []
    for name in (None, "oppo", "test", "prod"):
        extras = {"hivedScheduler": {"jobPriorityClass": name}} if name else {}
        made = pods.build_pod(launch(extras=extras), OWNER, site, pods.FilePlan(), "x", pods.GangMarks())
        found.append(made["spec"]["priorityClassName"])
    assert found == ["usual", "batch", "usual", "urgent"]
    with pytest.raises(ConfigError, match="expected low=CLASS or high=CLASS"):
        find_engine("kubernetes").read_options({"kubernetes-priority-classes": "urgent"})


def test_storages_of_the_site_are_volumes() -> None:
    given = {"kubernetes-storages": "data=pvc:claim,lab=nfs:server:/export/lab,home=host:/srv/home"}
    assert read_site(find_engine("kubernetes").read_options(given)).volumes == {
        "data": {"persistentVolumeClaim": {"claimName": "claim"}},
        "lab": {"nfs": {"server": "server", "path": "/export/lab"}},
        "home": {"hostPath": {"path": "/srv/home"}},
    }


def test_a_quota_limits_what_it_names() -> None:
    limits = {"requests.cpu": "8", "limits.cpu": "4500m", "memory": "2Gi", "requests.nvidia.com/gpu": "3"}
    assert capacity._hard(limits, "nvidia.com/gpu") == ResourceAmount(cpu=4, memory_mb=2048, gpu=3)
    assert capacity._hard({"pods": "5"}, "nvidia.com/gpu") == ResourceAmount(cpu=-1, memory_mb=-1, gpu=-1)


# What a gang needs


def test_a_pod_needs_the_sum_of_its_containers_and_the_labels_of_its_node() -> None:
    need = gang.pod_need(pod()["spec"])
    assert need.amounts == {"cpu": 2, "memory": 100 << 20, "nvidia.com/gpu": 1, "pods": 1}
    assert need.labels == {"nvidia.com/gpu.product": "A100"}
    first = {"resources": {"requests": {"cpu": "3", "memory": "1"}}}
    spec = {
        "containers": [{"resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": "9", "memory": "1Ki"}}}]
        * 2,
        "initContainers": [first],
        "overhead": {"cpu": "250m"},
    }
    assert gang.pod_need(spec).amounts == {"cpu": 3.25, "memory": 2048, "pods": 1}


def nodes(*free: float) -> list[FreeNode]:
    return [FreeNode({"zone": str(number)}, {"cpu": cpu, "pods": 9}) for number, cpu in enumerate(free)]


@pytest.mark.parametrize(
    ("free", "needs", "fits"),
    [
        ([2, 2], [1, 1, 1, 1], True),
        ([2, 2], [1, 2, 1], True),  # the large one first
        ([2, 2], [3], False),
        ([2, 2], [2, 1, 2], False),
    ],
)
def test_pods_are_placed_on_nodes_or_one_is_left(free: list[float], needs: list[float], fits: bool) -> None:
    left = gang.place_all(nodes(*free), [PodNeed({"cpu": cpu, "pods": 1}, {}) for cpu in needs])
    assert (left is None) == fits


def test_a_pod_fits_only_on_a_node_with_its_labels() -> None:
    assert gang.place_all(nodes(0, 5), [PodNeed({"cpu": 1}, {"zone": "1"})]) is None
    assert gang.place_all(nodes(5, 0), [PodNeed({"cpu": 1}, {"zone": "1"})])


@pytest.mark.parametrize(
    ("hard", "used", "problem"),
    [
        ({"pods": "3"}, {"pods": "1"}, ""),
        ({"pods": "2"}, {"pods": "1"}, "the quota lab leaves too little (pods 2 of 1)"),
        ({"requests.cpu": "8"}, {"requests.cpu": "4500m"}, "the quota lab leaves too little (cpu 4 of 3.5)"),
        ({"limits.memory": "1Gi"}, {}, ""),
        ({"requests.nvidia.com/gpu": "1"}, {}, "the quota lab leaves too little (nvidia.com/gpu 2 of 1)"),
        ({"count/secrets": "1", "services": "0"}, {}, "the quota lab leaves too little (secrets 2 of 1)"),
    ],
)
def test_a_quota_must_have_room_for_all(hard: dict[str, str], used: dict[str, str], problem: str) -> None:
    quota = {"metadata": {"name": "lab"}, "spec": {}, "status": {"hard": hard, "used": used}}
    assert gang.over_quota([quota], [gang.pod_need(pod()["spec"])] * 2) == problem


# Gang schedulers of the cluster


def test_only_tasks_of_a_job_that_wants_it_start_together() -> None:
    assert not pods.is_gang(launch())
    assert pods.is_gang(launch(shared={"A": "b"}))
    assert not pods.is_gang(launch(shared={"A": "b"}, extras={"gangAllocation": False}))


def test_kueue_gets_the_queue_and_the_size_of_the_group() -> None:
    found = pod({"kubernetes-gang": "kueue:lab"}, 3)["metadata"]
    assert found["labels"]["kueue.x-k8s.io/queue-name"] == "lab"
    assert found["labels"]["kueue.x-k8s.io/pod-group-name"] == "group"
    assert found["annotations"]["kueue.x-k8s.io/pod-group-total-count"] == "3"
    alone = pod({"kubernetes-gang": "kueue:lab"})["metadata"]
    assert "kueue.x-k8s.io/queue-name" in alone["labels"] and "pod-group" not in str(alone)


@pytest.mark.parametrize(
    ("value", "scheduler", "marks", "api"),
    [
        ("volcano", "volcano", {"scheduling.k8s.io/group-name": "group"}, "scheduling.volcano.sh/v1beta1"),
        ("coscheduling", None, {"scheduling.x-k8s.io/pod-group": "group"}, "scheduling.x-k8s.io/v1alpha1"),
        (
            "coscheduling:mine",
            "mine",
            {"scheduling.x-k8s.io/pod-group": "group"},
            "scheduling.x-k8s.io/v1alpha1",
        ),
    ],
)
def test_volcano_and_coscheduling_get_an_object_for_the_group(
    value: str, scheduler: str | None, marks: dict[str, str], api: str
) -> None:
    made = pod({"kubernetes-gang": value}, 3)
    assert made["spec"].get("schedulerName") == scheduler
    about = made["metadata"]
    assert marks.items() <= {**about["labels"], **about["annotations"]}.items()
    group = pods.build_group(value, "group", 3, made)
    assert group and (group["apiVersion"], group["kind"], group["spec"]) == (
        api,
        "PodGroup",
        {"minMember": 3},
    )
    assert group["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Pod", "name": "name", "uid": "1-2-3"}
    ]
    assert pods.build_group(value, "group", 1, made) is None


def test_without_a_gang_scheduler_pods_have_no_marks() -> None:
    made = pod(count=3)
    assert "schedulerName" not in made["spec"] and pods.build_group("own", "group", 3, made) is None
    assert list(made["metadata"]["labels"]) == [pods.HOME, pods.UID]


def test_an_unknown_gang_scheduler_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"own, kueue:QUEUE, volcano or coscheduling\[:SCHEDULER\], got 'x'"
    ):
        find_engine("kubernetes").read_options({"kubernetes-gang": "x"})


# How pods end


def ended(status: dict[str, Any], deleted: bool = False, **terminated: Any) -> pod_state.PodState:
    """A pod as the API describes it after its end."""
    about = {"name": "name", "namespace": "ns", "labels": {pods.UID: "uid"}}
    about |= {"deletionTimestamp": "2024-01-01T00:00:00Z"} if deleted else {}  # type: ignore[dict-item]
    if terminated:
        state = {"startedAt": "2024-01-01T00:00:00Z", "finishedAt": "2024-01-01T00:01:00Z", **terminated}
        status = {**status, "containerStatuses": [{"name": pods.TASK, "state": {"terminated": state}}]}
    return pod_state.read_pod({"metadata": about, "spec": {"nodeName": "node1"}, "status": status})


def disruption(reason: str) -> dict[str, Any]:
    return {
        "phase": "Failed",
        "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": reason}],
    }


@pytest.mark.parametrize(
    ("pod", "code", "platform", "words"),
    [
        (ended({}, exitCode=0, reason="Completed"), 0, None, ""),
        (ended({}, exitCode=137, reason="OOMKilled"), 137, None, "used more memory than it asked for"),
        (ended({}, exitCode=0, reason="OOMKilled"), 0, None, ""),  # only a child, which it did not need
        (
            ended(
                {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}
            ),
            None,
            -1001,
            "was evicted from its node: The node was low on resource: memory.",
        ),
        (
            ended({"phase": "Failed", "reason": "Shutdown"}),
            None,
            -1001,
            "was ended because its node was shut down",
        ),
        (ended({"phase": "Failed", "reason": "DeadlineExceeded"}), None, 256, "reached its time limit"),
        (ended({"phase": "Failed", "reason": "NodeLost"}), None, -1001, pod_state.LOST),
        (ended({}, exitCode=137, reason="ContainerStatusUnknown"), None, -1001, pod_state.LOST),
        (ended({}, True, exitCode=137, reason="Error"), None, -101, pod_state.DELETED),
        (ended({}, True, exitCode=0, reason="Completed"), 0, None, ""),  # it was quicker
        (ended({}, reason="Error"), None, -1001, pod_state.LOST),
        (ended({"phase": "Succeeded"}), 0, None, ""),
        (
            ended(disruption("PreemptionByScheduler"), True, exitCode=143, reason="Error"),
            None,
            -1001,
            "was preempted by a pod with a higher priority",
        ),
        (
            ended(disruption("EvictionByEvictionAPI"), True, exitCode=137),
            None,
            -1001,
            "was evicted from its node",
        ),
    ],
)
def test_the_end_of_a_pod_in_plain_words(
    pod: pod_state.PodState, code: int | None, platform: int | None, words: str
) -> None:
    found = pod_state.read_exit(pod, is_stopped=False)
    assert (found.user_code, found.platform_code, found.reason) == (code, platform, words)
    assert found.timed_out == ("time limit" in words)
    began = int(datetime(2024, 1, 1, tzinfo=timezone.utc).timestamp()) * 1000
    assert (pod.began, found.ended) == ((began, began + 60_000) if pod.end else (None, None))


def test_a_stopped_task_keeps_its_exit_code_although_its_pod_is_deleted() -> None:
    found = pod_state.read_exit(ended({}, True, exitCode=143, reason="Error"), is_stopped=True)
    assert (found.user_code, found.reason, found.stopped) == (143, "", True)


# Errors of the API


@pytest.mark.parametrize(
    ("code", "reason", "message", "outcome"),
    [
        (409, "AlreadyExists", 'pods "pai-1" already exists', "exists"),
        (
            409,
            "Conflict",
            'cannot be fulfilled on resourcequotas "few": the object has been modified',
            "passes",
        ),
        (403, "Forbidden", "pods is forbidden: exceeded quota: few, requested: pods=1", "waits"),
        (403, "Forbidden", "pods is forbidden: status unknown for quota: few, resources: pods", "waits"),
        (403, "Forbidden", 'pods is forbidden: User "ann" cannot create resource "pods"', "waits"),
        (403, "Forbidden", "pods is forbidden: violates PodSecurity", "fails"),
    ],
)
def test_what_a_refusal_means_for_a_pod(
    tmp_path: Path, code: int, reason: str, message: str, outcome: str
) -> None:
    body = json.dumps({"kind": "Status", "reason": reason, "message": message, "code": code}).encode()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {code} X\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body[:20])
        await writer.drain()
        await asyncio.sleep(0)  # the answer may come in pieces
        writer.write(body[20:])
        writer.close()

    async def ask() -> KubeError:
        async with await asyncio.start_unix_server(answer, str(tmp_path / "socket")):
            with pytest.raises(KubeError) as raised:
                await KubeApi(str(tmp_path / "socket")).create("/pods", {})
            return raised.value

    err = asyncio.run(ask())
    assert str(err) == message
    found = {"exists": err.already_exists, "passes": err.may_pass, "waits": err.may_be_allowed}
    assert [name for name, is_true in found.items() if is_true] == [outcome] * (outcome != "fails")


# The mirror


class Answers(KubeApi):
    """An API server that answers with what is prepared; it is the edge of the mirror."""

    def __init__(self, lists: list[list[str]], watches: list[list[dict[str, Any]] | KubeError]) -> None:
        super().__init__("")
        self._lists, self._watches = iter(lists), iter(watches)
        self.lists = 0

    async def get(self, path: str) -> dict[str, Any]:
        self.lists += 1
        found = next(self._lists, None)
        if found is None:
            await asyncio.Event().wait()
        items = [described(name) for name in found or ()]
        return {"items": items, "metadata": {"resourceVersion": str(self.lists)}}

    async def lines(self, path: str) -> AsyncGenerator[bytes, None]:
        found = next(self._watches, None)
        if isinstance(found, KubeError):
            raise found
        for event in found or ():
            yield json.dumps(event).encode()
        if found is None:
            await asyncio.Event().wait()


def described(name: str) -> dict[str, Any]:
    about = {"name": name, "namespace": "ns", "labels": {pods.UID: name}, "resourceVersion": "7"}
    return {"metadata": about, "spec": {}, "status": {"phase": "Running"}}


@pytest.mark.parametrize(
    "failure",
    [
        [{"type": "ERROR", "object": {"code": 410, "message": "too old resource version", "metadata": {}}}],
        KubeError("too old resource version", 410),
        KubeError("the connection to Kubernetes was lost"),
    ],
)
def test_a_watch_that_is_too_old_or_lost_is_replaced_by_a_new_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Any
) -> None:
    monkeypatch.setattr(mirror, "PAUSES", (0.01,) * 5)
    api = Answers(
        [["old", "same"], ["same", "new"]],
        [[{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "5"}}}], failure],
    )
    changes: list[str] = []
    found = PodMirror(api, "home", tmp_path / "trouble", changes.append)

    async def run() -> None:
        running = asyncio.create_task(found.run("ns"))
        while not running.done() and ("new" not in found.pods or found.trouble):
            await asyncio.sleep(0.01)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running

    asyncio.run(run())
    assert {name: one.is_gone for name, one in found.pods.items()} == {
        "old": True,
        "same": False,
        "new": False,
    }
    assert changes == ["old", "same", "old", "new"]
    assert api.lists == 2
    assert not found.trouble and not (tmp_path / "trouble").exists()


# From the folder of a task to its end


def test_the_folders_of_a_task_are_private(tmp_path: Path) -> None:
    (task,) = Pods().drivers(tmp_path / "job" / "0", 1)
    asyncio.run(asyncio.wait_for(task.run(), 60))
    assert {path.stat().st_mode & 0o777 for path in (task.folder, *task.folder.parents[:2])} == {0o700}


@pytest.mark.parametrize(("code", "notes"), [(0, []), (137, ["FilesNotFetched"])])
def test_a_command_that_hangs_in_a_container_that_has_ended_does_not_delay_the_task(
    tmp_path: Path, code: int, notes: list[str]
) -> None:
    """The container ends by itself if there are no outputs; kubectl then may never return."""

    async def run() -> list[str]:
        keeping = pod_state.read_pod(described("pai-uid"))._replace(keeps_files=True)
        known = {"pai-uid": keeping}

        async def hang(*_: Any, **__: Any) -> None:
            known["pai-uid"] = keeping._replace(keeps_files=False, files_code=code)
            task.changed.set()
            await asyncio.Event().wait()

        cluster = SimpleNamespace(
            mirror=SimpleNamespace(pods=known, trouble=""),
            kubectl=SimpleNamespace(run_script=hang),
            namespaces={"": "ns"},
        )
        (tmp_path / "pod").write_text(json.dumps({"output": "/out", "target": str(tmp_path / "out")}))
        about = dataclasses.replace(launch(), folder=tmp_path)
        task = TaskDriver(cluster, about, [], lambda _: None)  # type: ignore[arg-type]
        await asyncio.wait_for(task._fetch_files(), 60)
        return [reason for reason, _ in task.notes]

    assert asyncio.run(run()) == notes


def test_a_script_in_a_pod_fails_when_it_is_silent_or_its_connection_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after the kill of a kubelet; one that reads or writes may take longer."""
    program = tmp_path / "kubectl"
    program.write_text("""#!/bin/sh
until [ "$1" = -- ]; do shift; done; shift
[ "$5" != lost ] || exit 0
[ "$5" != hung ] || exec sleep 60
exec "$@"
""")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(kubectl, "SILENT_SECONDS", 10.0)  # the machine may stand still for a while
    (tmp_path / "input").write_text("1234567890")
    slowly = "for n in 1 2 3 4 5 6 7 8 9 0; do sleep 1.05; {}; done"

    async def run() -> list[kubectl.ExecResult]:
        sh = functools.partial(kubectl.Kubectl("", "").run_script, "", "", "")
        with (tmp_path / "input").open("rb", buffering=0) as file:
            return await asyncio.gather(
                sh(":", "hung"),
                sh(slowly.format("echo $n") + "; exit 3"),
                sh(slowly.format("head -c 1"), stdin=file),
                sh(":", "lost"),
                sh(": >$1", str(tmp_path / "done")),
            )

    hung, writing, reading, lost, done = asyncio.run(run())
    assert hung == kubectl.ExecResult(None, b"", "no answer within 10 s")
    assert writing == kubectl.ExecResult(3, b"1\n2\n3\n4\n5\n6\n7\n8\n9\n0\n", "")
    assert reading == kubectl.ExecResult(0, b"1234567890", "")
    assert lost == kubectl.ExecResult(None, b"", "the connection to the pod was lost")
    assert done == kubectl.ExecResult(0, b"", "") and (tmp_path / "done").exists()


def test_a_session_in_a_pod_fails_when_its_connection_is_lost() -> None:
    """Although kubectl then succeeds."""
    with Remote(pod_service.shared()).open() as remote:

        def run(command: str) -> tuple[int, bytes, bytes]:
            with contextlib.closing(remote.session()) as session:
                session.exec_command(command)
                out, err = session.makefile("rb").read(), session.makefile_stderr("rb").read()
                return session.recv_exit_status(), out, err

        assert run("echo all; echo oops >&2") == (0, b"all\n", b"oops\n")
        assert run("echo part; exit 3") == (3, b"part\n", b"")
        assert run("lost") == (255, b"half\n", b"error: the connection to the pod was lost\n")


@pytest.mark.parametrize("shell", [["sh"], pytest.param(["busybox", "sh"], marks=needs("busybox"))])
def test_a_piece_of_a_large_archive_is_read(tmp_path: Path, shell: list[str]) -> None:
    start = 5 << 30
    with open(tmp_path / "archive", "wb") as file:
        file.seek(start)
        file.write(b"piece, and more")
    words = [*shell, "-c", transfer._READ, "sh", str(tmp_path / "archive"), str(start), "5"]
    assert subprocess.check_output(words) == b"piece"


# A disk that is full, and other shortages of the server's machine


class Disk:
    """Files that cannot be opened for writing below a folder: a number of times, after a number of others."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path, after: int = 0, times: int = 0) -> None:
        self.after, self.left, self.number = after, times, errno.ENOSPC
        self._folder, self._open = str(folder), os.open
        monkeypatch.setattr(os, "open", self._open_or_fail)

    def _open_or_fail(self, path: Any, flags: int, *more: Any, **named: Any) -> int:
        if flags & os.O_CREAT and str(path).startswith(self._folder) and self.left:
            self.after -= 1
            if self.after < 0:
                self.left -= 1
                raise OSError(self.number, os.strerror(self.number), str(path))
        return self._open(path, flags, *more, **named)


class Pods(KubeApi):
    """A cluster on which each pod runs as soon as its secret is there, and ends when its files are."""

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        super().__init__("")
        self.known: dict[str, pod_state.PodState] = {}
        self.created: list[str] = []
        self.sent: list[str] = []  # scripts that were run in pods
        self.answer = b""  # of such a script
        self.cut_answers = 0  # for a log, which are empty
        self.interruptions: list[pod_state.ContainerEnd] = []  # how the first containers end
        self._changed = changed

    async def create(self, path: str, body: Any) -> dict[str, Any]:
        name, about = body["metadata"]["name"], body["metadata"]
        if path.endswith("/pods"):
            if name in self.known:
                raise KubeError("it exists", 409, "AlreadyExists")
            self.created.append(name)
            self.known[name] = pod_state.read_pod(described(name))._replace(
                phase="Pending", is_scheduled=True
            )
        elif "ready" in body["data"]:
            self.end(name)
        else:
            self.change(name, is_running=True, ip="10.0.0.1")
        return {**body, "metadata": {**about, "uid": name}}

    async def get(self, path: str) -> dict[str, Any]:
        name = path.rpartition("/")[2]
        if name not in self.known:
            raise KubeError("not found", 404)
        return {"metadata": {"name": name, "uid": name, "labels": {pods.HOME: "abc"}}}

    async def delete(self, path: str) -> None:
        self.change(path.rpartition("/")[2], is_gone=True)

    async def stream(self, path: str) -> AsyncGenerator[bytes, None]:
        self.cut_answers -= 1
        if self.cut_answers >= 0:
            return
        yield b"2024-01-01T00:00:01.1Z line 1\n2024-01-01T00:00:02.1Z line 2\n"

    async def run_script(self, _: str, pod: str, __: str, script: str, *words: str, **___: Any) -> Any:
        self.sent.append(script)
        if script == transfer._WRITE:
            self.end(pod)
        return kubectl.ExecResult(0, self.answer, "")

    def end(self, name: str) -> None:
        end = self.interruptions.pop() if self.interruptions else pod_state.ContainerEnd(3, "", "", 5)
        self.change(name, is_running=False, end=end)

    def change(self, name: str, **changes: Any) -> None:
        self.known[name] = self.known[name]._replace(**changes)
        self._changed()

    def drivers(self, folder: Path, count: int) -> list[TaskDriver]:
        """The drivers of the tasks of a job."""
        made: list[TaskDriver] = []
        cluster = SimpleNamespace(
            **{"api": self, "kubectl": self, "mirror": SimpleNamespace(pods=self.known, trouble="")},
            **{"site": read_site(find_engine("kubernetes").read_options({})), "owner": OWNER},
            **{"namespaces": {"": "ns"}, "grace": 0.0},
        )
        for number in range(count):
            about = launch(str(number), shared={"JOB": "gang"} if count > 1 else {}, index=number)
            about = dataclasses.replace(about, folder=folder / str(number))
            made.append(TaskDriver(cluster, about, made, lambda _: None))  # type: ignore[arg-type]
        if count > 1:
            together = gang.Gang(made)
            together.admitted.set()
            for one in made:
                one.gang = together
        self._changed = lambda: [one.changed.set() for one in made] and None
        return made


INTERRUPTED = "failed to create containerd task: failed to create shim task: context canceled: unknown"


@pytest.mark.parametrize(
    ("message", "times", "pods_created", "code"),
    [
        (INTERRUPTED, 2, 3, 3),
        (INTERRUPTED, 9, 1 + driver.MOST_RESTARTS, None),
        ("failed to create shim task: exec: not found", 1, 1, None),
        ("failed to start containerd task: context canceled", 1, 1, None),  # its command may have run
    ],
)
def test_a_task_whose_node_is_interrupted_before_its_command_starts_in_another_pod(
    tmp_path: Path, message: str, times: int, pods_created: int, code: int | None
) -> None:
    """Found by ``inv endure --engine kubernetes --seed 274002``."""

    async def run() -> Pods:
        cluster = Pods()
        cluster.interruptions = [pod_state.ContainerEnd(128, "StartError", message, 5)] * times
        (task,) = cluster.drivers(tmp_path, 1)
        await asyncio.wait_for(task.run(), 60)
        assert isinstance(task.status, TaskExit)
        assert (task.status.user_code, len(task.notes)) == (code, pods_created - 1)
        assert cluster.drivers(tmp_path, 1)[0].pod_name == cluster.created[-1]
        return cluster

    assert len(set(asyncio.run(run()).created)) == pods_created


def test_the_log_of_a_task_is_read_again_after_an_answer_that_is_cut_short(tmp_path: Path) -> None:
    """Found by ``inv endure --engine kubernetes --seed 272006``."""

    async def run() -> str:
        cluster = Pods()
        cluster.cut_answers = 1
        (task,) = cluster.drivers(tmp_path, 1)
        await asyncio.wait_for(task.run(), 60)
        return (task.folder / "logs" / "all").read_text()

    assert asyncio.run(run()) == "line 1\nline 2\n"


def test_a_new_server_starts_a_task_again_whose_node_was_interrupted(tmp_path: Path) -> None:
    async def run() -> list[str]:
        cluster = Pods()
        (first,) = cluster.drivers(tmp_path, 1)
        await first._until_created()
        cluster.change("pai-0", end=pod_state.ContainerEnd(128, "StartError", INTERRUPTED, 5))
        (second,) = cluster.drivers(tmp_path, 1)
        assert isinstance(second.status, TaskQueued)
        await asyncio.wait_for(second.run(), 60)
        return cluster.created

    assert asyncio.run(run()) == ["pai-0", "pai-0-1"]


def test_a_task_that_is_cancelled_twice_still_waits_for_its_own_tasks() -> None:
    """Found by ``inv endure --engine kubernetes --seed 274501``."""
    ended = []

    async def clean_up() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)
            ended.append("cleaned up")

    async def work() -> None:
        own = asyncio.create_task(clean_up())
        try:
            await asyncio.wait([own])
        finally:
            await driver.end_tasks([own])

    async def run() -> None:
        task = asyncio.create_task(work())
        await asyncio.sleep(0.01)
        for _ in range(2):
            task.cancel()
            await asyncio.sleep(0.01)
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert ended == ["cleaned up"]


@pytest.mark.parametrize("count", [1, 2], ids=["alone", "gang"])
def test_a_task_waits_for_each_file_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Nothing runs twice, and no exit code or line is lost."""
    monkeypatch.setattr(driver, "PAUSE", 0.01)
    disk = Disk(monkeypatch, tmp_path)

    async def run(folder: Path) -> tuple[Pods, list[TaskDriver]]:
        cluster = Pods()
        made = cluster.drivers(folder, count)
        await asyncio.wait_for(asyncio.gather(*(one.run() for one in made)), 60)
        return cluster, made

    for after in itertools.count():
        disk.after, disk.left = after, 2  # the one write, and when it is tried again
        cluster, made = asyncio.run(run(tmp_path / f"job{after}"))
        assert [one.status.user_code for one in made] == [3] * count  # type: ignore[union-attr]
        assert [(one.folder / "logs" / "all").read_text() for one in made] == ["line 1\nline 2\n"] * count
        assert len(cluster.created) == len(set(cluster.created)) == count
        if disk.left == 2:
            break
    assert after > 3 * count


def test_a_log_on_a_disk_that_takes_a_part_is_continued(tmp_path: Path) -> None:
    """Although the node no longer has its beginning."""
    old, new = ("2024-01-01T00:00:01.1", "x" * 9000), ("2024-01-01T00:01:01.1", "y" * 9000)
    copy_log(Log([old], [1]), tmp_path)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            copy_log(Log([new], [1]), tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    copy_log(Log([new], [1]), tmp_path)
    assert (tmp_path / "all").read_text() == f"{old[1]}\n{new[1]}\n"


def test_rows_of_usage_are_not_repeated_when_the_log_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch, tmp_path, after=1, times=1)
    copy = LogCopy(
        Log(
            [("2024-01-01T00:00:01.1", "\x1eusage 1 5.0 cpu=1:1"), ("2024-01-01T00:00:01.2", "a")], [2, 2, 2]
        ),  # type: ignore[arg-type]
        *("ns", "pod", "task", *(tmp_path / name for name in ("all", "position", "usage"))),
    )
    with pytest.raises(OSError, match="No space"):
        asyncio.run(copy.run(follow=False))
    for _ in range(2):
        asyncio.run(copy.run(follow=False))
    assert not disk.left and (tmp_path / "usage").read_text() == "1 5.0 cpu=1:1\n"
    assert (tmp_path / "all").read_text() == "a\n"


def test_a_log_is_not_copied_from_its_beginning_when_its_position_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_log(Log([("2024-01-01T00:00:01.1", "old")], [1]), tmp_path)
    (tmp_path / "position").rename(tmp_path / "kept")
    (tmp_path / "position").symlink_to("position")  # as unreadable as on a broken disk
    with pytest.raises(OSError, match="symbolic links"):
        copy_log(Log([("2024-01-01T00:01:01.1", "new")], [1]), tmp_path)
    (tmp_path / "kept").rename(tmp_path / "position")
    copy_log(Log([("2024-01-01T00:01:01.1", "new")], [1]), tmp_path)
    assert (tmp_path / "all").read_text() == "old\nnew\n"


@pytest.mark.parametrize("shell", [["sh"], pytest.param(["busybox", "sh"], marks=needs("busybox"))])
def test_a_task_that_was_killed_before_it_had_outputs_has_none(tmp_path: Path, shell: list[str]) -> None:
    (tmp_path / "io").mkdir()
    script = transfer._PACK.replace(pods.IO, str(tmp_path / "io"))
    subprocess.run([*shell, "-c", script, "sh", str(tmp_path / "missing")], check=True, timeout=60)
    with (tmp_path / "io" / "out.tar").open("rb") as packed:
        transfer.unpack(packed, tmp_path / "io")
    assert [path.name for path in (tmp_path / "io").iterdir()] == ["out.tar"]


def test_inputs_are_not_sent_again_to_a_task_that_has_begun(tmp_path: Path) -> None:
    """As when the server was killed before it could record that: the task may have changed them."""

    async def run() -> list[str]:
        cluster = Pods()
        (task,) = cluster.drivers(tmp_path, 1)
        with open(tmp_path / "input", "wb") as file:
            file.truncate(pods.SMALL + 1)
        task._files = pods.FilePlan({"/input": tmp_path / "input"})
        cluster.answer = b"1\n"
        cluster.known["pai-0"] = pod_state.read_pod(described("pai-0"))
        task.folder.mkdir()
        await asyncio.wait_for(task._send_inputs(task._pod_files()), 60)
        return cluster.sent

    assert len(asyncio.run(run())) == 2


def test_a_task_that_began_by_itself_still_has_when_its_files_have_grown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new server finds the metrics that the old one has copied among the outputs."""
    with open(tmp_path / "metrics", "wb") as file:
        file.truncate(pods.SMALL + 1)

    async def run() -> list[str]:
        cluster = Pods()
        (task,) = cluster.drivers(tmp_path, 1)
        await asyncio.wait_for(task.run(), 60)
        plan = pods.FilePlan({"/metrics": tmp_path / "metrics"})
        monkeypatch.setattr(pods, "plan_files", lambda *_: plan)
        (task,) = cluster.drivers(tmp_path, 1)
        await asyncio.wait_for(task.run(), 60)
        return cluster.sent

    assert asyncio.run(run()) == []


def test_a_gang_whose_withdrawal_cannot_be_recorded_starts_as_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "PAUSE", 0.01)
    disk = Disk(monkeypatch, tmp_path)

    async def run() -> list[str]:
        cluster = Pods()
        made = cluster.drivers(tmp_path, 2)
        for one in made:
            await one._until_created()
        disk.left = 3
        assert made[0].gang
        made[0].gang.withdraw()
        assert not any(one.is_created for one in made)
        made[0].gang.admitted.set()
        await asyncio.wait_for(asyncio.gather(*(one.run() for one in made)), 60)
        assert [one.pod_name for one in cluster.drivers(tmp_path, 2)] == sorted(cluster.created[2:])
        return cluster.created

    assert sorted(asyncio.run(run())) == ["pai-0", "pai-0-1", "pai-1", "pai-1-1"]


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOMEM])
def test_a_task_is_stopped_although_no_process_can_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Its pod is deleted; a stop that cannot be recorded is not a deletion by others."""
    monkeypatch.setattr(driver, "PAUSE", 0.01)
    monkeypatch.setattr(driver, "KILL_SECONDS", 0.05)

    async def run() -> Any:
        cluster = Pods()
        (task,) = cluster.drivers(tmp_path, 1)

        async def fail(*_: Any, **__: Any) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(cluster, "run_script", fail)
        monkeypatch.setattr(cluster, "end", lambda name: cluster.change(name, is_running=True))
        running = asyncio.create_task(task.run())
        while not isinstance(task.status, TaskRunning):
            await asyncio.sleep(0.01)
        task.stop_asked.set()
        await asyncio.wait_for(running, 60)
        return task.status

    end = asyncio.run(run())
    assert (end.stopped, end.user_code, end.platform_code) == (True, pod_state.KILLED, None)


# The engine with odd answers, and with a kubectl that fails


def engine_for(folder: Path, namespace: str = "ns") -> KubernetesEngine:
    return KubernetesEngine(
        folder / "jobs", 1.0, find_engine("kubernetes").read_options({"kubernetes-namespace": namespace})
    )


def http(status: int, body: str) -> bytes:
    return f"HTTP/1.1 {status} Odd\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


ODD = {
    "500": http(500, "<html>"),
    "429": http(429, '{"message": "too many requests", "code": 429}'),
    "503": http(503, "[]"),
    "truncated JSON": http(200, '{"metadata": {"name": '),
    "truncated answer": http(200, "{}" * 99)[:-50],
    "no metadata": http(200, "{}"),
    "empty metadata": http(200, '{"metadata": {}, "items": [{}], "kind": "New"}'),
    "null": http(200, '{"metadata": {"labels": null}, "items": null, "status": null}'),
    "no HTTP": b"hello\r\n\r\n",
    "nothing": b"",
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_odd_answers_of_kubernetes_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, odd: bytes
) -> None:
    monkeypatch.setattr(driver, "PAUSE", 0.05)
    monkeypatch.setattr(engine_module, "FORGET_PAUSE", 0.05)
    monkeypatch.setattr(mirror, "PAUSES", (0.05,) * 5)
    with odd_kubernetes(tmp_path, monkeypatch) as kube, contextlib.closing(engine_for(tmp_path)) as engine:
        kube.odd = odd
        one = dataclasses.replace(launch(), folder=tmp_path / "jobs" / "job" / "0" / "main-0-0")
        engine.start(one)
        task = dataclasses.replace(some_task(tmp_path), uid="uid", folder=one.folder)
        end = until(lambda: isinstance(found := engine.poll([task])["uid"], TaskExit) and found)
        assert (end.user_code, kube.created) == (3, ["pai-uid"])
        assert (one.folder / "logs" / "all").read_text() == "line 1\nline 2\n"
        engine.forget(task)
        until(lambda: not kube.pods)
    assert not [one for one in caplog.records if one.exc_info]


def test_a_kubernetes_that_does_not_answer_is_reported_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "FIRST_SECONDS", 0.3)
    with (
        odd_kubernetes(tmp_path, monkeypatch) as kube,
        kube.changed,
        pytest.raises(ConfigError, match=r"Kubernetes did not answer within 0\.3 s"),
    ):
        engine_for(tmp_path)


def test_a_proxy_that_cannot_be_started_for_a_while_is_started_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "PROXY_SECONDS", 0.05)
    monkeypatch.setattr(engine_module, "ERROR_PAUSE", 0.05)
    monkeypatch.setattr(mirror, "PAUSES", (0.05,) * 5)
    with odd_kubernetes(tmp_path, monkeypatch), contextlib.closing(engine_for(tmp_path)) as engine:
        failures = [OSError(number, os.strerror(number)) for number in (errno.ENOSPC, errno.EMFILE)]
        start = engine._kubectl.start_proxy

        def fail_twice(socket: Path) -> None:
            if failures:
                raise failures.pop()
            start(socket)

        monkeypatch.setattr(engine._kubectl, "start_proxy", fail_twice)
        engine._socket.unlink()
        until(lambda: not failures and not engine._mirror.trouble)


def test_pods_are_kept_while_the_folders_of_their_tasks_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "ended").mkdir()
    (tmp_path / "ended" / driver.FORGOTTEN).touch()
    found = {
        name: engine_module._is_forgotten(str(tmp_path / name))
        for name in ("ended", "lost", "loop/folder", ".")
    }
    assert found == {"ended": True, "lost": True, "loop/folder": False, ".": False}


def test_a_damaged_id_of_a_home_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is after a power cut: pods of two homes with an empty one would be mixed up."""
    path = tmp_path / "jobs" / ".kubernetes" / "id"
    path.parent.mkdir(parents=True)
    with odd_kubernetes(tmp_path, monkeypatch):
        for damaged in ("", "\0" * 17):
            path.write_text(damaged)
            engine_for(tmp_path).close()
            assert len(path.read_text().strip()) == 16


@pytest.mark.parametrize(("printed", "words"), [("\\377oops", "oops"), ("", "it printed nothing")])
def test_a_kubectl_that_fails_is_reported_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: str, words: str
) -> None:
    async def wait_until_it_has_ended(*_: Any) -> bool:
        while not (tmp_path / "ended").exists():
            await asyncio.sleep(0.01)
        return False

    monkeypatch.setattr(kubectl.Kubectl, "wait_for_proxy", wait_until_it_has_ended)
    program = tmp_path / "kubectl"
    program.write_text(f"#!/bin/sh\nprintf '{printed}' >&2\n: >{tmp_path}/ended\nexit 1\n")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    for namespace in ("", "ns"):
        (tmp_path / "ended").unlink(missing_ok=True)
        with pytest.raises(ConfigError, match=f"^kubectl.*: .*{words}$"):
            engine_for(tmp_path, namespace)


def test_a_kubectl_that_hangs_is_reported_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubectl, "START_SECONDS", 0.2)
    (tmp_path / "kubectl").write_text("#!/bin/sh\nexec sleep 600\n")
    (tmp_path / "kubectl").chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(ConfigError, match=r"kubectl: no answer within 0\.2 s"):
        engine_for(tmp_path, "")


# The log


class Log:
    """A node that sends a log from a time on; each item of ``reads`` is how many lines one answer has."""

    def __init__(self, lines: list[tuple[str, str]], reads: list[int]) -> None:
        self._lines, self._reads = lines, iter(reads)

    async def stream(self, path: str) -> AsyncGenerator[bytes, None]:
        since = parse_qs(urlsplit(path).query).get("sinceTime", [""])[0].rstrip("Z")
        for when, text in self._lines[: next(self._reads)]:
            if when >= since:
                yield f"{when}Z {text}\n".encode()


def copy_log(log: Log, folder: Path) -> None:
    files = (folder / name for name in ("all", "position", "usage"))
    copy = LogCopy(log, "ns", "pod", "task", *files)  # type: ignore[arg-type]
    asyncio.run(copy.run(follow=False))


@pytest.mark.parametrize("first", range(6))
def test_lines_that_are_out_of_order_by_a_moment_are_copied_once(tmp_path: Path, first: int) -> None:
    day = "2024-01-01T00:00:"
    times = ["01.1", "03.9", "04.200000001", "04.1", "04.1", "09.5"]
    lines = [(day + when, f"line {number}") for number, when in enumerate(times)]
    log = Log(lines, [first, first, 6, 6])
    for _ in range(4):  # a new one continues where another has ended
        copy_log(log, tmp_path)
    assert (tmp_path / "all").read_text().splitlines() == [text for _, text in lines]


class CutLog:
    """A node whose kubelet is killed while it sends, which the API server does not tell from the end."""

    def __init__(self, *answers: str) -> None:
        self._answers = iter(answers)

    async def stream(self, path: str) -> AsyncGenerator[bytes, None]:
        yield next(self._answers).encode()


@pytest.mark.parametrize("cut", range(10, 100, 8))
def test_a_log_that_is_cut_while_it_is_read_is_read_to_its_end(tmp_path: Path, cut: int) -> None:
    texts = ["line 0\n", "line 1\n", "line 2\n", "end"]
    whole = "".join(f"2024-01-01T00:00:01.{at}Z {text}" for at, text in enumerate(texts))
    log = CutLog(whole[:cut], *[whole] * 4)
    copy = LogCopy(log, "ns", "pod", "task", tmp_path / "all", tmp_path / "at")  # type: ignore[arg-type]

    async def read() -> None:
        while await copy.run(follow=False):
            pass

    asyncio.run(read())
    assert (tmp_path / "all").read_text() == "".join(texts)


def test_streams_that_both_end_without_a_line_break_leave_no_time_in_the_log(tmp_path: Path) -> None:
    printed = "at 2024-01-01T00:00:01.5Z out"
    whole = f"2024-01-01T00:00:02.1Z {printed}2024-01-01T00:00:02.100000001Z err"
    copy = LogCopy(CutLog(*[whole] * 3), "ns", "pod", "task", tmp_path / "all", tmp_path / "at")  # type: ignore[arg-type]
    for _ in range(3):
        asyncio.run(copy.run(follow=False))
    assert (tmp_path / "all").read_text() == f"{printed}err"


@pytest.mark.parametrize("first", range(5))
def test_rows_of_usage_are_taken_out_of_the_log_once(tmp_path: Path, first: int) -> None:
    texts = ["begin", "\x1eusage 1 5.0 cpu=1:1", "50% \x1eusage 2 5.0 cpu=1:1", "100%", "\x1eusage # why"]
    log = Log([(f"2024-01-01T00:00:0{at}.1", text) for at, text in enumerate(texts)], [first, 5, 5])
    for _ in range(3):
        copy_log(log, tmp_path)
    assert (tmp_path / "all").read_text() == "begin\n50% 100%\n"
    assert (tmp_path / "usage").read_text() == "1 5.0 cpu=1:1\n2 5.0 cpu=1:1\n# why\n"


def test_the_script_in_a_pod_reads_both_versions_of_control_groups_and_all_gpus(tmp_path: Path) -> None:
    """In each shell of this machine; the numbers of the groups do not change, so only their maxima count."""
    groups = {
        "new": {"cgroup.events": "", "cpu.stat": "usage_usec 5\n", "memory.current": "9000"},
        "old": {"cpuacct/cpuacct.usage": "5000\n", "memory/memory.usage_in_bytes": "9000"},
        "none": {},
    }
    groups["new"]["memory.stat"] = "anon 1\ninactive_file 1000\nfile 2\n"
    groups["old"]["memory/memory.stat"] = "total_inactive_file 1000\n"
    for folder, content in groups.items():
        (tmp_path / folder).mkdir()
        for name, text in content.items():
            (tmp_path / folder / name).parent.mkdir(exist_ok=True)
            (tmp_path / folder / name).write_text(text)
    lines = "0, 50, 1000\\n1, [N/A], 7\\n0, 100, 2000\\n10, 3, 4\\nerror\\n"
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\nwhile :; do printf '{lines}'; sleep 0.3; done\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    (tmp_path / "usage").write_text(pod_usage.SCRIPT)
    found = {}
    shells = [words for words in (["dash"], ["bash"], ["busybox", "sh"]) if shutil.which(words[0])]
    for words, name in itertools.product(shells or [["/bin/sh"]], groups):
        argv = [*words, tmp_path / "usage", "1", tmp_path / name, f"{tmp_path}/gpus-{words[0]}-{name}"]
        path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=path, start_new_session=True)
        found[words[0], name] = process
    for (_, name), process in found.items():
        with process:
            assert process.stdout is not None
            if name == "none":
                mark, _, line = process.stdout.readline().partition(" ")
                assert mark == "\x1eusage" and "control group" in usage.parse_note(line)
                continue
            printed = next(line for line in process.stdout if "gpu" in line)  # nvidia-smi may begin late
            os.killpg(process.pid, signal.SIGKILL)
        mark, _, line = printed.partition(" ")
        [row] = usage.parse_rows(line)
        assert mark == "\x1eusage" and 0.9 < row.seconds < 100 and abs(row.time / 1000 - time.time()) < 100
        gpus = {"gpu0": (75, 100), "gpu0.mb": (1500, 2000), "gpu10": (3, 3), "gpu10.mb": (4, 4)}
        assert row.values == {"cpu": (0, 0), "memory": (8000, 8000), **gpus}


def test_a_log_whose_beginning_is_gone_is_continued(tmp_path: Path) -> None:
    old = [("2024-01-01T00:00:01.1", "old"), ("2024-01-01T00:00:01.2", "older")]
    new = [("2024-01-01T00:00:01.3", "new")]
    for lines in (old, new):
        copy_log(Log(lines, [9]), tmp_path)
    assert (tmp_path / "all").read_text() == "old\nolder\nnew\n"


@pytest.mark.parametrize("frame", [(1, DATA, 1 << 31), (7, DATA, 1)])
def test_a_pod_that_sends_what_the_program_does_not_is_no_longer_listened_to(
    frame: tuple[int, int, int],
) -> None:
    sent = f"import sys, time; sys.stdout.buffer.write({HEAD.pack(0, 0, 0) + HEAD.pack(*frame) + b'x'!r})"
    argv = [sys.executable, "-c", f"{sent}; sys.stdout.flush(); time.sleep(60)"]

    async def check() -> None:
        listener = await listen_in_pod(None, argv, os.environ, "127.0.0.1", 1)  # type: ignore[arg-type]
        assert listener
        await asyncio.wait_for(listener.wait_closed(), 60)

    asyncio.run(check())


def test_port_of_a_pod_leads_back_to_the_client() -> None:
    """With the program on this machine: half-closed connections, large data, several at once, no port."""
    key = asyncssh.generate_private_key("ssh-ed25519")
    pod = SimpleNamespace(exec=lambda *words, flags: [sys.executable, *words[1:]], environment=os.environ)
    data = os.urandom(300_000)

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.read())
        writer.write_eof()

    async def call(port: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(data)
        writer.write_eof()
        try:
            return await reader.read()
        finally:
            writer.close()

    async def check() -> None:
        keys = frozenset([key.public_data])
        there = lambda: PodSshServer(keys, pod, "", set())  # type: ignore[arg-type] # noqa: E731
        here = await asyncio.start_server(echo, "127.0.0.1", 0)
        served = await asyncssh.create_server(there, "127.0.0.1", 0, server_host_keys=[key])
        target = here.sockets[0].getsockname()[1]
        options = {"known_hosts": None, "client_keys": [key], "username": "root", "config": None}
        async with asyncssh.connect("127.0.0.1", served.get_port(), **options) as client:
            port = free_port()
            listener = await client.forward_remote_port("127.0.0.1", port, "127.0.0.1", target)
            assert await asyncio.gather(*(call(port) for _ in range(3))) == [data] * 3
            for host, taken in (("127.0.0.1", port), ("0.0.0.0", free_port())):
                with pytest.raises(asyncssh.ChannelListenError):
                    await client.forward_remote_port(host, taken, "127.0.0.1", target)
            listener.close()
            await listener.wait_closed()
        await asyncio.to_thread(until, lambda: is_bindable(port))
        served.close()
        here.close()

    asyncio.run(check())


def test_a_script_in_a_pod_that_is_cancelled_leaves_no_error_in_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problems: list[dict[str, Any]] = []

    async def run() -> None:
        begun = asyncio.Event()

        async def read(*_: object) -> None:
            begun.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(kubectl, "_read", read)
        asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
        made = kubectl.Kubectl("", "")
        made._program = "true"
        task = asyncio.create_task(made.run_script("default", "pod", "task", "true"))
        await begun.wait()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        del task
        gc.collect()
        await asyncio.sleep(0)

    asyncio.run(run())
    gc.collect()
    assert problems == []
