"""The parts of the engine kubernetes that need no cluster."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from openpai_tasks.errors import ConfigError
from openpai_tasks.server.engines.base import ContainerSpec, Launch
from openpai_tasks.server.engines.kubernetes import capacity, gang, mirror, pod_state, pods
from openpai_tasks.server.engines.kubernetes.api import KubeApi, KubeError
from openpai_tasks.server.engines.kubernetes.gang import FreeNode, PodNeed
from openpai_tasks.server.engines.kubernetes.log_copy import LogCopy
from openpai_tasks.server.engines.kubernetes.mirror import PodMirror
from openpai_tasks.server.engines.kubernetes.site import read_site
from openpai_tasks.server.resources import ResourceAmount
from openpai_tasks.settings.engines import find_engine

OWNER = pods.PodOwner("abc", "host:/folder")


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


def test_settings_of_the_site_are_in_the_pod() -> None:
    spec = pod({"kubernetes-tolerations": "gpu=yes:NoSchedule, spot", "kubernetes-pull-secrets": "own"})[
        "spec"
    ]
    assert spec["tolerations"][:2] == [
        {"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"},
        {"key": "spot", "operator": "Exists"},
    ]
    assert spec["imagePullSecrets"] == [{"name": "own"}]


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
        state = {"finishedAt": "2024-01-01T00:00:00Z", **terminated}
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


def test_a_stopped_task_keeps_its_exit_code_although_its_pod_is_deleted() -> None:
    found = pod_state.read_exit(ended({}, True, exitCode=143, reason="Error"), is_stopped=True)
    assert (found.user_code, found.reason, found.stopped) == (143, "", True)


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
    copy = LogCopy(log, "ns", "pod", "task", folder / "all", folder / "position")  # type: ignore[arg-type]
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


def test_a_log_whose_beginning_is_gone_is_continued(tmp_path: Path) -> None:
    old = [("2024-01-01T00:00:01.1", "old"), ("2024-01-01T00:00:01.2", "older")]
    new = [("2024-01-01T00:00:01.3", "new")]
    for lines in (old, new):
        copy_log(Log(lines, [9]), tmp_path)
    assert (tmp_path / "all").read_text() == "old\nolder\nnew\n"
