"""The parts of the engine kubernetes that need no cluster."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import gc
import itertools
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import asyncssh
import pytest

from openpai_tasks.errors import ConfigError
from openpai_tasks.sdk.ssh.connection import Remote
from openpai_tasks.server.engines.base import ContainerSpec, Launch
from openpai_tasks.server.engines.kubernetes import (
    capacity,
    engine,
    gang,
    kubectl,
    mirror,
    pod_state,
    pod_usage,
    pods,
    transfer,
)
from openpai_tasks.server.engines.kubernetes.api import KubeApi, KubeError
from openpai_tasks.server.engines.kubernetes.driver import TaskDriver
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
    folder = tmp_path / "job" / "0" / "main-0-0"

    async def run() -> None:
        cluster = SimpleNamespace(mirror=SimpleNamespace(pods={}), namespaces={"": "ns"})
        about = dataclasses.replace(launch(), folder=folder)
        task = TaskDriver(cluster, about, [], lambda _: None)  # type: ignore[arg-type]
        task.stop_asked.set()
        await task._until_created()

    asyncio.run(run())
    assert {path.stat().st_mode & 0o777 for path in (folder, *folder.parents[:2])} == {0o700}


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
        await asyncio.wait_for(task._fetch_files(), 10)
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
    monkeypatch.setattr(kubectl, "SILENT_SECONDS", 3.0)
    (tmp_path / "input").write_text("1234567890")
    slowly = "for n in 1 2 3 4 5 6 7 8 9 0; do sleep 0.35; {}; done"

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
    assert hung == kubectl.ExecResult(None, b"", "no answer within 3 s")
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
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\nprintf '{lines}'\n")
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
            mark, _, line = process.stdout.readline().rstrip("\n").partition(" ")
            assert mark == "\x1eusage"
            if name == "none":
                assert "control group" in usage.parse_note(line)
                continue
            os.killpg(process.pid, signal.SIGKILL)
        [row] = usage.parse_rows(line)
        assert 0.9 < row.seconds < 10 and abs(row.time / 1000 - time.time()) < 100
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
