"""Calls outlive the program that made them: another one collects their results."""

import dataclasses
import json
import os
import pickle
import resource
import signal
import subprocess
import sys

import pytest

from openpai_tasks import PaiExecutor
from openpai_tasks.api.futures.call_results import ForeignResult
from openpai_tasks.api.futures.executor_record import ExecutorFacts, ExecutorRecord
from openpai_tasks.errors import ConfigError, JobFailed, NotFound, PathError, Unreachable
from openpai_tasks.sdk.jobs import polling
from tests.api.test_executor import Gate, until
from tests.ports import free_port

pytestmark = pytest.mark.usefixtures("here")

DRIVER = """
import os, sys, time
from openpai_tasks import PaiExecutor

gate = sys.argv[1]

def call(number):
    while not os.path.exists(gate):
        time.sleep(0.02)
    if number == 2:
        raise ValueError("two")
    return number

executor = PaiExecutor(name="orphan", cpu=1, max_jobs=3)
futures = [executor.submit(call, number) for number in range(4)]
while not all(future.job for future in futures[:3]):
    time.sleep(0.01)
print("submitted", flush=True)
time.sleep(600)
"""

FORGETFUL = """
import os, sys, time
from openpai_tasks import PaiExecutor

def call(gate):
    while not os.path.exists(gate):
        time.sleep(0.02)
    return "done"

executor = PaiExecutor(name="forgetful", cpu=1)
executor.submit(call, sys.argv[1])
"""

THREADED = """
import threading
from openpai_tasks import PaiExecutor

def work():
    with PaiExecutor(cpu=1) as executor:
        print(executor.submit(divmod, 7, 2).result())

threading.Thread(target=work).start()
"""


def record_path(cluster, name):
    return cluster.home / "executors" / f"{name}.jsonl"


def test_results_are_collected_after_the_driver_was_killed(cluster, tmp_path):
    gate = Gate(tmp_path / "open")
    driver = cluster.start(sys.executable, "-c", DRIVER, str(gate.path))
    assert driver.stdout.readline() == "submitted\n"
    driver.send_signal(signal.SIGKILL)
    driver.communicate()
    gate.open()
    with PaiExecutor.attach("orphan") as executor:
        first, second, third, fourth = executor.futures
        assert (first.result(), second.result()) == (0, 1)
        assert isinstance(third.exception(), ValueError) and "in call" in str(third.exception().__cause__)
        assert fourth.result() == 3  # it was not submitted before, because of max_jobs
        with pytest.raises(RuntimeError, match="an attached executor only collects results"):
            executor.submit(abs, 1)
    again = PaiExecutor.attach("orphan")
    assert again.futures[1].result() == 1  # results can be collected more than once


def test_a_program_that_ends_early_submits_its_calls_first(cluster, tmp_path):
    gate = Gate(tmp_path / "open")
    run = subprocess.run(
        [sys.executable, "-c", FORGETFUL, str(gate.path)],
        cwd=cluster.project,
        env=cluster.environment,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0
    assert (
        run.stderr
        == "executor 'forgetful': 1 calls continue; get them with PaiExecutor.attach('forgetful')\n"
    )
    gate.open()
    with PaiExecutor.attach("forgetful") as executor:
        assert executor.futures[0].result() == "done"


def test_a_thread_gets_its_results_although_the_main_thread_has_ended(cluster):
    run = subprocess.run(
        [sys.executable, "-c", THREADED],
        cwd=cluster.project,
        env=cluster.environment,
        capture_output=True,
        text=True,
    )
    assert (run.stdout, run.stderr, run.returncode) == ("(3, 1)\n", "", 0)


def test_the_record_is_private_and_stays_only_if_the_executor_has_a_name(cluster):
    with PaiExecutor(cpu=1) as unnamed, PaiExecutor(cpu=1, name="named-$") as named:
        assert unnamed.submit(abs, -1).result() == named.submit(abs, -1).result() == 1
        for executor in (unnamed, named):
            assert record_path(cluster, executor.name).stat().st_mode & 0o777 == 0o600
    assert record_path(cluster, named.name).parent.stat().st_mode & 0o777 == 0o700
    assert record_path(cluster, named.name).exists() and not record_path(cluster, unnamed.name).exists()


def test_a_name_can_be_used_once():
    with PaiExecutor(name="once"), pytest.raises(ConfigError, match=r"PaiExecutor.attach\('once'\) collects"):
        PaiExecutor(name="once")
    with pytest.raises(NotFound, match="no executor named 'twice' was started here"):
        PaiExecutor.attach("twice")


def test_a_last_line_that_is_cut_is_ignored(cluster):
    with PaiExecutor(cpu=1, name="cut") as executor:
        executor.submit(abs, -1)
    with record_path(cluster, "cut").open("a") as file:
        file.write('{"cut-2": [2')
    record = ExecutorRecord.load("cut")
    assert [bundle.jobs for bundle in record.bundles] == [{"cut-1": [1]}] and record.submitted == {"cut-1"}
    record_path(cluster, "cut").write_text("[]\n")
    with pytest.raises(ConfigError, match="not a valid record of an executor"):
        PaiExecutor.attach("cut")


def test_a_record_of_another_cluster_is_refused(cluster):
    with PaiExecutor(name="moved"):
        pass
    facts = json.loads(record_path(cluster, "moved").read_text()) | {"mark": "https://elsewhere.example"}
    record_path(cluster, "moved").write_text(json.dumps(facts) + "\n")
    with pytest.raises(
        ConfigError, match=r"ran as .* on https://elsewhere.example, but cluster 'local' is another"
    ):
        PaiExecutor.attach("moved")


def test_a_job_that_is_removed_is_not_submitted_again(cluster):
    with PaiExecutor(cpu=1, name="removed") as executor:
        assert executor.submit(abs, -1).result() == 1
    record = ExecutorRecord.load("removed")
    record.add(dataclasses.replace(record.bundles[0], jobs={"removed-2": [2], "removed-3": [3]}))
    record.mark_submitted("removed-2")
    with PaiExecutor.attach("removed") as later:
        first, removed, unknown = later.futures
        assert first.result() == 1
        assert isinstance(removed.exception(), NotFound)
        assert "'removed-2' was never submitted, or is removed" in str(removed.exception())
        assert isinstance(unknown.exception(), JobFailed)  # submitted now, without such a call


def test_secrets_are_not_recorded_so_their_jobs_cannot_be_submitted_later(cluster, monkeypatch):
    monkeypatch.setenv("DB_PASSWORD", "s3cret-value")
    with PaiExecutor(cpu=1, name="secretive", secret="DB_PASSWORD", tag="one") as executor:
        assert executor.submit(abs, -1).result() == 1
    assert "s3cret-value" not in record_path(cluster, "secretive").read_text()
    record = ExecutorRecord.load("secretive")
    record.add(dataclasses.replace(record.bundles[0], jobs={"secretive-2": [2]}))
    with PaiExecutor.attach("secretive") as later:
        assert isinstance(later.futures[1].exception(), NotFound)


class Attack:
    """A pickle that runs code when it is read."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("content", ["forged", "cut", "swapped", "folder"])
def test_a_result_without_the_seal_of_its_job_is_not_unpickled(cluster, tmp_path, content):
    with PaiExecutor(cpu=1, name=f"sealed-{content}", batch=2) as executor:
        with executor._thread._changed:  # both calls are put before it takes them, so they share a job
            results = executor.map(abs, (-1, -2))
        assert list(results) == [1, 2]
    [first] = cluster.home.glob(f"local/storage/home/*/jobs/sealed-{content}-1/output/.pai/results/1.pkl")
    bodies = {
        "forged": bytes(32) + pickle.dumps(Attack(tmp_path / "ran")),
        "cut": first.read_bytes()[:-1],
        "swapped": first.with_name("2.pkl").read_bytes(),
    }
    first.unlink()
    first.write_bytes(bodies[content]) if content in bodies else first.mkdir()
    with PaiExecutor.attach(f"sealed-{content}") as again:
        assert isinstance(again.futures[0].exception(), PathError if content == "folder" else ForeignResult)
        assert again.futures[1].result() == 2
    assert not (tmp_path / "ran").exists()


def test_calls_survive_a_killed_cluster_but_not_a_stopped_one(shell, monkeypatch, tmp_path):
    gate = Gate(tmp_path / "open")
    monkeypatch.setenv("OPENPAI_HOME", str(shell.home))
    monkeypatch.setattr(polling, "STOPPED_TRIES", 0)
    status = shell.home / "local" / "server.json"

    def is_another(killed):
        try:
            return json.loads(status.read_text()) != killed
        except FileNotFoundError:  # the new server removes it, and writes its own
            return False

    shell.ok("cluster.start", "--port", str(free_port()))  # nobody else takes it meanwhile
    with PaiExecutor(cpu=1, name="interrupted") as executor:
        future = executor.submit(gate(5))
        until(future.running)
        killed = json.loads(status.read_text())
        os.kill(killed["pid"], signal.SIGKILL)
        until(lambda: is_another(killed))
        assert not future.done()
        shell.ok("cluster.stop", "--keep-jobs")
        assert isinstance(future.exception(), Unreachable)
        assert "PaiExecutor.attach('interrupted') collects the result" in str(future.exception())
        with pytest.raises(RuntimeError, match="executor 'interrupted' has given up"):
            executor.submit(abs, 1)
    gate.open()
    with PaiExecutor.attach("interrupted") as later:  # starts the cluster again, where the job has continued
        assert later.futures[0].result() == 5


def test_an_executor_that_finds_no_space_for_its_record_leaves_none():
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        with pytest.raises(ConfigError, match="cannot write"):
            ExecutorRecord.create("full", ExecutorFacts("local", "", "", "", "", ""))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    with pytest.raises(NotFound):
        ExecutorRecord.load("full")
