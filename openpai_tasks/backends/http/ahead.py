"""Calls that are started before their answers are needed, side by side, for clusters that are far away."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

Method = TypeVar("Method", bound=Callable[..., Any])


def can_run_ahead(method: Method) -> Method:
    """Let calls of a connection's method take the answer of an equal call that ``ahead`` has started."""

    @functools.wraps(method)
    def take(connection: Any, *arguments: Any, **options: Any) -> Any:
        pending = connection.pending.pop(call_key(method, arguments, options), None)
        return pending.result() if pending else method(connection, *arguments, **options)

    return take  # type: ignore[return-value]


def call_key(method: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]) -> Hashable:
    return method.__name__, arguments, frozenset(options.items())


class PendingCall:
    """A call that runs in its own thread."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._value: Any = None
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._value = self._call()
        except Exception as err:
            self._error = err

    def result(self) -> Any:
        """Wait for the call, and return its answer or raise its error."""
        self._thread.join()
        if self._error:
            raise self._error
        return self._value
