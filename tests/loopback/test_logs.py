"""What the server prints when descriptors, space or memory run out: one line a minute."""

from __future__ import annotations

import errno
import logging
import os
import sqlite3

import pytest

from openpai_tasks.loopback.logs import RepeatFilter


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def clock() -> list[float]:
    return [1000.0]


@pytest.fixture
def log(lines: list[str], clock: list[float]) -> logging.Logger:
    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(self.format(record))

    handler = Lines()
    handler.addFilter(RepeatFilter(lambda: clock[0]))
    found = logging.getLogger("uvicorn.error.of-a-test")
    found.propagate = False
    found.handlers = [handler]
    return found


def fail(log: logging.Logger, number: int, inner: bool = False) -> None:
    try:
        try:
            raise OSError(number, os.strerror(number))
        except OSError as err:
            if inner:
                raise RuntimeError("could not") from err
            raise
    except (OSError, RuntimeError):
        log.exception("socket.accept() out of system resource")


def test_descriptor_errors_are_logged_as_one_line_a_minute(
    log: logging.Logger, lines: list[str], clock: list[float]
) -> None:
    for number in range(2042):
        fail(log, (errno.EMFILE, errno.ENFILE)[number % 2], inner=number % 3 == 0)
    assert len(lines) == 1 and "\n" not in lines[0]
    assert lines[0].startswith("too many open files (the limit is ")
    clock[0] += 61
    fail(log, errno.EMFILE)
    assert len(lines) == 2


def test_other_failures_are_logged_with_their_traceback(log: logging.Logger, lines: list[str]) -> None:
    log.name = "openpai_tasks.server"
    for _ in range(3):
        fail(log, errno.EACCES)
    log.name = "uvicorn.error.of-a-test"
    assert len(lines) == 3 and all("Traceback" in line for line in lines)


def test_repeated_web_server_warning_is_logged_once(log: logging.Logger, lines: list[str]) -> None:
    for _ in range(100):
        log.warning("Invalid HTTP request received.")
    log.warning("another")
    assert lines == ["Invalid HTTP request received.", "another"]


MALFORMED = "database disk image is malformed"  # as SQLite also reports EIO of a read


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "x"), "could not: No space left on device: x"),
        (sqlite3.OperationalError("database or disk is full"), "could not: database or disk is full"),
        (sqlite3.DatabaseError(MALFORMED), f"could not: {MALFORMED}"),
        (MemoryError(), "could not: out of memory"),
        (ImportError("x.so: failed to map segment from shared object"), "could not: out of memory"),
        (SystemError("error return without exception set"), "could not: out of memory"),
    ],
)
def test_errors_of_the_machine_are_logged_as_one_line_a_minute(
    log: logging.Logger, lines: list[str], error: Exception, line: str
) -> None:
    for _ in range(3):
        try:
            raise error
        except Exception:
            log.exception("could %s", "not")
    assert lines == [line]
