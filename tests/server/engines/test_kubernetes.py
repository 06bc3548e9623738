"""The engine kubernetes under gangs and faults, on a real cluster: nothing is lost, nothing runs twice."""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import os
import shutil
import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from openpai_tasks.errors import ConfigError
from openpai_tasks.server.engines.base import Launch, RemovesOrphans, TaskExit, TaskQueued
from openpai_tasks.server.engines.kubernetes import driver, gang, mirror, pods
from openpai_tasks.server.engines.kubernetes.api import path
from tests.server.engines import kube_cluster
from tests.server.engines.contract import EngineBench, task, unique_uid
from tests.server.engines.kube_cluster import Component, Kube, kube_namespace
from tests.server.workshop import until

UNIT = "openpai.test/unit"
"""A resource that only these tests use, of which each node has two."""
SEEN = "echo ran $(date +%s)"
FOREVER = "echo ready; while :; do sleep 0.1; done"


class PodBench(EngineBench):
    """Tasks that need no CPU to speak of, but ``units``."""

    image = kube_cluster.IMAGE

    def launch(self, uid: str, command: str, **more: Any) -> Launch:
        container = {"cpu": 0, "memory_mb": 32, "gpu": more.pop("units", 0), **more.pop("container", {})}
        return super().launch(uid, command, container=container, **more)

    def gang(self, name: str, count: int, command: str, **more: Any) -> list[Launch]:
        """The tasks of a job that start together; their folders are in one of the job."""
        found = [self.launch(f"{name}{number}", command, **more) for number in range(count)]
        return [
            replace(one, index=number, shared={"JOB": name}, folder=self.folder / name / f"{name}{number}")
            for number, one in enumerate(found)
        ]

    def pod(self, uid: str) -> str:
        return pods.pod_name(unique_uid(uid))

    def reason(self, uid: str) -> str:
        found = self.status(uid)
        return found.reason if isinstance(found, TaskQueued) else ""

    def all_end(self, launches: Sequence[Launch], seconds: float = 60) -> list[TaskExit]:
        return [until(lambda one=one: self.end_of(one), seconds) for one in launches]  # type: ignore[misc]

    def end_of(self, launch: Launch) -> TaskExit | None:
        found = self.engine.poll([replace(task(self.folder), uid=launch.uid, folder=launch.folder)])
        end = found[launch.uid]
        return end if isinstance(end, TaskExit) else None

    def forget(self, *launches: Launch) -> None:
        for one in launches:
            self.engine.forget(replace(task(self.folder), uid=one.uid, folder=one.folder))


def log_of(launch: Launch) -> list[str]:
    return (launch.folder / "logs" / "all").read_text().splitlines()


@pytest.fixture(scope="module")
def kube() -> Iterator[Kube]:
    with kube_namespace() as found:
        nodes = found.run("get", "nodes", "--output=name").split()
        for node in nodes:
            found.pretend(node, 2, UNIT)
        yield found
        for node in nodes:
            found.pretend(node, None, UNIT)


@pytest.fixture
def bench(kube: Kube, tmp_path: Path) -> Iterator[PodBench]:
    made = PodBench(tmp_path / "jobs", lambda folder: kube.engine(folder, 2.0, gpu_resource=UNIT))
    yield made
    made.engine.close()
    kube.clean()


# Gangs


def test_gangs_that_do_not_fit_together_run_one_after_the_other(bench: PodBench, kube: Kube) -> None:
    command = f"{SEEN}; sleep 2; {SEEN}"
    first, second = (bench.gang(name, 3, command, units=1) for name in ("first", "second"))
    bench.engine.start(*first, *second)
    until(lambda: "can start together" in bench.reason("second0"))
    assert [end.user_code for end in bench.all_end([*first, *second])] == [0] * 6
    times = [[int(line.removeprefix("ran ")) for line in log_of(one)] for one in (*first, *second)]
    assert all(len(one) == 2 for one in times)
    assert max(end for _, end in times[:3]) <= min(begin for begin, _ in times[3:])
    bench.forget(*first, *second)
    kube.wait_until_empty()


def test_a_gang_of_which_a_part_has_no_node_gives_back_the_nodes_of_the_others(
    bench: PodBench, kube: Kube, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gang, "STUCK_SECONDS", 1.0)
    monkeypatch.setattr(gang, "FIRST_PAUSE", 2.0)
    # Without the right to see nodes, the engine finds out only by trying.
    user = kube.user(tmp_path, "create,delete,get,list,watch:pods,pods/log,pods/exec,secrets")
    bench.engine.close()
    bench._make = lambda folder: kube.engine(folder, 2.0, gpu_resource=UNIT, kubeconfig=user)
    bench.open()
    other = bench.start("other", FOREVER, units=2)
    bench.begun("other")
    together = bench.gang("gang", 3, SEEN, units=1)
    bench.engine.start(*together)
    until(lambda: "could not be placed all at once" in bench.reason("gang0"))
    until(lambda: kube.names("pods") == [bench.pod("other")])
    monkeypatch.setattr(gang, "STUCK_SECONDS", 60.0)  # on a busy machine, they get their nodes slowly
    bench.engine.stop(other)
    assert [end.user_code for end in bench.all_end(together, 200)] == [0] * 3
    assert [len(log_of(one)) for one in together] == [1] * 3
    assert all(pods.pod_name(one.uid) not in kube.names("pods") for one in together)  # they had new names


def test_tasks_that_need_not_start_together_do_not_wait_for_each_other(bench: PodBench) -> None:
    free = {"gangAllocation": False}
    small, large = (
        bench.gang("job", 1, SEEN, extras=free)[0],
        bench.gang("huge", 1, SEEN, units=9, extras=free)[0],
    )
    bench.engine.start(small, replace(large, folder=small.folder.with_name("huge")))
    assert bench.all_end([small])[0].user_code == 0


def test_a_gang_waits_for_its_last_task_and_ends_if_that_one_cannot_start(
    bench: PodBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "IMAGE_SECONDS", 1.0)
    monkeypatch.setattr(driver, "PEER_SECONDS", 1.0)
    monkeypatch.setattr(driver, "LOOK", 1.0)
    one, other = bench.gang("gang", 2, SEEN)
    other = replace(other, image="127.0.0.1:9/missing:1")
    bench.engine.start(one, other)
    found, failed = bench.all_end([one, other])
    assert failed.platform_code == 254 and "image 127.0.0.1:9/missing:1 cannot be pulled" in failed.reason
    assert "did not begin, since main-1, which starts with it, has ended" in found.reason


# What Kubernetes and its administrators do


def test_a_task_whose_pod_is_deleted_by_others_keeps_its_log_and_says_so(bench: PodBench, kube: Kube) -> None:
    bench.start("uid", FOREVER)
    bench.begun("uid")
    kube.run("delete", "pod", bench.pod("uid"), "--force", "--wait=false")
    end = until(lambda: bench.end("uid"))
    assert (end.user_code, end.platform_code, end.stopped) == (None, -101, False)
    assert "its pod was deleted by someone else" in end.reason and bench.log("uid") == "ready\n"


def test_a_pod_can_be_deleted_before_it_runs(bench: PodBench, kube: Kube) -> None:
    bench.start("uid", SEEN, units=9)
    until(lambda: "Insufficient" in bench.reason("uid"))
    kube.run("delete", "pod", bench.pod("uid"), "--wait=false")
    assert "its pod was deleted by someone else" in until(lambda: bench.end("uid")).reason


def test_an_evicted_task_ends(bench: PodBench, kube: Kube) -> None:
    bench.start("uid", FOREVER)
    bench.begun("uid")
    name = bench.pod("uid")
    eviction = {
        "apiVersion": "policy/v1beta1" if "v1.20" in kube.run("version") else "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": kube.namespace},
        "deleteOptions": {"gracePeriodSeconds": 1},
    }
    where = f"/api/v1/namespaces/{kube.namespace}/pods/{name}/eviction"
    kube.run("create", f"--raw={where}", "--filename=-", sent=json.dumps(eviction))
    end = until(lambda: bench.end("uid"))
    assert end.user_code is None and end.platform_code in (-101, -1001)
    assert bench.log("uid") == "ready\n"


def test_a_task_that_uses_too_much_memory_says_so(bench: PodBench) -> None:
    end = bench.run("uid", "tail /dev/zero", container={"memory_mb": 32})
    assert end.user_code == 137 and end.reason == "used more memory than it asked for"


def test_a_missing_namespace_is_refused(tmp_path: Path, kube: Kube) -> None:
    with pytest.raises(ConfigError, match="Kubernetes has no namespace 'nosuch'; `kubectl create namespace"):
        kube.engine(tmp_path, namespace="nosuch")


def test_a_task_waits_while_a_quota_is_used_up(
    bench: PodBench, kube: Kube, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "REFUSED_PAUSE", 0.3)
    kube.run("create", "quota", "few", "--hard=pods=1")
    try:
        until(lambda: kube.get("quota", "few").get("status", {}).get("hard"))
        first = bench.start("first", FOREVER)
        bench.begun("first")
        bench.start("second", SEEN)
        together = bench.gang("gang", 2, SEEN)
        bench.engine.start(*together)
        until(lambda: "exceeded quota: few" in bench.reason("second"))
        until(lambda: "the quota few leaves too little (pods 2 of 0)" in bench.reason("gang0"))
        bench.engine.stop(first)
        until(lambda: bench.end("first"))
        bench.engine.forget(first)
        assert until(lambda: bench.end("second")).user_code == 0
    finally:
        kube.run("delete", "quota", "few")
    assert [end.user_code for end in bench.all_end(together)] == [0, 0]


@pytest.mark.parametrize(
    ("rules", "missing"),
    [
        (
            ["get,list,watch:pods,pods/log"],
            "you may not create pods, delete pods, create pods/exec, create secrets",
        ),
        ([], "pods"),
    ],
)
def test_a_namespace_without_the_rights_to_run_tasks_is_refused_in_one_line(
    kube: Kube, tmp_path: Path, rules: list[str], missing: str
) -> None:
    with pytest.raises(ConfigError, match=missing) as caught:
        kube.engine(tmp_path / "jobs", kubeconfig=kube.user(tmp_path, *rules))
    assert "\n" not in str(caught.value) and kube.namespace in str(caught.value)


# Our server, its proxy and its watch


def run_engine(folder: Path, options: Kube, launches: list[Launch]) -> None:
    """What a server does until it is killed."""
    engine = options.engine(folder, 2.0, gpu_resource=UNIT)
    engine.start(*launches)
    signal.pause()


@contextlib.contextmanager
def other_server(bench: PodBench, kube: Kube, launches: list[Launch]) -> Iterator[None]:
    """A server in another process, which is killed in the end."""
    bench.engine.close()
    made = multiprocessing.get_context("spawn").Process(
        target=run_engine, args=(bench.folder, kube, launches)
    )
    made.start()
    try:
        yield
    finally:
        made.kill()
        made.join()
        bench.open()


def test_a_killed_server_loses_no_task_and_starts_none_twice(bench: PodBench, kube: Kube) -> None:
    alone = [bench.launch(f"alone{number}", f"{SEEN}; sleep 1; echo end; exit 3") for number in range(4)]
    launches = [*alone, *bench.gang("gang", 2, f"{SEEN}; sleep 1; echo end; exit 3", units=1)]
    with other_server(bench, kube, launches):  # killed while it creates pods
        until(lambda: (alone[0].folder / driver.CREATED).exists())
    with other_server(bench, kube, launches):  # killed while they run
        until(lambda: all((one.folder / "logs" / "all").exists() for one in alone))
    bench.engine.close()  # longer than they run
    for one in alone:
        kube.run(
            "wait", f"pod/{pods.pod_name(one.uid)}", "--for=jsonpath={.status.phase}=Failed", "--timeout=60s"
        )
    bench.open()
    bench.engine.start(*launches)
    assert [end.user_code for end in bench.all_end(launches)] == [3] * 6
    assert all(len(log_of(one)) == 2 and log_of(one)[1] == "end" for one in launches)
    bench.forget(*launches)
    kube.wait_until_empty()


def test_a_new_server_stops_what_the_old_one_was_asked_to_stop(bench: PodBench, kube: Kube) -> None:
    one = bench.start("uid", FOREVER)
    bench.begun("uid")
    bench.engine.close()
    one.folder.joinpath(driver.STOP).touch()
    bench.open()
    end = until(lambda: bench.end("uid"))
    assert end.stopped and bench.log("uid") == "ready\n"
    bench.engine.forget(one)
    kube.wait_until_empty()


def test_pods_of_a_home_that_is_gone_are_orphans_and_those_of_others_are_not(
    bench: PodBench, kube: Kube, tmp_path: Path
) -> None:
    gone, alive = (PodBench(tmp_path / name, kube.engine) for name in ("gone", "alive"))
    for one in (gone, alive):
        made = one.start(one.folder.name, FOREVER)
        until((made.folder / driver.CREATED).exists)
        one.engine.close()
    names = set(kube.names("pods"))
    assert len(names) == 2
    shutil.rmtree(gone.folder)
    engine = bench.engine
    assert isinstance(engine, RemovesOrphans)
    found = engine.remove_orphans(preview=True)
    assert [one.home.partition(":")[2] for one in found] == [f"{gone.folder}/.kubernetes"]
    assert set(kube.names("pods")) == names and engine.remove_orphans(preview=False) == found
    assert set(kube.names("pods")) == names - {one.name for one in found}


def test_a_killed_proxy_is_started_again(bench: PodBench) -> None:
    bench.start("uid", f"echo ready; sleep 3; {SEEN}")
    bench.begun("uid")
    shell = bench.engine._kubectl._proxy.pid  # type: ignore[attr-defined]
    for pid in Path(f"/proc/{shell}/task/{shell}/children").read_text().split():
        os.kill(int(pid), signal.SIGKILL)
    assert bench.run("next", "exit 4").user_code == 4
    assert until(lambda: bench.end("uid")).user_code == 0 and bench.log("uid").count("ran") == 1


def test_a_watch_that_is_ended_by_the_server_goes_on(
    kube: Kube, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror, "WATCH_SECONDS", 1)
    bench = PodBench(tmp_path, kube.engine)
    try:
        assert bench.run("uid", "sleep 3; exit 4").user_code == 4
        assert not bench.engine._mirror.trouble  # type: ignore[attr-defined]
    finally:
        bench.engine.close()


def test_many_pods_are_mirrored_by_one_watch(bench: PodBench, kube: Kube) -> None:
    engine = bench.engine
    one = pods.build_pod(
        bench.launch("uid", "true"),
        pods.PodOwner(engine._home_id(), ""),  # type: ignore[attr-defined]
        engine._site,  # type: ignore[attr-defined]
        pods.FilePlan(),
        "many",
        pods.GangMarks("nobody"),
    )
    one["metadata"]["annotations"][pods.FOLDER] = str(bench.folder)

    async def create(number: int) -> None:
        name = f"many-{number}"
        about = {**one["metadata"], "name": name, "labels": {**one["metadata"]["labels"], pods.UID: name}}
        await engine._api.create(path(kube.namespace, "pods"), {**one, "metadata": about})  # type: ignore[attr-defined]

    async def create_many() -> None:
        for first in range(0, 1000, 20):
            await asyncio.gather(*map(create, range(first, first + 20)))

    asyncio.run_coroutine_threadsafe(create_many(), engine._loop).result(250)  # type: ignore[attr-defined]
    until(lambda: len(engine._mirror.pods) == 1000, 250)  # type: ignore[attr-defined]
    everything = engine._api.delete(path(kube.namespace, "pods", labelSelector=pods.HOME))  # type: ignore[attr-defined]
    asyncio.run_coroutine_threadsafe(everything, engine._loop).result(250)  # type: ignore[attr-defined]
    until(lambda: all(pod.is_gone for pod in engine._mirror.pods.values()))  # type: ignore[attr-defined]


# The machines of the cluster, where it is ours to break


@pytest.mark.outage
def test_an_api_server_that_is_away_for_a_while_changes_nothing(bench: PodBench, kube: Kube) -> None:
    server = Component.find("kube-apiserver")
    launches = [bench.launch(f"uid{number}", f"{SEEN}; sleep 5; echo end; exit 3") for number in range(2)]
    bench.engine.start(*launches)
    bench.begun("uid0", "ran")
    bench.begun("uid1", "ran")
    with server.away():
        until(lambda: (bench.folder.parent / "trouble").exists())
        new = bench.launch("new", SEEN)
        bench.engine.start(new)
        until(lambda: "Kubernetes: " in bench.reason("new"))
        bench.forget(launches[1])  # as if its end had been recorded before
    assert [end.user_code for end in bench.all_end([launches[0], new], 90)] == [3, 0]
    assert log_of(launches[0])[1:] == ["end"] and len(log_of(new)) == 1
    until(lambda: pods.pod_name(launches[1].uid) not in kube.names("pods"))
    until(lambda: not (bench.folder.parent / "trouble").exists())  # a busy machine may lose a connection


@pytest.mark.outage
def test_a_task_survives_its_kubelet(bench: PodBench, kube: Kube) -> None:
    bench.start("uid", f"{SEEN}; sleep 3; echo end; exit 3")
    bench.begun("uid", "ran")
    node = kube.get("pod", bench.pod("uid"))["spec"]["nodeName"]
    with Component.find("kubelet", f"--hostname-override={node}").away():
        pass
    assert until(lambda: bench.end("uid"), 90).user_code == 3
    assert bench.log("uid").splitlines()[1:] == ["end"]


@pytest.mark.outage
def test_a_task_on_a_lost_node_ends(bench: PodBench, kube: Kube, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pods, "NODE_SECONDS", 1)
    monkeypatch.setattr(driver, "LOST_SECONDS", 2.0)
    bench.start("uid", FOREVER)
    bench.begun("uid")
    node = kube.get("pod", bench.pod("uid"))["spec"]["nodeName"]
    with Component.find("kubelet", f"--hostname-override={node}").away():
        end = until(lambda: bench.end("uid"), 90)
    assert end.platform_code == -1001 and end.reason == "its node was lost; it may still run there"
    assert bench.log("uid") == "ready\n"
