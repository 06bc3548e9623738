"""One server for all workers of a test run: the first that needs it starts it, and stops it at the end."""

from __future__ import annotations

import contextlib
import fcntl
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, Protocol, TypeVar


class Stoppable(Protocol):
    def stop(self) -> None: ...


S = TypeVar("S", bound=Stoppable)
_known: dict[str, Any] = {}
_started: dict[str, Any] = {}
_users: dict[str, IO[bytes]] = {}  # each is locked, shared, as long as its server is used here
_run: list[Path] = []


def use(folder: Path) -> None:
    """Share servers with the processes that use the same folder."""
    _run[:] = [folder]


def shared(name: str, start: Callable[[], S]) -> S:
    """The server of that name, started on first use; other workers get a pickled copy."""
    if name not in _known:
        _known[name] = _join(name, start) if _run else _start(name, start)
    found: S = _known[name]
    return found


def _start(name: str, start: Callable[[], S]) -> S:
    _started[name] = server = start()
    return server


def _join(name: str, start: Callable[[], S]) -> S:
    with _alone(name):
        _users[name] = open(_file(name, "users"), "ab")  # noqa: SIM115 -- until this process needs it no more
        fcntl.flock(_users[name], fcntl.LOCK_SH)
        facts = _file(name, "pickle")
        if facts.exists():
            found: S = pickle.loads(facts.read_bytes())
            return found
        server = _start(name, start)
        facts.write_bytes(pickle.dumps(server))
        return server


def stop_all() -> None:
    """End what was started here, each server when no other worker uses it."""
    for name in [name for name in _known if name not in _started and name in _users]:
        _users.pop(name).close()
    while _started:
        name, server = _started.popitem()
        if name in _users:
            with _alone(name):  # whoever needs one from now on starts another
                _file(name, "pickle").unlink()
                _file(name, "users").unlink()
            with _users.pop(name) as users:
                fcntl.flock(users, fcntl.LOCK_EX)
        server.stop()
    _known.clear()


@contextlib.contextmanager
def _alone(name: str) -> Iterator[None]:
    with open(_file(name, "lock"), "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _file(name: str, kind: str) -> Path:
    return _run[0] / f"{name}.{kind}"
