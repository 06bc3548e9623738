"""Call a function for many items in parallel with one time limit, so that a slow item delays no other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_parallel(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    seconds: float,
    late: Callable[[Item], Result],
) -> list[Result]:
    """Return the results in the order of the items; ``late`` makes the result of a slow item."""
    inputs = tuple(items)
    results: dict[int, Result] = {}
    failures: dict[int, BaseException] = {}

    def work(number: int) -> None:
        try:
            results[number] = function(inputs[number])
        except BaseException as err:
            failures[number] = err

    # Daemon threads, as the program's exit would wait for a thread pool.
    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(len(inputs))]
    limit = time.monotonic() + seconds
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, limit - time.monotonic()))
    for failure in failures.values():
        raise failure
    return [results[number] if number in results else late(item) for number, item in enumerate(inputs)]
