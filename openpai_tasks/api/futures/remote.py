"""A decorator for functions that run here or, on request, as jobs."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from openpai_tasks.api.futures.call_request import CallFlags
from openpai_tasks.api.options import check_names

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from openpai_tasks.api.futures.executor import PaiExecutor
    from openpai_tasks.api.futures.pai_future import PaiFuture

P = ParamSpec("P")
T = TypeVar("T")


class ExecutorOptions(CallFlags, total=False):
    """The arguments of a PaiExecutor."""

    cluster: str
    cluster_alias: str
    name: str
    max_jobs: int | None
    batch: int


OWN = ("cluster", "cluster_alias", "name", "max_jobs", "batch")


class RemoteFunction(Generic[P, T]):
    """A function: called, it runs here; ``submit`` and ``map`` run it as jobs, through one executor."""

    def __init__(self, function: Callable[P, T], options: ExecutorOptions) -> None:
        functools.update_wrapper(self, function)
        self._function, self._options, self._lock = function, options, threading.Lock()
        self._executor: PaiExecutor | None = None

    def __repr__(self) -> str:
        return f"<remote {self._function!r}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._function(*args, **kwargs)

    @property
    def executor(self) -> PaiExecutor:
        """The executor of the function, started with the first call."""
        from openpai_tasks.api.futures.executor import PaiExecutor

        with self._lock:
            if self._executor is None:
                self._executor = PaiExecutor(**self._options)
            return self._executor

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> PaiFuture[T]:
        """Run a call as a job, and return its future."""
        return self.executor.submit(self._function, *args, **kwargs)

    def map(self, *iterables: Iterable[Any], timeout: float | None = None) -> Iterator[T]:
        """Run a call as a job for each item, or for the items of several iterables side by side."""
        return self.executor.map(self._function, *iterables, timeout=timeout)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Shut down the executor; the next ``submit`` or ``map`` starts a new one."""
        with self._lock:
            executor, self._executor = self._executor, None
        if executor:
            executor.shutdown(wait, cancel_futures=cancel_futures)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the plain function: a job, which may not have this package, only calls it."""
        return functools.partial, (self._function,)


def remote(**options: Unpack[ExecutorOptions]) -> Callable[[Callable[P, T]], RemoteFunction[P, T]]:
    """Make a function whose ``submit`` and ``map`` run it as jobs; the options are those of PaiExecutor.

    Calling it as usual runs it here.

    >>> @remote(cpu=1)
    ... def double(number):
    ...     return 2 * number
    >>> double(1), double.submit(2).result(), list(double.map([3, 4]))
    (2, 4, [6, 8])
    >>> double.shutdown()
    """
    check_names([name for name in options if name not in OWN], tuple(CallFlags.__annotations__))
    return lambda function: RemoteFunction(function, options)
