"""Several people share the GPUs of a machine: two embedded clusters, and processes outside of both."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import Shell, make_shell
from tests.e2e.test_embedded_cluster import facts
from tests.processes import kill
from tests.server.workshop import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has abstract names of sockets")

SMI = """\
#!/bin/sh
case "$1" in
*=index*) cat {0}/gpus ;;
*apps*) cat {0}/apps ;;
*) cat {0}/memory ;;
esac
"""


class FakeGpus:
    """Two GPUs of a nvidia-smi that reads files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.uuids = [f"GPU-{uuid.uuid4()}" for _ in range(2)]
        rows = [f"{index}, {name}, test, 40000\n" for index, name in enumerate(self.uuids)]
        (folder / "gpus").write_text("".join(rows))
        self.use({})
        program = folder / "nvidia-smi"
        program.write_text(SMI.format(folder))
        program.chmod(0o755)

    def use(self, pids: dict[int, int], **memory: int) -> None:
        """Show processes on GPUs, and memory in use."""
        rows = [f"{self.uuids[index]}, {pid}\n" for index, pid in pids.items()]
        used = [
            f"{name}, {memory.get(f'gpu{index}', 4)}, Disabled\n" for index, name in enumerate(self.uuids)
        ]
        for kind, lines in (("apps", rows), ("memory", used)):
            (self.folder / "new").write_text("".join(lines))
            (self.folder / "new").rename(self.folder / kind)  # a server must not see it empty


@pytest.fixture
def gpus(tmp_path: Path) -> FakeGpus:
    return FakeGpus(tmp_path)


@pytest.fixture
def cluster_of(tmp_path: Path, gpus: FakeGpus) -> Iterator[Callable[[str], Shell]]:
    """Return a shell for each person; embedded clusters that are started there are stopped after the test."""
    made: list[Shell] = []

    def make(name: str) -> Shell:
        (tmp_path / name).mkdir()
        shell = make_shell(tmp_path / name)
        shell.environment["PATH"] = f"{gpus.folder}{os.pathsep}{shell.environment['PATH']}"
        shell.environment.pop("CUDA_VISIBLE_DEVICES", None)
        made.append(shell)
        return shell

    yield make
    for shell in made:
        shell.pai("cluster.stop")


def state(shell: Shell, job: str) -> str:
    return str(shell.ok("job.status", job, "-o", "json").json()["state"])


def resources(shell: Shell) -> dict[str, object]:
    [row] = shell.ok("cluster.resources", "local", "-o", "json").json()
    return {name: row[f"gpus_{name}"] for name in ("used", "usable", "total")} | {"taken": row["taken_gpus"]}


def overlaps(journal: Path) -> list[str]:
    """Return the starts of tasks on GPUs that another task still had."""
    busy: set[str] = set()
    found = []
    for line in journal.read_text().splitlines():
        event, gpus = line.split()
        for gpu in gpus.split(","):
            if event == "start" and gpu in busy:
                found.append(line)
            (busy.add if event == "start" else busy.discard)(gpu)
    return found


def test_two_servers_never_give_the_same_gpu_to_two_tasks(
    cluster_of: Callable[[str], Shell], tmp_path: Path
) -> None:
    journal = tmp_path / "journal"
    command = (
        f"echo start $CUDA_VISIBLE_DEVICES >>{journal}; sleep 0.5; echo end $CUDA_VISIBLE_DEVICES >>{journal}"
    )
    both = [cluster_of("ann"), cluster_of("bob")]
    for shell in both:
        shell.ok("cluster.start")
    for number in range(5):
        for shell in both:
            shell.ok("job.sub", command, "-j", f"job-{number}", "--gpu", "2" if number == 3 else "1")
    for shell in both:
        for number in range(5):
            shell.ok("job.wait", f"job-{number}")
            assert shell.ok("job.status", f"job-{number}", "-o", "json").json()["retries"] == 0
    assert overlaps(journal) == []
    assert len(journal.read_text().splitlines()) == 20


def test_gpu_of_a_task_stays_taken_while_its_server_is_killed_and_is_free_after_its_end(
    cluster_of: Callable[[str], Shell], tmp_path: Path
) -> None:
    ann, bob, gate = cluster_of("ann"), cluster_of("bob"), tmp_path / "gate"
    ann.ok("job.sub", f"until test -e {gate}; do sleep 0.05; done", "-j", "long", "--gpu", "1")
    jobs = ann.home / "local" / "jobs"
    begun = "*~long/0/main-0-0/started"
    until(lambda: any(len(path.read_text().splitlines()) == 2 for path in jobs.glob(begun)))
    [started] = jobs.glob(begun)
    kill(facts(ann)["pid"])
    runner = started.read_text().split()[0]
    assert resources(bob) | {"taken": ""} == {"used": 0, "usable": 1, "total": 2, "taken": ""}
    assert f"(a job of another server, pid {runner})" in str(resources(bob)["taken"])
    bob.ok("job.sub", "echo $CUDA_VISIBLE_DEVICES", "-j", "both", "--gpu", "2")
    until(lambda: "GPU 0 is used by" in bob.ok("job.why", "both").out)
    gate.touch()
    assert bob.ok("job.logs", "both", "--follow").out == "0,1\n"
    assert ann.ok("job.wait", "long").code == 0
    assert resources(ann) == {"used": 0, "usable": 2, "total": 2, "taken": ""}


def test_job_waits_for_a_gpu_that_a_process_outside_uses(
    cluster_of: Callable[[str], Shell], gpus: FakeGpus
) -> None:
    gpus.use({0: 1})  # the first process, of root
    me = cluster_of("me")
    shown = me.ok("cluster.resources", "local").out
    assert "0/1" in shown and "1 GPU (GPU 0: root (" in shown and "pid 1))" in shown
    assert me.ok("job.sub", "echo $CUDA_VISIBLE_DEVICES", "--gpu", "1", "--follow").out == "1\n"
    me.ok("job.sub", "echo $CUDA_VISIBLE_DEVICES", "-j", "both", "--gpu", "2")
    until(lambda: "is used by" in me.ok("job.why", "both").out)
    first = me.ok("job.why", "both").out.splitlines()[0]
    assert first.startswith("both is WAITING: it needs 2 GPUs; 1 is free: GPU 0 is used by root (")
    assert first.endswith(", pid 1)")
    gpus.use({0: 1}, gpu1=20000)
    until(lambda: "GPU 1: a process that is not visible here" in str(resources(me)["taken"]))
    until(lambda: "none is free" in me.ok("job.why", "both").out)
    events = me.ok("job.status", "both", "-o", "json").json()["events"]
    assert [one["count"] for one in events if one["reason"] == "FailedScheduling"] == [2]
    assert state(me, "both") == "WAITING"
    gpus.use({})
    assert me.ok("job.logs", "both", "--follow").out == "0,1\n"
    assert resources(me) == {"used": 0, "usable": 2, "total": 2, "taken": ""}


def test_tasks_that_start_one_by_one_use_the_gpus_that_are_free(
    cluster_of: Callable[[str], Shell], gpus: FakeGpus, tmp_path: Path
) -> None:
    gpus.use({1: 1})
    me, journal = cluster_of("me"), tmp_path / "journal"
    command = f"echo start $CUDA_VISIBLE_DEVICES >>{journal}; echo end $CUDA_VISIBLE_DEVICES >>{journal}"
    each = ["-u", "extras.gangAllocation=false"]
    me.ok("job.sub", command, "-j", "two", "--gpu", "1", "--instances", "2", *each, "--follow")
    assert journal.read_text() == "start 0\nend 0\n" * 2
