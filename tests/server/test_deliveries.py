"""The server keeps hooks and notifies them: at least once, with pauses, also after a kill."""

import dataclasses
import json
import time

import pytest

from openpai_tasks.hooks.hook import JobHooks, parse
from openpai_tasks.hooks.messages import Facts
from openpai_tasks.protocol import validate
from openpai_tasks.server import deliveries
from openpai_tasks.server.deliveries import Deliveries, job_link, pause_after
from openpai_tasks.server.engines.base import TaskExit
from openpai_tasks.server.scheduling.keeping import KeptFailure
from openpai_tasks.server.scheduling.progress import Progress
from openpai_tasks.server.state import job_hooks
from openpai_tasks.server.state.database import Database
from openpai_tasks.server.state.state import SCHEMA, START, STOP, State, now
from tests.scripted import Reply
from tests.server.workshop import document, role, until


class Server:
    """The part of a server that keeps jobs and their hooks; nothing runs."""

    def __init__(self, folder):
        self.folder = folder
        self.open()

    def open(self):
        self.database = Database(self.folder / "cluster.db", SCHEMA)
        self.state = State(self.database, self.folder / "jobs")
        self.progress = Progress(self.state)
        self.deliveries = Deliveries(self.state, lambda facts: f"pai job.why {facts.name}")

    def close(self):
        self.deliveries.close()
        self.database.close()

    def submit(self, name, *hooks, instances=1, **sweep):
        text = document(name, {"main": role("true", instances)})
        with self.database.transaction():
            job = self.state.submit("ann", validate(text), text)
            self.state.hooks.add(job, JobHooks(tuple(map(parse, hooks)), **sweep))
        return job

    def begin(self, job):
        tasks = self.progress.new_tasks(job, self.state.document(job.key).roles)
        self.progress.begin(job, tasks)
        return tasks[0]

    def end(self, job, code=0):
        self.progress.finish(self.begin(job), TaskExit(code, ""))

    def pending(self):
        return self.database.rows("SELECT event, tries, due FROM deliveries ORDER BY event")

    def wait(self):
        """Wait until nothing is left to deliver."""
        until(lambda: not self.pending())


@pytest.fixture
def server(tmp_path):
    server = Server(tmp_path)
    yield server
    server.close()


@pytest.fixture
def receiver(serve):
    return serve({"POST /x": ""})


def bodies(receiver):
    return [json.loads(request.body) for request in receiver.seen]


def test_hooks_are_notified_of_the_events_that_they_ask_for(server, receiver):
    address = f"{receiver.uri}/x"
    every = {"post": address, "when": ["start", "end", "waiting>1h"]}
    job = server.submit("train", every, {"post": address, "when": "failed"})
    server.end(job, 3)
    server.deliveries.start()
    until(lambda: len(receiver.seen) == 3)
    *ended, started = sorted(bodies(receiver), key=lambda one: one["event"])
    assert (started["event"], started["state"]) == ("start", "RUNNING")
    for one in ended:
        assert (one["event"], one["state"], one["exit_code"]) == ("end", "FAILED", 3)
        assert one["cause"] and one["link"] == "pai job.why train"
    until(lambda: [row["event"] for row in server.pending()] == ["waiting"])


@pytest.mark.parametrize(("begins", "ends", "seconds"), [(-3600, -3540, 60), (-60, -61, 0), (-60, 3600, 60)])
def test_a_job_ended_when_its_task_did_but_not_before_its_start_or_in_the_future(
    server, receiver, begins, ends, seconds
):
    job = server.submit("train", f"{receiver.uri}/x")
    task, time = server.begin(job), now()
    for table in ("jobs", "attempts", "tasks"):
        server.database.write(f"UPDATE {table} SET launched = ?", [time + 1000 * begins])
    server.progress.finish(task, TaskExit(0, ended=time + 1000 * ends))
    server.deliveries.start()
    server.wait()
    (body,) = bodies(receiver)
    assert body["duration"] == pytest.approx(seconds, abs=30)
    done = server.state.job(job.key)
    assert done.completed == server.state.tasks(job.key, 0)[0].completed
    assert done.launched <= done.completed <= now()


def test_a_job_that_its_engine_started_earlier_has_that_time_and_starts_once(server, receiver):
    job = server.submit("train", {"post": f"{receiver.uri}/x", "when": ["start", "end"]}, instances=2)
    tasks = server.progress.new_tasks(job, server.state.document(job.key).roles)
    server.progress.queue_in_engine(job, tasks)
    began = now() - 60_000
    for task in tasks:
        begun = dataclasses.replace(task, created=began - 5000, launched=began)
        server.progress.begin_queued(job.key, [begun])
    assert {task.launched for task in server.state.tasks(job.key, 0)} == {began}
    for task in tasks:
        server.progress.finish(task, TaskExit(0, ended=began + 10_000))
    server.deliveries.start()
    server.wait()
    assert sorted((one["event"], one["duration"]) for one in bodies(receiver))[0] == ("end", 10)
    assert len(receiver.seen) == 2


def test_a_job_that_succeeds_or_was_stopped_is_no_failure(server, receiver):
    for name, hook in (("one", "failed"), ("two", "end")):
        job = server.submit(name, {"post": f"{receiver.uri}/x", "when": hook})
        server.state.set_execution(job.key, STOP)
        server.progress.settle(job.key)
    server.end(server.submit("three", {"post": f"{receiver.uri}/x", "when": "failed"}))
    server.deliveries.start()
    server.wait()
    assert [(one["name"], one["state"]) for one in bodies(receiver)] == [("two", "STOPPED")]


def test_the_failure_of_a_kept_job_is_sent_at_once_and_its_end_is_not(server, receiver):
    job = server.submit("kept", f"{receiver.uri}/x")
    task = server.begin(job)
    server.progress.keep(task, KeptFailure(7, now() + 60_000, b"MemoryError: too large"))
    server.deliveries.start()
    server.wait()
    server.state.set_execution(job.key, STOP)
    server.progress.finish(server.state.tasks(job.key, 0)[0], TaskExit(7, ""))
    assert server.state.job(job.key).state == "FAILED" and not server.pending()
    (body,) = bodies(receiver)
    assert (body["event"], body["state"], body["exit_code"]) == ("end", "FAILED", 7)
    assert "MemoryError" in body["cause"] and body["text"].endswith("; its environment is kept")
    server.state.set_execution(job.key, START)
    server.end(server.state.job(job.key))  # the next attempt is news again
    server.wait()
    assert [one["event"] for one in bodies(receiver)] == ["end", "end"]


def test_a_job_that_waits_longer_than_a_time_is_reported_once(server, receiver):
    waits = {"post": f"{receiver.uri}/x", "when": "waiting>1s"}
    job = server.submit("waits", waits)
    server.state.add_event(job.key, "Normal", "Queued", "waits behind job x")
    server.begin(server.submit("runs", waits))
    server.database.write("UPDATE deliveries SET due = ?", [now()])
    server.deliveries.start()
    server.wait()
    assert [(one["name"], one["event"], one["cause"]) for one in bodies(receiver)] == [
        ("waits", "waiting", "waits behind job x")
    ]


def test_a_delivery_is_tried_again_with_the_same_id(server, receiver, monkeypatch):
    monkeypatch.setattr(deliveries, "FIRST_PAUSE", 1)
    answers = iter([Reply("", 503), Reply("", 429), ""])
    receiver.answers["POST /x"] = lambda request: next(answers)
    server.end(server.submit("train", f"{receiver.uri}/x"))
    server.deliveries.start()
    server.wait()
    assert [request.headers["X-Openpai-Attempt"] for request in receiver.seen] == ["1", "2", "3"]
    assert len({request.headers["X-Openpai-Delivery"] for request in receiver.seen}) == 1


def test_a_delivery_is_sent_although_the_clock_was_set_back_after_the_end_of_its_job(server, receiver):
    server.end(server.submit("train", f"{receiver.uri}/x"))
    server.submit("waits", {"post": f"{receiver.uri}/y", "when": "waiting>5h"})
    server.database.write("UPDATE deliveries SET due = due + ? WHERE event = 'end'", [5 * 3_600_000])
    server.deliveries.start()
    until(lambda: [row["event"] for row in server.pending()] == ["waiting"])
    assert [body["name"] for body in bodies(receiver)] == ["train"]


def test_a_second_attempt_is_made_although_the_clock_was_set_back_after_the_first(server, receiver):
    """Found by ``inv endure --engine process --seed 70501``."""
    server.end(server.submit("train", f"{receiver.uri}/x"))
    ahead = now() + 3_600_000  # the longest pause
    (found,) = server.state.hooks.due(ahead, 9, 1, 1)
    server.state.hooks.begin(found, ahead + pause_after(0) - 60_000)
    server.deliveries.start()
    server.wait()
    assert [request.headers["X-Openpai-Attempt"] for request in receiver.seen] == ["2"]


def test_a_delivery_that_waits_is_made_when_the_clock_is_set(server, receiver, monkeypatch):
    monkeypatch.setattr(deliveries, "CLOCK_SECONDS", 0.01)
    monkeypatch.setattr(deliveries, "FIRST_PAUSE", 3_600_000)
    server.end(server.submit("train", f"{receiver.uri}/x"))
    server.database.write("UPDATE deliveries SET due = ?", [now() + 1_800_000])
    looks = []
    monkeypatch.setattr(deliveries, "now", lambda: looks.append(0) or now() + 3_600_000 * (len(looks) > 9))
    server.deliveries.start()
    server.wait()
    assert len(looks) > 9 and len(receiver.seen) == 1


def test_pauses_grow_up_to_an_hour():
    assert [pause_after(tries) // 1000 for tries in range(8)] == [5, 20, 80, 320, 1280, 3600, 3600, 3600]


def test_a_server_that_was_killed_while_it_sent_sends_again(server, receiver):
    server.end(server.submit("train", f"{receiver.uri}/x"))
    (found,) = server.state.hooks.due(now(), 9, 1, 1)
    server.state.hooks.begin(found, now())  # an attempt that nobody has seen the end of
    server.close()
    server.open()
    server.deliveries.start()
    server.wait()
    (request,) = receiver.seen
    assert (request.headers["X-Openpai-Delivery"], request.headers["X-Openpai-Attempt"]) == (found.id, "2")


def test_a_delivery_that_is_given_up_is_an_event_without_the_address(server, receiver):
    receiver.answers |= {"POST /refused": Reply("", 404), "POST /late": Reply("", 503)}
    job = server.submit("train", f"{receiver.uri}/refused")
    late = server.submit("late", f"{receiver.uri}/late")
    for one in (job, late):
        server.end(one)
    long_ago = now() - deliveries.GIVE_UP_AFTER
    server.database.write("UPDATE deliveries SET created = ?, tries = 30 WHERE job = ?", [long_ago, late.key])
    server.deliveries.start()
    server.wait()
    found = {
        one.key: [event.message for event in server.state.events(one.key) if event.reason == "NotNotified"]
        for one in (job, late)
    }
    assert found == {
        job.key: ["127.0.0.1 was not notified of the end: it answered with HTTP 404"],
        late.key: ["127.0.0.1 was not notified of the end after 31 attempts: it answered with HTTP 503"],
    }


def test_a_sweep_is_one_message_when_all_of_its_jobs_have_ended(server, receiver, monkeypatch):
    monkeypatch.setattr(job_hooks, "CHECK_AFTER", 0)
    hook = {"post": f"{receiver.uri}/x", "when": ["start", "end"]}
    server.deliveries.start()
    for number in range(3):
        server.end(server.submit(f"lr-{number}", hook, sweep="lr"))
        server.wait()
    assert not receiver.seen  # the last job of the sweep is not submitted yet
    last = server.submit("lr-3", hook, sweep="lr", is_last=True)
    other = server.submit("lr-4", hook, sweep="lr")
    server.end(last, 1)
    server.wait()
    assert not receiver.seen
    server.end(other)
    server.wait()
    (body,) = bodies(receiver)
    assert (body["kind"], body["name"], body["state"]) == ("sweep", "lr", "FAILED")
    assert body["jobs"] == {"SUCCEEDED": 4, "FAILED": 1}


def test_hooks_and_deliveries_are_removed_with_their_job(server, receiver):
    job = server.submit("train", f"{receiver.uri}/x")
    server.end(job)
    assert server.pending()
    server.state.remove(job.key)
    for table in ("hooks", "deliveries"):
        assert server.database.rows(f"SELECT * FROM {table}") == []


def test_the_end_of_a_job_without_hooks_costs_one_query(server):
    job = server.submit("plain")
    counted = []
    rows = server.database.rows
    server.database.rows = lambda sql, values=(): counted.append(sql) or rows(sql, values)
    server.state.hooks.record_end(job.key, now())
    assert len(counted) == 1


def test_after_an_error_the_next_attempt_waits_although_other_deliveries_are_due(server, monkeypatch):
    monkeypatch.setattr(deliveries, "RETRY_SECONDS", 0.1)
    server.deliveries._woken.set()
    began = time.monotonic()
    server.deliveries._attempt(None)
    assert time.monotonic() - began >= 0.09


def test_statements_read_no_other_hooks_and_deliveries(server):
    """With the condition ``sweep != ''``, SQLite uses the indexes, which have no other jobs."""
    for sql, values in ((job_hooks.SWEEP_STATES, ["x"]), (job_hooks.PENDING_CHECK, ["x", "check"])):
        plan = [row["detail"] for row in server.database.rows(f"EXPLAIN QUERY PLAN {sql}", values)]
        assert "_by_sweep" in plan[0] and not any(line.startswith("SCAN") for line in plan), plan


def test_the_link_is_the_command_where_no_portal_runs(tmp_path):
    facts = Facts("end", "it's", "FAILED")
    assert job_link(tmp_path / "local", facts) == "pai job.why 'it'\"'\"'s'"
    sweep = dataclasses.replace(facts, name="lr", jobs={"FAILED": 1})
    assert job_link(tmp_path / "local", sweep) == "pai job.results lr"
