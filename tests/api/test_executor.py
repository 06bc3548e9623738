"""PaiExecutor runs calls as jobs, and behaves as ``concurrent.futures`` says."""

import ast
import os
import pickle
import sys
import threading
import time
from concurrent.futures import CancelledError, Executor, as_completed, wait
from pathlib import Path

import pytest

from openpai_tasks import PaiExecutor
from openpai_tasks.api.futures.call_results import CallFailed, RemoteTraceback
from openpai_tasks.backends.openpai import Client
from openpai_tasks.errors import ConfigError, Conflict, JobFailed
from openpai_tasks.sdk.payloads import call_start

WHOLE_MACHINE = os.cpu_count() or 1
pytestmark = pytest.mark.usefixtures("here")


@pytest.fixture
def gate(tmp_path):
    """A gate at which calls wait until the test opens it."""
    return Gate(tmp_path / "open")


class Gate:
    def __init__(self, path):
        self.path = path

    def __call__(self, number=0):
        path = str(self.path)
        return closed(path, number)

    def open(self):
        self.path.touch()


def closed(path, number):
    """Return a call that waits at the gate; defined inside, it is pickled by value."""

    def call():
        import os
        import time

        while not os.path.exists(path):
            time.sleep(0.02)
        return number

    return call


def until(done):
    while not done():
        time.sleep(0.01)


def square():
    return lambda number: number * number


def test_map_returns_results_in_order():
    with PaiExecutor(cpu=1) as executor:
        assert isinstance(executor, Executor)
        assert list(executor.map(square(), range(3))) == [0, 1, 4]


def test_200_calls_with_one_that_raises_and_one_whose_job_is_killed():
    def call(number):
        import os
        import signal

        if number == 66:
            raise ValueError(f"no {number}")
        if number == 150:
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    with PaiExecutor(cpu=1, batch=20) as executor:
        futures = [executor.submit(call, number) for number in range(200)]
        done, pending = wait(futures)
    assert not pending and len(done) == 200
    failed = {number: future.exception() for number, future in enumerate(futures) if future.exception()}
    # Those behind the killed one in its job have no result. How many depends on when calls were combined.
    lost = {number for number in range(150, 200) if futures[number].job == futures[150].job}
    assert len(lost) <= 20 and failed.keys() == {66, *lost}
    assert isinstance(failed[66], ValueError) and str(failed[66]) == "no 66"
    assert 'raise ValueError(f"no {number}")' in str(failed[66].__cause__)
    assert isinstance(failed[66].__cause__, RemoteTraceback) and "call_runner" not in str(
        failed[66].__cause__
    )
    for number in lost:
        assert isinstance(failed[number], JobFailed) and failed[number].exit_code == 137
        assert f"`pai job.why {futures[number].job}`" in str(failed[number])
    assert all(futures[number].result() == number for number in range(200) if number not in failed)


def test_successful_jobs_are_not_asked_for_one_by_one(monkeypatch):
    asked = []
    job = Client.job
    monkeypatch.setattr(Client, "job", lambda self, key: asked.append(key) or job(self, key))
    with PaiExecutor(cpu=1) as executor:
        assert list(executor.map(abs, range(5))) == list(range(5))
    assert not asked


def test_an_executor_without_a_thread_for_it_raises_and_ends(monkeypatch):
    def start(_):
        raise RuntimeError("can't start new thread")

    with PaiExecutor() as executor, monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            executor.submit(abs, -1)


def test_exceptions_that_cannot_be_pickled_are_described():
    def call():
        class Stubborn(Exception):
            def __init__(self, one, two):
                super().__init__(f"{one} and {two}")

        raise Stubborn("this", "that")

    with PaiExecutor(cpu=1) as executor:
        err = executor.submit(call).exception()
    assert isinstance(err, CallFailed) and "Stubborn: this and that" in str(err)
    assert 'raise Stubborn("this", "that")' in str(err.__cause__)


def test_exit_in_a_call_ends_only_that_call():
    def call(number):
        import sys

        return sys.exit(3) if number == 0 else number

    with PaiExecutor(cpu=1, batch=2) as executor:
        first, second = (executor.submit(call, number) for number in range(2))
        assert isinstance(first.exception(), SystemExit) and first.exception().code == 3
        assert second.result() == 1


def test_calls_and_results_that_cannot_be_pickled_are_reported():
    lock = threading.Lock()
    with PaiExecutor(cpu=1) as executor:
        bad_call = executor.submit(lambda: lock)
        bad_result = executor.submit(lambda: __import__("threading").Lock())
        assert isinstance(bad_call.exception(), ConfigError) and "cannot be pickled" in str(
            bad_call.exception()
        )
        assert isinstance(bad_result.exception(), pickle.PicklingError)
        assert "of type lock, cannot be pickled" in str(bad_result.exception())


def test_a_result_that_only_cloudpickle_can_pickle_comes_back():
    with PaiExecutor(cpu=1) as executor:
        assert executor.submit(lambda: lambda number: number + 1).result()(1) == 2


def test_output_of_a_call_is_the_output_of_its_job(cluster):
    with PaiExecutor(cpu=1) as executor:
        future = executor.submit(lambda: print("hello from", 6 * 7))
        assert future.result() is None
    assert cluster.ok("job.logs", future.job).out == "hello from 42\n"


def test_a_call_sees_its_variables_and_secrets_but_not_the_key(monkeypatch):
    monkeypatch.setenv("DB_PASSWORD", "x<y&z")

    def call():
        import os

        return {name: os.environ.get(name) for name in ("COLOUR", "DB_PASSWORD", "PAI_CALLS_KEY")}

    with PaiExecutor(
        cpu=1, env={"COLOUR": "red"}, secret="DB_PASSWORD", shm="64m", memoryMB="256m"
    ) as executor:
        assert executor.submit(call).result() == {
            "COLOUR": "red",
            "DB_PASSWORD": "x<y&z",
            "PAI_CALLS_KEY": None,
        }


def test_as_completed_yields_what_is_done_first(gate):
    with PaiExecutor(cpu=1) as executor:
        late, soon = executor.submit(gate(1)), executor.submit(abs, -2)
        order = []
        for future in as_completed([late, soon]):
            order.append(future.result())
            gate.open()
    assert order == [2, 1]


def test_results_of_a_batch_come_as_soon_as_they_are_written(gate):
    with PaiExecutor(cpu=1, batch=2) as executor:
        with executor._thread._changed:  # both calls are put before it takes them
            first, second = executor.submit(abs, -1), executor.submit(gate(2))
        assert first.result() == 1 and first.job == second.job
        assert second.running() and not second.done()
        gate.open()
        assert second.result() == 2


def test_a_running_call_cannot_be_cancelled_and_a_queued_job_is_stopped(cluster, gate):
    with PaiExecutor(cpu=WHOLE_MACHINE) as executor:
        first = executor.submit(gate(1))
        until(first.running)
        second = executor.submit(gate(2))
        until(lambda: second.job)  # it is on the cluster, and waits for the machine
        assert not first.cancel()
        assert second.cancel() and second.cancelled()
        done, _ = wait([second])
        assert done == {second}
        with pytest.raises(CancelledError):
            second.result()
        gate.open()
        assert first.result() == 1
    assert cluster.ok("job.status", second.job, "-o", "json").json()["state"] == "STOPPED"


def test_shutdown_can_cancel_what_has_not_started(gate):
    executor = PaiExecutor(cpu=1, max_jobs=1)
    first, *others = [executor.submit(gate(number)) for number in range(3)]
    until(first.running)
    assert [future.job for future in others] == ["", ""]  # at most one job at a time
    executor.shutdown(wait=False, cancel_futures=True)
    assert all(future.cancelled() for future in others)
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(abs, 1)
    gate.open()
    executor.shutdown()
    assert first.result() == 0


def test_a_shutdown_while_a_call_is_pickled_refuses_the_call():
    class Meddling:
        def __reduce__(self):
            executor.shutdown()
            return int, ()

    executor = PaiExecutor(cpu=1)
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(abs, Meddling())


def test_jobs_follow_each_other_within_max_jobs():
    with PaiExecutor(cpu=1, max_jobs=1) as executor:
        futures = [executor.submit(abs, number) for number in range(3)]
        assert [future.result() for future in futures] == [0, 1, 2]
    assert len({future.job for future in futures}) == 3


def test_stopping_a_job_fails_its_call(cluster, gate):
    with PaiExecutor(cpu=1) as executor:
        future = executor.submit(gate())
        until(future.running)
        cluster.ok("job.stop", future.job)
        with pytest.raises(JobFailed, match=f"job '{future.job}' is STOPPED without a result"):
            future.result()


def script(folder, name, text):
    """Write a program that starts the Python of the tests in some way."""
    path = folder / name
    path.write_text(f"#!/bin/sh\nexec {sys.executable} {text}\n")
    path.chmod(0o755)
    return str(path)


def test_another_version_of_python_is_reported(cluster, tmp_path):
    old = "import runpy, sys; sys.version_info = (3, 6, 1); del sys.argv[0]"
    start = f"{old}; runpy.run_path(sys.argv[0], run_name='__main__')"
    with PaiExecutor(cpu=1, python=script(tmp_path, "python3.6", f'-c "{start}" "$@"')) as executor:
        err = executor.submit(abs, 1).exception()
        own = "{}.{}".format(*sys.version_info)
        expected = (
            f"the job's Python is 3.6, yours is {own}: cloudpickle needs the same; choose an image with {own}"
        )
        assert isinstance(err, JobFailed) and expected in str(err)


def test_cloudpickle_travels_to_a_job_that_has_none(tmp_path):
    with PaiExecutor(cpu=1, python=script(tmp_path, "bare", '-I -S "$@"')) as executor:
        assert executor.submit(square(), 3).result() == 9


def test_cloudpickle_of_another_version_is_not_used(here):
    (here / "cloudpickle.py").write_text("__version__ = '0.1'\n")
    with PaiExecutor(cpu=1, sources=["cloudpickle.py"]) as executor:
        assert executor.submit(square(), 4).result() == 16
    (here / "cloudpickle.py").unlink()


def test_modules_travel_as_sources_and_missing_ones_are_named(here, monkeypatch):
    (here / "my_model.py").write_text("def train(rate):\n    return rate * 2\n")
    monkeypatch.syspath_prepend(str(here))
    import my_model

    with PaiExecutor(cpu=1, sources="my_model.py") as executor:
        assert executor.submit(my_model.train, 4).result() == 8
    with PaiExecutor(cpu=1) as executor:
        err = executor.submit(my_model.train, 4).exception()
    assert isinstance(err, ModuleNotFoundError)
    assert "the job has no module 'my_model': send it (sources=['my_model.py'])" in str(err)


def test_invalid_arguments_are_refused():
    with pytest.raises(ConfigError, match="no option named 'gpus', did you mean 'gpu'"):
        PaiExecutor(gpus=1)
    with pytest.raises(ConfigError, match="batch must be at least 1"):
        PaiExecutor(batch=0)
    with pytest.raises(ConfigError, match="max_jobs must be at least 1"):
        PaiExecutor(max_jobs=0)
    with pytest.raises(ConfigError, match=r"invalid name of an executor '\.\./x'"):
        PaiExecutor(name="../x")
    with pytest.raises(ConfigError, match="secret 'MISSING' is needed"):
        PaiExecutor(secret="MISSING")


def test_a_source_that_does_not_exist_fails_the_calls():
    with PaiExecutor(cpu=1, sources="missing.py") as executor:
        assert "source 'missing.py': no such file or folder" in str(executor.submit(abs, 1).exception())


def test_a_name_that_another_job_has_is_a_conflict(cluster):
    cluster.ok("job.sub", "true", "--job-name", "taken-1")
    with PaiExecutor(cpu=1, name="taken") as executor:
        err = executor.submit(abs, 1).exception()
    assert isinstance(err, Conflict) and "a job named 'taken-1' exists" in str(err)


def test_a_retried_job_keeps_the_results_that_it_has():
    def call(number):
        import os
        import signal

        attempt = os.environ["FC_FRAMEWORK_ATTEMPT_ID"]
        if number == 1 and attempt == "0":
            os.kill(os.getpid(), signal.SIGKILL)
        return attempt

    with PaiExecutor(cpu=1, batch=2, retries=1) as executor:
        assert list(executor.map(call, range(2))) == ["0", "1"]


def test_the_program_that_checks_the_version_has_only_old_syntax():
    new = (ast.JoinedStr, ast.AnnAssign, ast.NamedExpr, ast.FunctionDef, ast.Match, ast.AsyncFunctionDef)
    tree = ast.parse(Path(call_start.__file__).read_text(), feature_version=(3, 4))
    assert not [node for node in ast.walk(tree) if isinstance(node, new)]
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
