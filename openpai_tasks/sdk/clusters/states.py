"""Whether clusters answer, and how busy they are: all are asked at once, and answer as they can."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping

from openpai_tasks.backends.base import Amount, Backend
from openpai_tasks.errors import PaiError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol.states import RUNNING, WAITING
from openpai_tasks.sdk.clusters import embedded
from openpai_tasks.settings.registry import is_embedded


@dataclass(frozen=True)
class ClusterState:
    """What a cluster answered, or why it did not."""

    alias: str
    user: str = ""
    product: str = ""
    running: int | None = None
    waiting: int | None = None
    gpus_used: Amount = None
    gpus_usable: Amount = None
    problem: str = ""
    is_stopped: bool = False
    """Whether it is the embedded cluster, which starts when it is needed."""


def ask_clusters(connect: Mapping[str, Callable[[], Backend]], seconds: float) -> Iterator[ClusterState]:
    """Yield the state of each cluster as it answers, and at the end those that did not answer in time."""
    answers: queue.Queue[ClusterState] = queue.Queue()

    def ask(alias: str) -> None:
        answers.put(_state(alias, connect[alias]))

    for alias in connect:  # daemons, as the end of the program would wait for other threads
        threading.Thread(target=ask, args=(alias,), daemon=True).start()
    limit, missing = time.monotonic() + seconds, set(connect)
    while missing:
        try:
            state = answers.get(timeout=max(0.0, limit - time.monotonic()))
        except queue.Empty:
            break
        missing.discard(state.alias)
        yield state
    for alias in sorted(missing):
        yield ClusterState(alias, problem=f"no answer within {seconds:g} s")


def _state(alias: str, connect: Callable[[], Backend]) -> ClusterState:
    """Ask one cluster; never start the embedded one."""
    if is_embedded(alias) and not embedded.embedded_uri():
        return ClusterState(alias, is_stopped=True)
    try:
        client = connect()
        jobs = client.count_jobs(RUNNING, WAITING)
        gpus = [found.capacity("gpu") for found in client.virtual_clusters().values()]
    except PaiError as err:
        return ClusterState(alias, problem=str(err))
    return ClusterState(
        alias,
        client.user,
        client.product,
        jobs[RUNNING],
        jobs[WAITING],
        sum(one.used or 0 for one in gpus),
        sum(one.usable or 0 for one in gpus),
    )
