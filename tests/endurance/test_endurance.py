"""The endurance driver: histories repeat, are cut down, and broken promises are found."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
from typing import Any

import pytest

from tests.endurance import __main__, steady
from tests.endurance import world as world_module
from tests.endurance.__main__ import plan_for
from tests.endurance.checks import violations
from tests.endurance.faults.disk import FailingDisk, Full
from tests.endurance.faults.kubernetes import container_processes, task_containers
from tests.endurance.faults.preloading import can_build
from tests.endurance.found import FAULTS, OPERATIONS, SITES
from tests.endurance.operations import outputs, syncing
from tests.endurance.plan import Plan, Step
from tests.endurance.shrink import shrink
from tests.endurance.sites.base import Site
from tests.endurance.sites.slurm import WRAPPED, SlurmRecords, make_wrappers
from tests.endurance.steady import growth
from tests.endurance.traces import home_violations
from tests.endurance.world import Ran, Record, World

PROCESS = SITES["process"]
JOB = {"label": "c0n0", "lines": 2, "seconds": 0, "code": 0, "random_name": True}
SUBMIT = Step("submit", 0.0, JOB)
LOGS = Step("logs", 0.0, {"label": "c0n0"})
UPLOAD, MOVE = Step("store upload", 0.0, {"label": "s"}), Step("store move", 0.0, {"label": "m"})
WHOLE = {"source": {"a": "1"}, "before": {"a": "1"}, "after": {"a": "1"}, "problem": ""}
LEFT = {"a": "1", ".pai-part-1": "1"}
MOVED = {"source": {"a": "1"}, "before": {}, "after": {"a": "1"}}
GOOD = Record(
    plan=Plan(1, ((SUBMIT,),), ()),
    ran=(
        *(Ran(step, 0, "", "", False, 0.1) for step in (SUBMIT, UPLOAD)),
        Ran(MOVE, 0, "moved\n", "", False, 0.1),
    ),
    faults=(),
    jobs=({"name": "c0n0-abc", "state": "SUCCEEDED"},),
    logs={"c0n0-abc": "c0n0 line 0\nc0n0 line 1\n"},
    journals={"c0n0": ("start /h/jobs/u~c0n0-abc/0/main-0-0/work", "end /h/jobs/u~c0n0-abc/0/main-0-0/work")},
    killed_tasks=frozenset(),
    found={"copy": {"t": ({"a": "1"}, {"a": "1"})}, "store upload": {"s": WHOLE}, "store move": {"m": MOVED}},
    server_log="",
    left=(),
)
ATTEMPT = "/h/jobs/u~c0n0-abc/0/main-0-0"
ROW = {"JobId": "7", "Comment": "openpai-tasks:a", "JobState": "COMPLETED", "ExitCode": "0:0"}


def test_a_seed_gives_the_same_history_again():
    assert plan_for(7, PROCESS) == plan_for(7, PROCESS) != plan_for(8, PROCESS)


def test_a_failing_history_is_cut_down_to_the_steps_that_it_needs():
    whole = plan_for(7, PROCESS)
    needed = (whole.clients[1][3], whole.faults[2])

    def fails(plan: Plan) -> bool:
        steps = [step for one in (*plan.clients, plan.faults) for step in one]
        return all(any(step is one for one in steps) for step in needed)

    small = shrink(whole, fails)
    assert small.size == 2 and small.seed == 7


def test_the_first_history_that_fails_is_cut_down_and_printed_with_its_seed(monkeypatch, capsys):
    def run(plan: Plan, site: Site) -> tuple[Record, list[str]]:
        is_failing = any(step.kind == "submit" for step in plan.clients[0])
        return dataclasses.replace(GOOD, plan=plan), ["broken"] if is_failing else []

    monkeypatch.setattr(__main__, "run", run)
    seed = next(one for one in range(100) if run(plan_for(one, PROCESS), PROCESS)[1])
    monkeypatch.setattr(sys, "argv", ["endure", "--seed", str(seed)])
    assert __main__.main() == 1
    text = capsys.readouterr().out
    assert f"seed {seed}: 3 operations" in text and "failed histories: 1\n" in text
    shortest = text.partition(f"history of seed {seed} that was seen to fail:\n")[2].splitlines()
    assert [line.partition(" s, ")[2].split()[0] for line in shortest] == ["submit"]


def test_a_history_that_keeps_all_promises_has_no_violations():
    assert list(violations(GOOD)) == []


def test_a_command_fails_without_a_reason_only_if_no_fault_was_near():
    alone = Ran(LOGS, 1, "", "error: no\n", False, 0.1)
    missing = dataclasses.replace(alone, err="error: no job named 'c0n0' on cluster 'local'")
    near, killed = (
        dataclasses.replace(alone, faults=("stop server",)),
        dataclasses.replace(alone, is_killed=True),
    )
    for ran, count in ((alone, 1), (missing, 0), (near, 0), (killed, 0)):
        record = dataclasses.replace(GOOD, ran=(*GOOD.ran, ran))
        assert len(list(violations(record))) == count


def test_a_command_has_the_faults_that_were_near_it(tmp_path, monkeypatch):
    world = World(tmp_path, Site())
    (tmp_path / "project").mkdir()
    monkeypatch.setattr(OPERATIONS["list"], "command", lambda *_: [sys.executable, "-c", ""])
    monkeypatch.setattr(world_module, "RECOVERY", math.inf)
    run = functools.partial(world._run_client, 0, (Step("list"),), OPERATIONS)
    run()
    with world._noted("stop server"):
        run()
    run()
    monkeypatch.setattr(world_module, "RECOVERY", 0.0)
    run()
    assert [ran.faults for ran in world._ran] == [(), ("stop server",), ("stop server",), ()]


def failed(code: int, retries: int = 0) -> tuple[dict[str, Any]]:
    return ({**GOOD.jobs[0], "state": "FAILED", "platform_exit_code": code, "retries": retries},)


def kubernetes(events: list[Any], code: int = 1, hurt: str = "") -> dict[str, Any]:
    """What has changed in a record with these events of pods, and a job that failed with this code."""
    return {
        "found": {**GOOD.found, "kubernetes": {"events": events, "hurt": {ATTEMPT: {hurt}} if hurt else {}}},
        "jobs": failed(code),
    }


def retried(times: int) -> dict[str, Any]:
    return {"ran": (Ran(Step("retry", 0.0, JOB), 0, "", "", False, 0.1),), "jobs": failed(1, times)}


def test_a_command_that_fails_by_itself_after_its_pod_was_taken_away_breaks_no_promise():
    step = dataclasses.replace(SUBMIT, kind="retry", options={**JOB, "code": 3})
    ran = {"ran": (Ran(step, 0, "", "", False, 0.1),), "jobs": failed(255, 1)}
    found = kubernetes([], 255, "evict pod")["found"]
    record = dataclasses.replace(GOOD, **ran, found=found, killed_tasks=frozenset({ATTEMPT + "/work"}))
    assert not list(violations(record))


def test_a_traceback_of_the_last_release_is_none_of_ours():
    old = 'Traceback (most recent call last):\n  File "/endure-release-0-abc/openpai_tasks/x.py", line 1\n'
    assert not list(violations(dataclasses.replace(GOOD, server_log=old)))
    (found,) = violations(dataclasses.replace(GOOD, server_log=old + old.replace("endure-release-", "")))
    assert "openpai_tasks/x.py" in found


def test_a_server_that_cannot_load_for_lack_of_descriptors_memory_or_a_disk_breaks_no_promise():
    """Found by ``inv endure --engine ssh-slurm --seed 61502``,
    ``--engine kubernetes --seed 252001``, 250010 and 282001."""
    loading = """\
Traceback (most recent call last):
  File "<frozen runpy>", line 198, in _run_module_as_main
  File "/openpai_tasks/server/__main__.py", line 8, in <module>
    from openpai_tasks.server import variables
OSError: [Errno 24] Too many open files: '/usr/lib/python3.11/re'
2026-11-19 10:55:35,742 INFO
"""
    running, other = (
        loading.replace("<module>", "main"),
        loading.replace("OSError: [Errno 24]", "ValueError:"),
    )
    lazy = '  File "/openpai_tasks/lazy_package.py", line 19, in attach_stub\n'
    loading = loading.replace("OSError", f"{lazy}OSError")
    no_memory = loading.replace("[Errno 24] Too many open files", "[Errno 12] Cannot allocate memory")
    no_memory += loading.replace(
        "OSError: [Errno 24] Too many open files", "SystemError: error return without exception set"
    )
    no_disk = loading.replace("[Errno 24] Too many open files", "[Errno 5] Input/output error")
    right, wrong = (loading, no_memory, no_disk), (running, other, loading + running)
    for log, count in (*((log, 0) for log in right), *((log, 1) for log in wrong)):
        assert len(list(violations(dataclasses.replace(GOOD, server_log=log)))) == count


def test_a_traceback_is_shown_with_the_error_that_it_led_to():
    first, second = (
        'Traceback (most recent call last):\n  File "x.py"\n' + error for error in ("A: a", "B: b")
    )
    cause = "\n\nThe above exception was the direct cause of the following exception:\n\n"
    found, *_ = violations(dataclasses.replace(GOOD, server_log=first + cause + second))
    assert "A: a" in found and found.endswith("B: b")


def test_a_kernel_without_a_disk_breaks_no_promise():
    """Found by ``inv endure --engine slurm --seed 234000``."""
    kernel = (
        "starting the kernel\nTraceback (most recent call last):\n"
        '  File "/site-packages/IPython/core/profiledir.py", line 132, in check_startup_dir\n'
        "OSError: [Errno 28] No space left on device: 'README'\ndone\n"
    )
    ours, hung = kernel.replace("IPython/core", "openpai_tasks"), "Traceback: hung for 180 s\n"
    step, found = Step("notebook", 0.0, {"label": "k", "number": 4}), {**GOOD.found, "notebook": {"k": None}}
    for err, count in ((kernel, 0), (ours, 1), (hung, 1)):
        ran = (*GOOD.ran, Ran(step, 1, "", err, False, 0.1))
        assert len(list(violations(dataclasses.replace(GOOD, ran=ran, found=found)))) == count


def test_python_that_cannot_start_for_lack_of_memory_breaks_no_promise():
    site = 'Traceback (most recent call last):\n  File "<frozen site>", line 599, in main\nMemoryError\n'
    ours = site.replace("<frozen site>", "/openpai_tasks/__main__.py")
    for err, count in ((site, 0), (ours, 1)):
        ran = (Ran(SUBMIT, 1, "", err, False, 0.1), *GOOD.ran)
        assert len(list(violations(dataclasses.replace(GOOD, ran=ran)))) == count


def test_output_may_have_gaps_only_after_a_fault_of_the_disk_and_an_end_only_after_a_kill():
    folder = frozenset({"/h/jobs/u~c0n0-abc/0/main-0-0"})
    assert not list(violations(dataclasses.replace(GOOD, logs={"c0n0-abc": ""}, lossy_tasks=folder)))
    step = dataclasses.replace(SUBMIT, kind="follow")
    followed = (Ran(step, 0, "c0n0 line 1\n", "c0n0-abc submitted to local", False, 0.1),)
    record = dataclasses.replace(GOOD, ran=followed)
    assert list(violations(record))
    assert not list(violations(dataclasses.replace(record, logs={"c0n0-abc": ""}, lossy_tasks=folder)))
    lost = dataclasses.replace(GOOD, jobs=({"name": "c0n0-abc", "state": "FAILED"},), journals={})
    assert list(violations(lost)) and not list(violations(dataclasses.replace(lost, killed_tasks=folder)))


def test_each_broken_promise_is_found():
    job = GOOD.jobs[0]
    stores = GOOD.found
    twice = (*GOOD.journals["c0n0"], GOOD.journals["c0n0"][0])
    broken = {
        "0 jobs, but 1 to 1 were submitted": {"jobs": ()},
        "2 jobs, but 1 to 1": {"jobs": (job, {**job, "state": "STOPPED"})},
        "2 times in the journal": {"journals": {"c0n0": twice}},
        "its command never ran": {"journals": {}},
        "is FAILED, but its command exits with 0": {"jobs": ({**job, "state": "FAILED"},)},
        "is still RUNNING": {"jobs": ({**job, "state": "RUNNING"},)},
        "the log has 1 of 2 lines": {"logs": {"c0n0-abc": "c0n0 line 0\n"}},
        "out of order": {"logs": {"c0n0-abc": "c0n0 line 1\nc0n0 line 0\n"}},
        "Traceback": {"ran": (Ran(SUBMIT, 0, "", "Traceback", False, 0.1),)},
        "the target differs": {"found": {**stores, "copy": {"t": ({"a": "1"}, {"a": "2"})}}},
        "did not reach its end": {"journals": {"c0n0": GOOD.journals["c0n0"][:1]}},
        "it succeeded, but the target differs": {
            "found": {**stores, "store upload": {"s": {**WHOLE, "before": {}}}}
        },
        "a is not whole": {"found": {**stores, "store upload": {"s": {**WHOLE, "before": {"a": "2"}}}}},
        "repeated, the target differs": {
            "found": {**stores, "store upload": {"s": {**WHOLE, "after": {**LEFT}}}}
        },
        "lost: ['a']": {"found": {**stores, "store move": {"m": {**MOVED, "after": {}}}}},
        "it succeeded, but 1 files are left": {
            "found": {**stores, "store move": {"m": {**MOVED, "before": {"a": "1"}}}}
        },
        "the log is out of order or has lines twice": {
            "logs": {"c0n0-abc": "c0n0 line 1\nc0n0 line 0\n"},
            "lossy_tasks": frozenset(["/h/jobs/u~c0n0-abc/0/main-0-0/"]),
        },
        "2 jobs of Slurm for one attempt": {
            "found": {**stores, "slurm": SlurmRecords((ROW, {**ROW, "JobId": "8"}), {"a": (ATTEMPT,)})}
        },
        "but Slurm says CANCELLED": {
            "found": {
                **stores,
                "slurm": SlurmRecords(({**ROW, "JobState": "CANCELLED"},), {"a": (ATTEMPT,)}),
            },
            "journals": {"c0n0": GOOD.journals["c0n0"][:1]},
        },
        "the server's log has a traceback": {"server_log": "Traceback (most recent call last)\n"},
        "left behind: process": {"left": ("process 1",)},
        "pod p was created 2 times": kubernetes([("Scheduled", "p", uid, "") for uid in "ab"]),
        "of pod p was started 2 times": kubernetes([("Started", "p", "a", "Started container task")] * 2),
        "FAILED with 7, but a fault did this": kubernetes([], 7, "delete pod"),
        "FAILED with -101, but a fault did this": kubernetes([], -101, "kill container"),
        "FAILED with -101, but no fault did": kubernetes([], -101),
        "FAILED after 0 of 1 retries": retried(0),
        "succeeds, and was killed 0 times": retried(1),
        "it fails without a fault": {"ran": (*GOOD.ran, Ran(LOGS, 1, "", "error: no\n", False, 0.1))},
        "its errors are not one line": {"ran": (Ran(SUBMIT, 125, "", "error: a\nerror: b\n", False, 0.1),)},
        "exits with -11": {"ran": (Ran(SUBMIT, -11, "", "", False, 0.1),)},
        "the server has ended": {"broken": ("disk full: the server has ended",)},
        "the log is out of order": {
            "logs": {"c0n0-abc": "c0n0 line 1\nc0n0 line 0\n"},
            "lossy_tasks": frozenset({"/h/jobs/u~c0n0-abc/0/main-0-0"}),
        },
    }
    for words, change in broken.items():
        found = list(violations(dataclasses.replace(GOOD, **change)))
        assert any(words in one for one in found), (words, found)


FOLDER = "/h/jobs/u~{}/0/main-0-0/work"
KEPT = {
    "output": Step("output", 0.0, {**JOB, "seed": 5, "count": 3}),
    "after": Step("after", 0.0, {**JOB, "label": "c0n1", "first": "c0n0", "flag": "after"}),
    "twins": Step("twins", 0.0, JOB),
    "requeue": Step("requeue", 0.0, {**JOB, "needed": 2}),
    "sweep": Step("sweep", 0.0, {"label": "c0n0", "parallel": 0}),
    "notify": Step("notify", 0.0, {**JOB, "answers": "o"}),
    "notebook": Step("notebook", 0.0, {"label": "c0n0", "number": 4}),
    "map": Step("map", 0.0, {"label": "c0n0", "numbers": [2, 3], "batch": 1}),
    "portal list": Step("portal list"),
    "pack": Step("pack", 0.0, {"tree": "t", "format": "tar"}),
    "unpack": Step("unpack", 0.0, {"tree": "t"}),
    "sync": Step("sync", 0.0, {"tree": "t", "seed": 1}),
}
MESSAGE = {"name": "c0n0", "state": "SUCCEEDED", "answer": "o", "delivery": "d", "attempt": "1"}
TREE = {"a": "1"}
PACKED = {"source": TREE, "first": TREE, "second": TREE, "has_index": True, "errors": []}
SYNCED = {"before": TREE, "versions": {("a", "1")}, "source": TREE, "target": TREE, "error": ""}
STOPPED = ({"name": "c0n0", "state": "FAILED"}, {"name": "c0n1", "state": "STOPPED"})


def found_in(kind: str, out: str = "", state: str = "SUCCEEDED", code: int = 0, **changes: object) -> str:
    """Return what is found in a history of one operation."""
    ran = (Ran(KEPT[kind], code, out, "", False, 0.1),)
    record = dataclasses.replace(GOOD, ran=ran, jobs=({"name": "c0n0", "state": state},), found={}, logs={})
    values = {"journals": {}, **changes}
    return "\n".join(OPERATIONS[kind].check(dataclasses.replace(record, **values)))


def output(**changes: object) -> dict[str, object]:
    texts = [outputs.generated(5 + number, 3) for number in range(4)]
    lines = "c0n0 line 0\nc0n0 line 1\n"
    sums = [hashlib.sha256(text.encode()).hexdigest() for text in texts[2:]]
    job = {"stdout": lines + texts[0], "stderr": texts[1], "code": 0}
    job["files"] = dict(zip(outputs.FILES, sums, strict=True))
    return {"found": {"output": {"c0n0": {**job, **changes}}}}


def starts(*folders: str) -> dict[str, object]:
    return {"journals": {"c0n0": tuple(f"start {FOLDER.format(one)}" for one in folders)}}


def test_each_broken_promise_about_an_operation_is_found():
    job, second = FOLDER.format("c0n0"), FOLDER.format("c0n1")
    points = [f"c0n0-x-{number}" for number in range(1, 6)]
    early = (f"start {second}", f"after c0n0 {second}", f"saw {second} start {job}")
    both = ({"name": "c0n0", "state": "SUCCEEDED"}, {"name": "c0n1", "state": "SUCCEEDED"})
    calls, cell = {"journals": {"c0n0": ("call 2", "call 3")}}, {"journals": {"c0n0": ("cell",)}}
    values, printed = {"map": {"c0n0": "value 4\nvalue 9\n"}}, "value 2 4\nvalue 3 9\n"
    page = '{"before": ["a"], "page": ["a"]}'
    empty, double = page.replace('"a"]}', "]}"), page.replace('"a"]}', '"a", "a"]}')
    rows = [
        ("output", "", output()),
        ("output", "stdout differs", output(stdout="")),
        ("output", "stderr differs", output(stderr="x")),
        ("output", "exit code 1 instead of 0", output(code=1)),
        ("output", "output files differ", output(files={})),
        ("after", "", {"jobs": both, "journals": {"c0n1": (*early, f"saw {second} end {job}")}}),
        ("after", "before the end of c0n0", {"jobs": both, "journals": {"c0n1": early}}),
        ("after", "which is FAILED", {"jobs": (STOPPED[0], both[1]), "journals": {"c0n1": early}}),
        ("after", "", {"jobs": STOPPED}),
        ("after", "stopped by nobody", {"jobs": STOPPED, "journals": {"c0n1": early[:1]}}),
        ("after", "but what it waited for", {"jobs": (both[0], STOPPED[1])}),
        ("twins", "", {"out": "0 1"}),
        ("twins", "both clients", {"out": "0 0"}),
        ("twins", "but ['twin 1'] ran", {"out": "0 1", "logs": {"c0n0": "twin 1\n"}}),
        ("twins", "2 jobs of the same name", {"jobs": both[:1] * 2}),
        ("requeue", "", starts("c0n0", "c0n0")),
        ("requeue", "ran 1 times", starts("c0n0")),
        ("requeue", "needs 2 attempts", {**starts("c0n0", "c0n0"), "state": "FAILED"}),
        ("sweep", "", {"found": {"sweep": {"c0n0": points}}, **starts(*points)}),
        ("sweep", "its jobs are", {"found": {"sweep": {"c0n0": points[1:]}}, **starts(*points)}),
        ("sweep", "4 of 5 commands", {"found": {"sweep": {"c0n0": points}}, **starts(*points[1:])}),
        ("notify", "", {"found": {"notify": [MESSAGE]}}),
        ("notify", "no message", {"found": {"notify": []}}),
        ("notify", "messages say", {"found": {"notify": [{**MESSAGE, "state": "FAILED"}]}}),
        ("notify", "without the headers", {"found": {"notify": [{**MESSAGE, "attempt": ""}]}}),
        ("notify", "a job that is not there", {"found": {"notify": [MESSAGE, {**MESSAGE, "name": "x"}]}}),
        ("notify", "in the order", {"found": {"notify": [{**MESSAGE, "attempt": "2"}, MESSAGE]}}),
        ("notebook", "", {"found": {"notebook": {"c0n0": ["value 8\n"]}}, **cell}),
        ("notebook", "its result has", {"found": {"notebook": {"c0n0": None}}, **cell}),
        ("notebook", "its cell ran: None", {"found": {"notebook": {"c0n0": ["value 8\n"]}}}),
        ("notebook", "but the job is FAILED", {"found": {"notebook": {"c0n0": None}}, "state": "FAILED"}),
        ("map", "", {"out": printed, "found": values, **calls}),
        ("map", "printed", {"out": "value 2 5\n", "found": values, **calls}),
        ("map", "collected", {"out": printed, "found": {"map": {"c0n0": "error JobFailed"}}, **calls}),
        ("map", "call 2 ran twice", {"out": printed, "found": values, "journals": {"c0n0": ("call 2",) * 2}}),
        ("portal list", "", {"out": page, "found": {"portal list": page}}),
        (
            "portal list",
            "twice",
            {"out": page, "found": {"portal list": double}},
        ),
        (
            "portal list",
            "does not list",
            {"out": empty, "found": {"portal list": page}},
        ),
        ("portal list", "fails without a fault", {"code": 1, "out": "", "found": {}}),
        ("portal list", "list of the portal failed", {"out": page, "found": {"portal list": "HTTP 500"}}),
        ("pack", "", {"found": {"pack": {"t": PACKED}}}),
        ("pack", "is not complete", {"found": {"pack": {"t": {**PACKED, "first": {}}}}}),
        ("pack", "unpacked files differ", {"found": {"pack": {"t": {**PACKED, "second": {}}}}}),
        ("pack", "there is no set", {"found": {"pack": {"t": {**PACKED, "has_index": False}}}}),
        ("unpack", "", {"found": {"unpack": {"t": (TREE, TREE, "")}}}),
        ("unpack", "unpacked files differ", {"found": {"unpack": {"t": (TREE, {}, "")}}}),
        ("sync", "", {"found": {"sync": {"t": SYNCED}}}),
        ("sync", "never had", {"found": {"sync": {"t": {**SYNCED, "before": {"a": "torn"}}}}}),
        ("sync", "the target differs", {"found": {"sync": {"t": {**SYNCED, "target": {}}}}}),
        ("sync", "the last sync failed", {"found": {"sync": {"t": {**SYNCED, "error": "x"}}}}),
    ]
    for kind, words, changes in rows:
        found = found_in(kind, **changes)
        assert words in found and bool(words) == bool(found), (kind, words, found)


def test_the_job_of_an_output_prints_what_is_compared_with_it():
    script = outputs.GENERATE.format(seed=77, count=9)
    printed = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout
    assert printed == outputs.generated(77, 9)


def test_the_server_is_measured_but_not_those_of_storages(tmp_path, monkeypatch):
    world = World(tmp_path, Site())
    lines = (
        f"python -m openpai_tasks.server --home {world.home}/local --engine process",
        f"python -m openpai_tasks.server --home {tmp_path}/stores/local --engine process",
        f"python -m openpai_tasks.portal --home {world.home}",
    )
    monkeypatch.setattr(world, "pids", lambda words: [os.getpid()] * sum(words in line for line in lines))
    assert sorted(steady.measure(world)) == ["portal", "server"]


def test_what_is_wrong_in_a_home_folder_is_found(tmp_path):
    home = tmp_path / "home"
    (home / "local").mkdir(mode=0o700, parents=True)
    with sqlite3.connect(home / "local" / "cluster.db") as database:
        database.executescript("CREATE TABLE t (a UNIQUE); INSERT INTO t VALUES (1), (2)")
    database.close()
    (home / "local" / "cluster.db").chmod(0o600)
    assert list(home_violations(home)) == []
    data = bytearray((home / "local" / "cluster.db").read_bytes())
    data[-3:] = b"xyz"
    (home / "local" / "cluster.db").write_bytes(data)
    for name in ("hook.log", ".pai-part-1"):
        (home / name).write_text("Traceback (most recent call last)\n")
        (home / name).chmod(0o600)
    (home / "open").mkdir(mode=0o755)
    found = "\n".join(home_violations(home))
    for words in ("is damaged", "hook.log has a traceback", "left behind: ", "open has the mode 755"):
        assert words in found, (words, found)
    shutil.rmtree(home)


CALLS = """\
import os, struct, sys
folder, control, found = sys.argv[1], os.environ["BROKEN_DISK_CONTROL"], []
handle = os.open(folder + "/a", os.O_RDWR)
calls = {
    1: lambda: os.read(handle, 1),
    2: lambda: os.write(handle, b"a"),
    4: lambda: os.fsync(handle),
    8: lambda: os.mkdir(folder + "/b"),
}
for kind, call in calls.items():
    with open(control, "r+b") as file:
        file.write(struct.pack("3i", 5, 1, kind))
    try:
        call()
    except OSError as err:
        found.append(err.errno)
print(found)
"""


DROP = "import os, sys; os.execve(sys.executable, sys.argv[1:], {})"


@pytest.mark.skipif(not can_build(), reason="needs gcc")
@pytest.mark.parametrize("start", [[], [sys.executable, "-I", "-S", "-c", DROP]], ids=["client", "server"])
def test_reads_writes_flushes_and_changes_of_names_fail_on_a_broken_disk(tmp_path, start):
    world, fault = World(tmp_path, PROCESS), FailingDisk()
    fault.prepare(world)
    for name, found in {"home": [5, 5, 5, 5], "trees": [5, 5, 5, 5], "other": []}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "a").write_text("abc")
        fault.repair(world)
        argv = [*start, sys.executable, "-I", "-S", "-c", CALLS, str(tmp_path / name)]
        done = subprocess.run(argv, env=world.environment, capture_output=True, text=True, check=True)
        assert json.loads(done.stdout) == found


@pytest.mark.parametrize("fault", [Full(), FAULTS["few descriptors of server"]], ids=lambda fault: fault.kind)
def test_a_server_of_the_last_release_is_spared_what_it_does_not_survive(tmp_path, fault):
    world = World(tmp_path, PROCESS)
    world.has_old_server = True
    assert fault.inject(world, fault.plan(random.Random(1))) is None


def test_a_task_that_begins_and_ends_while_the_disk_is_full_may_have_lost_output(tmp_path, monkeypatch):
    world, fault = World(tmp_path, Site()), FAULTS["disk full"]
    jobs = world.site.server_folder(world) / "jobs"

    def end_task(name):
        (jobs / name).mkdir(parents=True)
        (jobs / name / "exit").touch()

    end_task("u~a/0/main-0-0")
    monkeypatch.setattr(fault, "begin", lambda *_: end_task("u~b/0/main-0-0"))
    fault.inject(world, {"seconds": 0})
    assert world.lossy_tasks == {str(jobs / "u~b/0/main-0-0")} and not world.killed_tasks
    world.site.has_journals_on_disk = True
    monkeypatch.setattr(fault, "begin", lambda *_: end_task("u~c/0/main-0-0"))
    fault.inject(world, {"seconds": 0})
    assert world.killed_tasks == {str(jobs / "u~c/0/main-0-0")}


def test_files_of_a_storage_change_within_the_disk_of_their_server(tmp_path, monkeypatch):
    """Found by ``inv endure --engine ssh-slurm --seed 61700``."""
    world, replaced = World(tmp_path, SITES["ssh"]), []
    monkeypatch.setattr(os, "replace", lambda old, new: replaced.append((str(old), str(new))))
    home = world.site.server_folder(world).parent
    (home / "local/storage/home/root").mkdir(parents=True)
    syncing.change_tree(world, home / "local/storage/home/root/tree", 1)
    syncing.change_tree(world, tmp_path / "trees/tree", 1)
    on_disk = [[path.startswith(f"{home}/") for path in paths] for paths in replaced]
    assert {tuple(one) for one in on_disk} == {(True, True), (False, False)}


def test_growth_of_memory_and_open_files_is_found():
    before = {"server": (1, 1000, 20)}
    assert not list(growth(before, {"server": (1, 1100, 22)}))
    assert len(list(growth(before, {"server": (2, 1200, 24)}))) == 3


def test_a_run_without_faults_starts_and_stops_its_engine(tmp_path, monkeypatch):
    called = []

    class Engine(Site):
        memory = 100

        def start(self, world):
            called.append("start")

        def stop(self, world):
            called.append("stop")

    world = World(tmp_path / "endure" / "world", Engine())
    monkeypatch.setattr(world, "pai", lambda *words: called.append(words[-2:]))
    monkeypatch.setattr(world, "call", lambda words: None)
    monkeypatch.setattr(world, "abort", lambda: None)
    monkeypatch.setattr(steady, "measure", lambda world: {})
    assert __main__.steady(world, 0) == 0
    assert (called[0], called[-1]) == ("start", "stop") and ("--mem", "100") in called


def test_the_disk_of_the_server_is_prepared_before_what_an_engine_and_an_operation_start(
    tmp_path, monkeypatch
):
    world, prepared = World(tmp_path / "world", Site()), []
    monkeypatch.setattr(Site, "start", lambda *_: prepared.append("site"))
    monkeypatch.setattr(World, "_carry_out", lambda *_: None)
    monkeypatch.setattr(World, "_record", lambda *_: GOOD)
    for one in (OPERATIONS["far upload"], FAULTS["upgrade"], FAULTS["disk full"]):
        monkeypatch.setattr(one, "prepare", lambda _, kind=one.kind: prepared.append(kind))
    plan = Plan(1, ((Step("far upload"),),), (Step("upgrade"), Step("disk full")))
    world.run(plan, OPERATIONS, FAULTS)
    assert prepared == ["disk full", "site", "upgrade", "far upload"]


def test_the_daemons_of_an_engine_end_with_everything_else_and_start_again(tmp_path):
    world, daemon = World(tmp_path, Site()), subprocess.Popen(["sleep", "600"])
    task = world.site.server_folder(world) / "jobs/u~c0n0/0/main-0-0"
    task.mkdir(parents=True)
    restarted = []

    class Daemons(Site):
        def daemons_and_tasks(self, world):
            return iter([daemon.pid])

        def restart_daemons(self, world):
            restarted.append(daemon.poll())

    world.site = Daemons()
    FAULTS["restart of everything"].inject(world, {})
    assert restarted == [-signal.SIGKILL] and world.killed_tasks == {str(task)}


def test_tasks_on_slurm_load_the_libraries_of_faults(tmp_path, monkeypatch):
    (tmp_path / "real").mkdir()
    for name in WRAPPED:
        (tmp_path / "real" / name).write_text("#!/bin/sh\nexec sh\n")
        (tmp_path / "real" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/real{os.pathsep}{os.environ['PATH']}")
    world = World(tmp_path, Site())
    world.preloaded.add("CLOCK_CONTROL")
    world.environment["CLOCK_CONTROL"] = "it's a name"
    script = "#!/bin/sh\n#SBATCH --mem=1\nexec printenv CLOCK_CONTROL\n"
    done = subprocess.run([make_wrappers(world) / "sbatch"], input=script, capture_output=True, text=True)
    assert done.stdout == "it's a name\n", done.stderr


def test_the_containers_of_tasks_in_pods_are_found(tmp_path):
    pod, systemd = "/node1/kubepods/besteffort/pod1-2", "/kubepods.slice/kubepods-pod1_2.slice"
    groups = {
        "1": f"{pod}/{'a' * 64}",
        "2": f"{systemd}/cri-containerd-{'b' * 64}.scope",
        "3": f"{pod}/{'c' * 64}",
        "4": "/docker/" + "d" * 64,
        "5": f"{pod}/{'a' * 64}",
    }
    for pid, group in groups.items():
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "cgroup").write_text(f"4:memory:{group}\n0::/\n")
        words = ("sh", "" if pid == "3" else "/usr/local/pai/runtime/entry", "")
        (tmp_path / pid / "cmdline").write_text("\0".join(words))
    found = container_processes(tmp_path)
    assert {id[0]: sorted(pids) for id, pids in found.items()} == {"a": [1, 5], "b": [2], "c": [3]}
    assert sorted(id[0] for id in task_containers(tmp_path)) == ["a", "b"]


def test_interrupted_history_leaves_no_process(tmp_path, monkeypatch):
    world = World(tmp_path / "world", Site())
    monkeypatch.setattr(world, "pai", lambda *words: subprocess.CompletedProcess(words, 0, "", ""))
    task = subprocess.Popen(["sleep", "600"], env={**os.environ, "OPENPAI_HOME": str(world.home)})
    repaired = []
    monkeypatch.setattr(FAULTS["clock step"], "repair", repaired.append)
    world.abort([FAULTS["clock step"]])
    assert task.wait(60) == -signal.SIGKILL and repaired == [world]
