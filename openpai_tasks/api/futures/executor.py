"""An executor of ``concurrent.futures`` that runs calls as jobs."""

from __future__ import annotations

import atexit
import itertools
import secrets
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from openpai_tasks.api.futures.call_jobs import Call, recorded_jobs
from openpai_tasks.api.futures.call_request import CallFlags, open_target, reopen_target
from openpai_tasks.api.futures.executor_record import ExecutorFacts, ExecutorRecord
from openpai_tasks.api.futures.executor_thread import ExecutorThread
from openpai_tasks.api.futures.pai_future import PaiFuture
from openpai_tasks.compat import call_before_threads_end
from openpai_tasks.errors import ConfigError
from openpai_tasks.sdk.amounts import at_least, read
from openpai_tasks.sdk.files.job_folders import cluster_mark
from openpai_tasks.sdk.jobs.submission import new_name
from openpai_tasks.settings.value_types import one_of

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

P = ParamSpec("P")
T = TypeVar("T")

_running: weakref.WeakSet[ExecutorThread] = weakref.WeakSet()


class PaiExecutor(Executor):
    """Runs calls as jobs of a cluster, with the futures of ``concurrent.futures``.

    Each job runs ``batch`` calls; at most ``max_jobs`` jobs are unfinished at a time. The other arguments are
    those of `job.sub`: image, sources, pip_installs, python, cpu, gpu, memory, shm, env (a mapping), secret,
    retries, max_time, tag, update, workspace, virtual_cluster. The calls outlive this program:
    ``attach(name)`` collects their results later. In a name, each ``$`` becomes random letters.

    >>> with PaiExecutor(cpu=1) as executor:
    ...     list(executor.map(abs, [-1, -2]))
    [1, 2]
    """

    def __init__(
        self,
        *,
        cluster: str = "",
        cluster_alias: str = "",
        name: str = "",
        max_jobs: int | None = None,
        batch: int = 1,
        **flags: Unpack[CallFlags],
    ) -> None:
        if max_jobs is not None:
            read("max_jobs", at_least(1), max_jobs)
        read("batch", at_least(1), batch)
        target = open_target(one_of(cluster=cluster, cluster_alias=cluster_alias) or "", flags)
        facts = ExecutorFacts(
            cluster=target.client.cluster.alias,
            mark=cluster_mark(target.client.cluster),
            user=target.client.user,
            storage=target.home.storage,
            workspace=target.home.workspace,
            key=secrets.token_hex(32),
            max_jobs=max_jobs,
            tags=target.request.tags,
        )
        record = ExecutorRecord.create(new_name(name, "calls"), facts)
        self._begin(record, ExecutorThread(target, record, max_jobs, batch, is_temporary=not name))
        _running.add(self._thread)

    @classmethod
    def attach(cls, name: str) -> Self:
        """Return an executor that collects the results of another one, in its ``futures``.

        The program of that one may have been killed: only its record on this machine and the cluster are
        needed. Calls that it had not submitted are submitted now.

        >>> with PaiExecutor(cpu=1, name="overnight") as executor:
        ...     future = executor.submit(pow, 2, 10)
        >>> with PaiExecutor.attach("overnight") as later:
        ...     [future.result() for future in later.futures]
        [1024]
        """
        record = ExecutorRecord.load(name)
        facts = record.facts
        target = reopen_target(facts)
        if (cluster_mark(target.client.cluster), target.client.user) != (facts.mark, facts.user):
            was = f"{facts.user!r} on {facts.mark}"
            raise ConfigError(f"executor {name!r} ran as {was}, but cluster {facts.cluster!r} is another now")
        self = cls.__new__(cls)
        self._begin(record, ExecutorThread(target, record, facts.max_jobs))
        jobs = recorded_jobs(record, target.home, self._thread.note_cancelled)
        futures = (future for job in jobs for future in job.waiting.values())
        self.futures = tuple(sorted(futures, key=lambda future: future.number))
        self._is_attached = True
        self._thread.collect(jobs)
        return self

    def _begin(self, record: ExecutorRecord, thread: ExecutorThread) -> None:
        self.name, self._cluster = record.name, record.facts.cluster
        self.futures: tuple[PaiFuture[Any], ...] = ()
        """The futures of an attached executor, in the order of its calls."""
        self._thread, self._numbers, self._is_attached = thread, itertools.count(1), False
        weakref.finalize(self, thread.close).atexit = False  # its thread ends if nobody shuts it down

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self.name!r}, cluster={self._cluster!r})"

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> PaiFuture[T]:
        """Run a call as a job, or as part of one, and return its future.

        The call is pickled now, so later changes of its arguments have no effect.
        """
        if self._is_attached:
            raise RuntimeError(
                "an attached executor only collects results; start a new PaiExecutor for more calls"
            )
        self._thread.check()
        future: PaiFuture[T] = PaiFuture(next(self._numbers), self._thread.note_cancelled)
        import cloudpickle

        try:
            data = cloudpickle.dumps((fn, args, kwargs))
        except Exception as err:
            what = getattr(fn, "__qualname__", repr(fn))
            failure = ConfigError(f"cannot send the call of {what}: it cannot be pickled: {err}")
            failure.__cause__ = err
            future.begin()
            future.set_exception(failure)
            return future
        self._thread.put(Call(future.number, data, future))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; wait for the results, and optionally cancel calls that do not run yet."""
        self._thread.close(cancel_futures)
        if wait:
            self._thread.join()
        else:
            self._thread.wait_for_record()


def _leave() -> None:
    """Submit the calls that are still on this machine when the program ends."""
    is_main_last = all(thread.daemon or thread is threading.main_thread() for thread in threading.enumerate())
    for thread in list(_running) if is_main_last else ():  # else other threads may wait for results
        thread.leave()
        _running.discard(thread)


call_before_threads_end(_leave)
atexit.register(_leave)
