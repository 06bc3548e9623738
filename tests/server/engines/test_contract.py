"""The contract of every engine with the scheduler; add a new engine to the fixture ``factory``."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from openpai_tasks.errors import ConfigError
from openpai_tasks.protocol.document.policy import JobPolicy
from openpai_tasks.protocol.document.scripts import REQUEUED, asks_to_run_again, limit_time
from openpai_tasks.server.cluster import open_engine
from openpai_tasks.server.engines.base import Engine, Ports, TaskExit, TaskQueued, TaskRunning
from openpai_tasks.server.engines.container_program import BASE
from openpai_tasks.server.engines.containers import DockerEngine, PodmanEngine
from openpai_tasks.server.engines.kubernetes import pod_usage
from openpai_tasks.server.engines.ports import is_bindable
from openpai_tasks.server.engines.process import ProcessEngine
from openpai_tasks.server.engines.runner import usage
from openpai_tasks.server.engines.slurm.engine import SlurmEngine
from openpai_tasks.server.scheduling import idle
from openpai_tasks.server.scheduling.keeping import TAIL, KeptFailure, find_failure, keep_failed
from openpai_tasks.server.scheduling.task_end import read_log_end
from openpai_tasks.server.ssh import CRASH
from openpai_tasks.server.ssh.enter import RESTORE
from openpai_tasks.server.state.records import Task
from openpai_tasks.server.state.state import now
from openpai_tasks.settings.engines import ENGINES
from tests.server.container_engines import IMAGE, engine_kit
from tests.server.engines import kube_cluster
from tests.server.engines.contract import WHY, EngineBench, QueueingEngine, task, unique_uid
from tests.server.engines.kube_cluster import kube_namespace
from tests.server.engines.slurm_cluster import slurm_cluster
from tests.server.workshop import GRACE, WHEN_READY, Workshop, machine, role, until

CONTAINERS = {"docker": DockerEngine, "podman": PodmanEngine}
DOCKER = pytest.param("docker", marks=pytest.mark.root)
HERE = machine(cpus=4, gpus=4)


def process(folder: Path, grace: float = GRACE) -> ProcessEngine:
    return ProcessEngine(folder, HERE, grace)


@pytest.fixture(scope="module", params=["process", "queueing", "slurm", "kubernetes", DOCKER, "podman"])
def factory(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Any]]:
    """Create engines of one kind; an engine is skipped where its programs are not installed."""
    if request.param == "process":
        yield process
    elif request.param == "slurm":
        with (
            slurm_cluster(tmp_path_factory.mktemp("slurm")) as cluster,
            pytest.MonkeyPatch.context() as patch,
        ):
            for name, value in cluster.environment.items():
                patch.setenv(name, value)
            yield lambda folder, grace=GRACE: SlurmEngine(folder, grace)
    elif request.param == "kubernetes":
        with kube_namespace(gpus=2) as kube:
            yield kube.engine
    elif request.param == "queueing":
        yield lambda folder, grace=GRACE: QueueingEngine(process(folder, grace), slots=2)
    else:
        with engine_kit(request.param) as kit, pytest.MonkeyPatch.context() as patch:
            for name, value in kit.environment.items():
                patch.setenv(name, value)
            made = CONTAINERS[request.param]
            yield lambda folder, grace=GRACE: made(folder, HERE, grace)


@pytest.fixture
def bench(factory: Callable[..., Any], tmp_path: Path) -> Iterator[EngineBench]:
    made = EngineBench(tmp_path, factory)
    made.image = kube_cluster.IMAGE if made.engine.name == "kubernetes" else IMAGE
    yield made
    made.engine.close()
    if made.engine.name == "kubernetes":  # tasks that were asked to stop a moment ago hold the nodes
        factory.__self__.clean()  # type: ignore[attr-defined]


@pytest.fixture
def hasty(factory: Callable[..., Any], tmp_path: Path) -> Iterator[EngineBench]:
    """An engine that soon kills a stopped task."""
    made = EngineBench(tmp_path / "hasty", lambda folder: factory(folder, 1.0))
    made.image = kube_cluster.IMAGE if made.engine.name == "kubernetes" else IMAGE
    yield made
    made.engine.close()
    if made.engine.name == "kubernetes":  # tasks that were asked to stop a moment ago hold the nodes
        factory.__self__.clean()  # type: ignore[attr-defined]


def until_stopped(then: str = "exit 0") -> str:
    """Return a command that waits until its task is stopped: tests need not see the files of a task."""
    return f"trap '{then}' TERM; echo ready; while :; do sleep 0.05; done"


def test_task_runs_once_even_if_it_is_started_repeatedly_and_stopped_after_its_end(
    bench: EngineBench,
) -> None:
    for _ in range(3):
        bench.start("uid", "echo ran; exit 3")
    end = until(lambda: bench.end("uid"))
    bench.start("uid", "echo ran")
    assert (end.user_code, end.platform_code, end.stopped) == (3, None, False)
    assert bench.status("uid") == end
    bench.engine.stop(task(bench.folder))
    assert bench.status("uid") == end
    assert bench.log("uid") == "ran\n"


@pytest.mark.parametrize(
    ("command", "code", "out", "err"),
    [
        ("echo out; echo err >&2; false; echo on", 1, "out\n", "err\n"),
        ("kill -9 $$", 137, "", ""),
    ],
)
def test_exit_code_and_output_are_those_of_the_command(
    bench: EngineBench, command: str, code: int, out: str, err: str
) -> None:
    end = bench.run("uid", command)
    assert (end.user_code, end.platform_code, end.stopped, end.reason) == (code, None, False, "")
    if bench.engine.separates_streams:
        assert (bench.log("uid"), bench.log("uid", "stderr")) == (out, err)
    both = bench.log("uid", "all")
    assert both in {out + err, err + out}  # a container program forwards two streams in no certain order


def test_failed_task_is_kept_until_it_is_stopped(bench: EngineBench) -> None:
    """It runs on, with the folder and the variables of the crash in a file, and ends with its exit code."""
    about = {"PAI_JOB_NAME": "alice~job", "PAI_CURRENT_TASK_ROLE_NAME": "main"}
    about |= {"PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX": "0"}
    crashes = "mkdir deep; cd deep; export SEEN='a b'; echo failing; (exit 3)\necho on"
    script = keep_failed(f"echo $PAI_CRASH_FILE; {crashes}", JobPolicy(keep_failed=600))
    path = {} if bench.uses_images else {"PATH": os.environ["PATH"]}
    one = bench.start("uid", script, environment={**about, **path})
    failure = until(lambda: bench.end("uid") or find_failure(one, read_log_end(bench.engine, one, TAIL)))
    assert isinstance(failure, KeptFailure) and failure.code == 3
    assert 0 < failure.until / 1000 - time.time() <= 600
    assert bench.status("uid") == TaskRunning()
    until(lambda: "failing\n" in bench.log("uid"))  # container programs read stdout and stderr apart
    lines = bench.log("uid").splitlines()
    crash = next(line for line in lines if line.endswith(f"/{CRASH}"))
    assert "on" not in lines
    if bench.engine.has_task_folders and not bench.uses_images:
        assert Path(crash) == one.folder / CRASH and (one.folder / CRASH).stat().st_mode & 0o777 == 0o600
        restore = [shutil.which("bash") or "/bin/sh", "-c", RESTORE, crash, "sh", "-c", 'echo "$PWD $SEEN"']
        done = subprocess.run(restore, capture_output=True, text=True, env=path, timeout=60)
        assert done.stdout == f"{one.folder.resolve() / 'work/deep'} a b\n"
    else:
        assert crash in (f"{BASE}/{CRASH}", f"{BASE}/io/{CRASH}")
    bench.engine.stop(one)
    end = until(lambda: bench.end("uid"))
    assert end.stopped and end.user_code in ((3,) if bench.engine.name != "kubernetes" else (3, None))
    assert not (one.folder / CRASH).exists()


def test_logs_can_be_read_during_and_after_a_task(bench: EngineBench) -> None:
    one = bench.start("uid", until_stopped("echo more; exit 0"))
    bench.begun("uid")
    assert bench.status("uid") == TaskRunning()
    until(lambda: bench.engine.logs(one)["all"] == 6)  # written after stdout
    sizes = {name: size for name, size in bench.engine.logs(one).items() if name != "times"}
    assert sizes == {"stdout": 6, "stderr": 0, "all": 6}
    bench.engine.stop(one)
    until(lambda: bench.end("uid"))
    # The shell may report its child's end on the other stream.
    assert bench.engine.logs(one)["stdout"] == 11 or not bench.engine.separates_streams
    with bench.engine.open_log(one, "stdout") as file:
        assert file.seek(6) == 6
        assert b"more\n" in file.readlines()


def test_what_a_task_uses_is_recorded_while_it_runs(
    bench: EngineBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_usage, "ROW_SECONDS", 1)
    loop = "i=0; while [ $i -lt 100000 ]; do i=$((i + 1)); done"  # without a program, which an image may lack
    one = bench.start("uid", f"{loop}; {until_stopped()}")
    bench.begun("uid")

    def rows() -> list[usage.Row] | None:
        found = usage.parse_rows(bench.log("uid", usage.FILE))
        return found if sum(row.seconds * row.values["cpu"][0] for row in found) > 0.03 else None

    found = until(rows)
    assert bench.engine.records_usage and max(row.values["memory"][1] for row in found) > 50_000
    assert abs(found[0].time / 1000 - time.time()) < 100
    with bench.engine.open_log(one, usage.FILE) as file:
        assert idle.read_span(file) is None  # it has no GPUs
    bench.engine.stop(one)
    assert until(lambda: bench.end("uid")).user_code == 0
    assert bench.log("uid") == "ready\n" or not bench.engine.separates_streams


def test_mount_root_is_empty_if_the_engine_mounts_at_the_root_and_a_missing_log_cannot_be_opened(
    bench: EngineBench,
) -> None:
    assert bench.engine.logs(task(bench.folder, "never")) == {}
    assert bench.run("uid", 'echo "[$PAI_MOUNT_ROOT]"; ln -s /etc/passwd link').user_code == 0
    assert (bench.log("uid") == "[]\n") is bench.engine.mounts_at_root
    for uid, name in [("never", "stdout"), ("uid", "../work/link"), ("uid", "other")]:
        with pytest.raises(FileNotFoundError):
            bench.engine.open_log(task(bench.folder, uid), name)


def test_a_task_can_save_before_its_time_limit_and_ask_to_run_again(bench: EngineBench) -> None:
    command = "trap 'echo saved; exit 9' TERM; : >ready; while :; do sleep 0.05; done"
    command = WHEN_READY + limit_time(command, 31, requeues=1, grace=30)
    variables = {"PAI_REQUEUES": "0"} | ({} if bench.uses_images else {"PATH": os.environ["PATH"]})
    end = bench.run("uid", command, environment=variables)
    assert (end.user_code, end.platform_code, end.stopped) == (REQUEUED, None, False)
    log = bench.log("uid", "all")
    assert "saved" in log and asks_to_run_again(log.encode())


def test_stop_sends_sigterm(bench: EngineBench) -> None:
    listens = bench.start("listens", until_stopped("echo bye; exit 7"))
    bench.begun("listens")
    bench.engine.stop(listens)
    end = until(lambda: bench.end("listens"))
    assert (end.user_code, end.stopped) == (7, True)
    assert "bye" in bench.log("listens").splitlines()[-2:]


def test_a_stopped_task_that_ignores_sigterm_is_killed_after_the_grace_period(hasty: EngineBench) -> None:
    ignores = hasty.start("ignores", "trap '' TERM; echo ready; while :; do sleep 0.1 || :; done")
    hasty.begun("ignores")
    hasty.engine.stop(ignores)
    end = until(lambda: hasty.end("ignores"))
    assert (end.user_code, end.stopped) == (137, True)


def test_a_task_stopped_before_it_began_never_runs(bench: EngineBench) -> None:
    bench.engine.stop(task(bench.folder))
    bench.start("uid", "echo ran")
    end = bench.end("uid")
    assert end and end.stopped and end.user_code is None
    assert bench.log("uid") == ""


def test_one_poll_reports_many_tasks(bench: EngineBench) -> None:
    tasks = [bench.start("first", "exit 3"), bench.start("last", until_stopped("exit 4"))]

    def ended(count: int) -> dict[str, int | None] | None:
        found = bench.engine.poll(tasks)
        assert found.keys() == {one.uid for one in tasks}
        codes = {uid: status.user_code for uid, status in found.items() if isinstance(status, TaskExit)}
        return codes if len(codes) == count else None

    assert until(lambda: ended(1)) == {unique_uid("first"): 3}
    bench.begun("last")
    bench.engine.stop(tasks[1])
    assert until(lambda: ended(2)) == {unique_uid("first"): 3, unique_uid("last"): 4}
    assert bench.engine.poll([]) == {}


def test_new_engine_takes_over_running_tasks(bench: EngineBench) -> None:
    one = bench.start("uid", until_stopped("echo more; exit 4"))
    bench.begun("uid")
    bench.engine.close()
    bench.open()
    bench.start("uid", "echo twice")
    until(lambda: bench.status("uid") == TaskRunning())  # Kubernetes may not answer at once
    bench.engine.stop(one)
    assert until(lambda: bench.end("uid")).user_code == 4
    assert bench.log("uid").replace("Terminated\n", "") == "ready\nmore\n"  # which a shell reports on stderr


def test_the_times_of_a_task_are_its_own_also_for_a_later_engine(bench: EngineBench) -> None:
    before = now() - 1000  # Kubernetes reports whole seconds
    end = bench.run("uid", "exit 3")
    after = now()
    bench.engine.close()
    bench.open()
    bench.start("uid", "exit 3")
    again = until(lambda: bench.end("uid"))
    assert end.ended == again.ended and before <= (again.ended or 0) <= after
    if bench.engine.places_late:
        assert again.place and before <= (again.place.began or 0) <= again.ended


def test_task_that_cannot_start_fails_alone_with_a_reason(bench: EngineBench) -> None:
    (bench.folder / "broken").write_text("in the way")
    bench.engine.start(bench.launch("broken", "true"), bench.launch("sound", "exit 5"))
    end = until(lambda: bench.end("broken"))
    assert end.platform_code == 256 and "could not be started" in end.reason
    assert until(lambda: bench.end("sound")).user_code == 5


def test_ports_are_free_distinct_and_held(bench: EngineBench) -> None:
    wanted = {uid: {"web": 3} for uid in ("one", "two", "three")}
    bench.engine.hold([])
    found = started_ports(bench, wanted) if bench.engine.places_late else bench.engine.assign_ports(wanted)
    ports = [port for labels in found.values() for numbers in labels.values() for port in numbers]
    if bench.engine.name != "kubernetes":  # each pod has its own address
        assert {len(set(itertools.chain(*labels.values()))) for labels in found.values()} == {5}
    assert {label: len(numbers) for label, numbers in found["one"].items()} == {"ssh": 1, "http": 1, "web": 3}
    if not bench.engine.places_late:  # tasks that start on their own may choose the same by chance
        assert len(set(ports)) == 15 and all(map(is_bindable, ports))
        bench.engine.hold([replace(task(bench.folder), ports=found["one"])])
        again = bench.engine.assign_ports({"one": {"web": 3}})["one"]
        assert not {port for numbers in again.values() for port in numbers} & {
            port for numbers in found["one"].values() for port in numbers
        }


def started_ports(bench: EngineBench, wanted: Mapping[str, Mapping[str, int]]) -> dict[str, Ports]:
    tasks = [bench.start(uid, until_stopped(), ports=ports) for uid, ports in wanted.items()]
    found = {uid: until(lambda uid=uid: bench.place(uid)).ports for uid in wanted}  # type: ignore[misc]
    stop_all(bench, tasks)
    return found


def stop_all(bench: EngineBench, tasks: Sequence[Task]) -> None:
    """Stop tasks that would take resources of the next ones."""
    for one in tasks:
        bench.engine.stop(one)
    until(lambda: all(isinstance(bench.engine.poll(tasks).get(one.uid), TaskExit) for one in tasks))


def test_each_gpu_is_assigned_to_one_task_at_a_time(bench: EngineBench) -> None:
    if bench.engine.places_late:
        tasks = [
            bench.start(uid, until_stopped(), container={"gpu": count})
            for uid, count in {"a": 2, "b": 1, "c": 1}.items()
        ]
        gpus = {uid: until(lambda uid=uid: bench.place(uid)).gpus for uid in "abc"}  # type: ignore[misc]
        if bench.engine.name != "kubernetes":  # which does not say which ones a pod has
            assert [len(gpus["a"]), *sorted(gpus["b"] + gpus["c"])] == [2, 0, 1]
        stop_all(bench, tasks)
        return
    bench.engine.hold([replace(task(bench.folder), gpus=(1,))])
    assert bench.engine.assign_gpus({"a": 2, "b": 1, "c": 0}) == {"a": (0, 2), "b": (3,), "c": ()}


def test_capacity_is_the_sum_of_named_nodes(bench: EngineBench) -> None:
    capacity = bench.engine.capacity()
    assert capacity.nodes and all(node.name and node.address for node in capacity.nodes)
    assert min(capacity.total.cpu, capacity.total.memory_mb) > 0 and capacity.total.gpu == 4
    assert capacity.node_name(capacity.nodes[0].address) == capacity.nodes[0].name


def test_only_a_queueing_engine_reports_queued_tasks(bench: EngineBench) -> None:
    uids = ("first", "second", "third") if bench.engine.schedules else ("first",)
    half = {"gpu": 2} if bench.engine.schedules else {}  # of all GPUs: the third has to wait for another
    tasks = [bench.start(uid, until_stopped(), container=half) for uid in uids]
    found = bench.status(uids[-1])
    if bench.engine.schedules:
        assert isinstance(found, TaskQueued) and (found.reason == WHY or bench.engine.places_late)
    else:
        assert found == TaskRunning()
    for one in tasks:
        bench.begun(one.folder.name)
        bench.engine.stop(one)
        assert until(lambda one=one: bench.end(one.folder.name)).user_code == 0  # type: ignore[misc]


# The table of engines


def test_every_row_of_the_table_is_an_engine(tmp_path: Path) -> None:
    assert open_engine("process", tmp_path, {}).name == "process"
    assert {name: ENGINES[name].program for name in ENGINES} == {
        "process": "",
        "docker": "docker",
        "podman": "podman",
        "slurm": "sbatch",
        "kubernetes": "kubectl",
    }


def test_an_unknown_engine_and_a_missing_program_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        ConfigError, match=r"no engine named 'x' \(known: process, docker, podman, slurm, kubernetes\)"
    ):
        open_engine("x", tmp_path, {})
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="the engine podman cannot be used: there is no podman on this"):
        open_engine("podman", tmp_path, {})


# With the scheduler


class QueueingCluster(Workshop):
    """A cluster whose engine has two slots, whatever the machine has."""

    def make_engine(self) -> Engine:
        inner = ProcessEngine(self.folder / "jobs", self.machine, self.grace)
        return QueueingEngine(inner, slots=2)  # type: ignore[return-value]


@pytest.fixture
def queueing(tmp_path: Path) -> Iterator[QueueingCluster]:
    made = QueueingCluster(tmp_path, machine(cpus=1), {"default": machine(cpus=1).resources}, enforce=True)
    yield made
    made.clean()


def gate_command(cluster: Workshop) -> str:
    return f"until test -e {cluster.folder / 'gate'}; do sleep 0.01; done"


def test_queueing_engine_gets_every_job_at_once(queueing: QueueingCluster) -> None:
    keys = [
        queueing.submit(f"job{number}", {"main": role(gate_command(queueing), cpu=50)}) for number in range(6)
    ]
    until(lambda: [queueing.job(key).state for key in keys] == ["RUNNING"] * 2 + ["WAITING"] * 4)
    last = queueing.job(keys[-1])
    assert (last.sub_state, last.launched) == ("AttemptPreparing", None)
    until(lambda: queueing.reasons(keys[-1]).get("FailedScheduling") == WHY)
    assert "Started" not in queueing.reasons(keys[-1])
    assert queueing.state.usage()["default"].cpu == 100  # counts only running jobs
    until(lambda: max(queueing.engine.polled) == 6)  # type: ignore[attr-defined]
    (queueing.folder / "gate").touch()
    jobs = [queueing.wait(key) for key in keys]
    assert [job.state for job in jobs] == ["SUCCEEDED"] * 6
    assert all(job.launched and job.completed and job.launched <= job.completed for job in jobs)
    assert all("Started" in queueing.reasons(key) for key in keys)


def test_a_queued_job_can_be_stopped(queueing: QueueingCluster) -> None:
    keys = [queueing.submit(f"job{number}", gate_command(queueing)) for number in range(3)]
    until(lambda: "FailedScheduling" in queueing.reasons(keys[2]))
    queueing.state.set_execution(keys[2], "STOP")
    stopped = queueing.wait(keys[2])
    assert (stopped.state, stopped.launched) == ("STOPPED", None)
    (queueing.folder / "gate").touch()
    assert [queueing.wait(key).state for key in keys[:2]] == ["SUCCEEDED"] * 2


def test_restarted_server_finds_queued_jobs_again(queueing: QueueingCluster) -> None:
    keys = [queueing.submit(f"job{number}", f"echo ran; {gate_command(queueing)}") for number in range(4)]
    until(lambda: "FailedScheduling" in queueing.reasons(keys[3]))
    queueing.close()
    queueing.open()
    (queueing.folder / "gate").touch()
    assert [queueing.wait(key).state for key in keys] == ["SUCCEEDED"] * 4
    assert [queueing.output(key) for key in keys] == ["ran\n"] * 4


def test_failed_job_of_a_queueing_engine_is_retried(queueing: QueueingCluster) -> None:
    job = queueing.run("again", "echo why; exit 1", jobRetryCount=1)
    assert (job.state, job.attempt, job.user_retries) == ("FAILED", 1, 1)
    attempt = queueing.state.attempts(job.key)[1]
    assert (attempt.exit_code, attempt.user_exit_code, attempt.log_end) == (255, 1, "why")


def test_queueing_engine_also_gets_tasks_without_gang_allocation(queueing: QueueingCluster) -> None:
    roles = {"main": role("true", instances=5)}
    job = queueing.run("loose", roles, extras={"gangAllocation": False})
    assert job.state == "SUCCEEDED"
    assert all(one.launched for one in queueing.tasks(job.key))
