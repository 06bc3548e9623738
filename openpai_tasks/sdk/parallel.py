"""The same question to many, side by side, with one limit for all: who drips or hangs holds up nobody."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def abreast(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    seconds: float,
    late: Callable[[Item], Result],
) -> list[Result]:
    """The results in the order of the items; ``late`` makes that of one which takes longer."""
    asked = tuple(items)
    results: dict[int, Result] = {}
    failures: dict[int, BaseException] = {}

    def work(number: int) -> None:
        try:
            results[number] = function(asked[number])
        except BaseException as err:
            failures[number] = err

    # Daemons: a pool of threads would be waited for at the end of the program, however long they take.
    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(len(asked))]
    limit = time.monotonic() + seconds
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, limit - time.monotonic()))
    for failure in failures.values():
        raise failure
    return [results[number] if number in results else late(item) for number, item in enumerate(asked)]
