"""Jobs that run again at their time limit, and jobs whose GPUs are idle."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from openpai_tasks.protocol.document.policy import JobPolicy
from openpai_tasks.protocol.document.scripts import limit_time
from openpai_tasks.server.engines.base import TaskExit
from openpai_tasks.server.engines.runner import usage
from openpai_tasks.server.scheduling import idle
from openpai_tasks.server.scheduling.idle import IdleSpan, IdleWatch, merge_spans, read_span
from openpai_tasks.server.scheduling.progress import Progress
from openpai_tasks.server.state.records import Task
from tests.server.workshop import WHEN_READY, Workshop, role, until, workshop

__all__ = ["workshop"]  # the fixture
Make = Callable[..., Workshop]
WAITS = "echo up; exec sleep 60"


def policy(**values: object) -> dict[str, object]:
    return {"jobPolicy": values}


# The time limit


def test_job_runs_again_at_its_time_limit_and_then_fails_with_that_cause(workshop: Make) -> None:
    here = workshop()
    command = limit_time("echo $FC_FRAMEWORK_ATTEMPT_ID; exec sleep 60", 2, requeues=1, grace=1)
    job = here.run("long", command, extras=policy(requeues=1))
    assert (job.state, job.attempt, job.requeues) == ("FAILED", 1, 1)
    assert (job.user_retries, job.platform_retries) == (0, 1)
    first, last = here.state.attempts(job.key)
    assert (first.exit_code, first.user_exit_code, last.user_exit_code) == (-1004, 143, 124)
    assert last.cause == "the time limit of 2 s was reached"
    reasons = here.reasons(job.key)
    assert reasons["Requeued"] == "requeued 1 of 1 time at its time limit of 2s"
    assert reasons["TaskFailed"] == "the task exited with code 124"
    here.state.set_execution(job.key, "START")
    assert here.job(job.key).requeues == 0


def test_job_that_finishes_in_its_grace_period_succeeds_and_a_stop_then_is_a_stop(workshop: Make) -> None:
    here = workshop(cpus=4)
    many = policy(requeues=5)
    loop = ": >ready; while :; do sleep 0.02; done"
    ends = f"trap 'sleep 0.1; exit 0' TERM; {loop}"
    slow = f"trap 'trap - TERM; echo saving; sleep 60' TERM; {loop}"
    done = here.submit("done", WHEN_READY + limit_time(ends, 31, requeues=5, grace=30), extras=many)
    stopped = here.submit("stopped", WHEN_READY + limit_time(slow, 61, requeues=5, grace=60), extras=many)
    until(lambda: here.tasks(stopped) and "stdout" in here.engine.logs(here.tasks(stopped)[0]))
    until(lambda: "saving" in here.output(stopped))
    here.state.set_execution(stopped, "STOP")
    assert (here.wait(done).state, here.job(done).attempt) == ("SUCCEEDED", 0)
    assert (here.wait(stopped).state, here.job(stopped).requeues) == ("STOPPED", 0)


def test_limit_of_the_engine_requeues_too(workshop: Make) -> None:
    here = workshop()
    key = here.submit("engine", WAITS, extras=policy(requeues=1))
    here.wait(key, "RUNNING")
    [task] = here.tasks(key)
    Progress(here.state).finish(task, TaskExit(None, "reached its time limit", 256, timed_out=True))
    assert (here.job(key).attempt, here.job(key).requeues) == (1, 1)
    assert here.reasons(key)["Requeued"] == "requeued 1 of 1 time at its time limit"
    until(lambda: "only the time limit of the cluster counts" in here.reasons(key).get("NoTimeLimit", ""))
    here.engine.stop(task)


# Idle GPUs


def samples(*percents: float | None, seconds: float = 2.0) -> bytes:
    """Return the samples of two GPUs, of which one is never used."""
    rows = []
    for number, one in enumerate(percents):
        values = {"cpu": (1.0, 1.0)}
        if one is not None:
            values |= {"gpu0": (0.0, 0.0), "gpu1": (0.0, one), "gpu1.mb": (900.0, 900.0)}
        rows.append(f"{usage.Row(round(1000 * number * seconds), seconds, values)}\n")
    return "".join(rows).encode()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (samples(), None),
        (b"# no process of it was seen\n", None),
        (samples(None, None), None),
        (samples(0, 4.9, 0), IdleSpan(0, 6000)),
        (samples(0, 100, 0, 3, None), IdleSpan(4000, 8000)),
        (samples(0, 0, 5), IdleSpan(6000, 6000)),
        (b"1 1e17 gpu0=9:9\n1 1e18 gpu0=0:0\n", None),  # forged: times that the database cannot hold
    ],
)
def test_idle_time_follows_from_the_samples(text: bytes, found: IdleSpan | None) -> None:
    assert read_span(io.BytesIO(text)) == found


def test_only_the_end_of_the_samples_is_read() -> None:
    text = samples(90, *[0] * 1400)
    files = [CountingFile(text), CountingFile(text), CountingFile(text + samples(0, 50))]
    first = read_span(files[0])
    assert first == IdleSpan(2000, 2802_000)
    assert read_span(files[1], first) == first
    assert read_span(files[2], first) == IdleSpan(4000, 4000)
    assert files[0].count > len(text) - 10 and [one.count for one in files[1:]] == [1 << 14] * 2


class CountingFile(io.BytesIO):
    count = 0

    def read(self, size: int | None = -1, /) -> bytes:
        found = super().read(size)
        self.count += len(found)
        return found


def test_a_short_limit_does_not_make_slow_looks_frequent() -> None:
    state = SimpleNamespace(document=lambda key: SimpleNamespace(policy=JobPolicy(idle_stop=3)))
    engine = SimpleNamespace(records_usage=True, open_log=lambda task, name: time.sleep(0.02) or io.BytesIO())
    watch = IdleWatch(state, engine)  # type: ignore[arg-type]
    began = time.monotonic()
    watch.look([SimpleNamespace(job="ann~short", uid="1")])  # type: ignore[list-item]
    watch.expect("ann~short")
    assert watch._next - began > 1.5


def test_a_job_is_idle_while_all_of_its_tasks_are() -> None:
    assert merge_spans([IdleSpan(1, 9), IdleSpan(3, 8)]) == IdleSpan(3, 8)
    assert merge_spans([IdleSpan(1, 9), None]) is None and merge_spans([]) is None


def test_idle_job_is_warned_about_then_stopped_with_the_reason(workshop: Make) -> None:
    here = workshop(gpus=2)
    key = here.submit("idle", {"main": role(WAITS, gpu=1)}, extras=policy(idleStopSeconds=600))
    other = here.submit("other", {"main": role(WAITS, gpu=1)})
    for one in (key, other):
        here.wait(one, "RUNNING")
    watch = IdleWatch(here.state, here.engine)
    watch.act(key, IdleSpan(1000, 50_000), 0)
    assert here.job(key).gpus_idle_since is None
    watch.act(key, IdleSpan(1000, 301_000), 0)
    assert here.job(key).gpus_idle_since == 1000 and "GpusIdle" in here.reasons(key)
    watch.act(key, IdleSpan(302_000, 302_000), 0)
    assert here.job(key).gpus_idle_since is None
    for span in (IdleSpan(1000, 1_700_000), IdleSpan(1000, 1_802_000), IdleSpan(1000, 9_999_000)):
        watch.act(other, span, 0)
    assert here.reasons(other)["GpusIdle"] == "the GPUs of this job have been idle for 30m1s"
    watch.act(key, None, (here.job(key).launched or 0) + 1000 * idle.BLIND_SECONDS + 1)
    assert "no samples of its GPUs" in here.reasons(key)["NoIdleStop"]
    watch.act(key, IdleSpan(0, 600_000), 0)
    job = here.wait(key)
    assert (job.state, job.stop_reason) == ("STOPPED", "its GPUs were idle for 10m (--idle-stop)")
    attempt = here.state.attempt(key, 0)
    assert attempt and attempt.diagnostics == job.stop_reason
    assert here.reasons(key)["Stopping"] == f"stopped: {job.stop_reason}"


def test_a_job_that_waits_or_has_no_gpus_is_not_looked_at(workshop: Make, tmp_path: Path) -> None:
    here = workshop()
    key = here.submit("none", WAITS, extras=policy(idleStopSeconds=1))
    here.wait(key, "RUNNING")
    assert "the job has no GPUs" in here.reasons(key)["NoIdleStop"]
    watch = IdleWatch(here.state, here.engine)
    assert watch.is_due() and watch.look([]) == {} and not watch.is_due()
    watch.expect(key)
    until(watch.is_due)
    lost = Task("u", key, 0, "main", 0, 0, "RUNNING", "AttemptRunning", 0, "", tmp_path / "nothing")
    assert watch.look([lost]) == {key: None}
