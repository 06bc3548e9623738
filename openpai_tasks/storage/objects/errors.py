"""Errors of object services, translated to ours, and the time limits for answers."""

from __future__ import annotations

import contextlib
import logging
import re
import traceback
from collections.abc import Iterator

from openpai_tasks.errors import Denied, NoSuchPath, NotFound, PaiError, PathError, Unreachable
from openpai_tasks.protocol.fields import MALFORMED
from openpai_tasks.storage.retry import CorruptData

REFUSALS = ("ExpiredToken", "InvalidToken", "InvalidAccessKeyId", "AuthorizationHeaderMalformed")
DAMAGES = ("BadDigest", "InvalidDigest", "XAmzContentSHA256Mismatch", "IncompleteBody", "Md5Mismatch")
PASSING = ("RequestTimeout", "SlowDown", "ServerBusy", "OperationTimedOut", "InternalError")
NO_BUCKET = ("NoSuchBucket", "ContainerNotFound", "ContainerBeingDeleted")
NOT_IMPLEMENTED = 501
LONGEST = 120.0  # seconds for one request, however little it transfers
SLOWEST = 1 << 16  # bytes per second; slower requests are given up
CHATTY = ("botocore", "azure", "adlfs")


class PastEnd(PathError):
    """Raised for a range that begins after the end of the object."""


def make_error(status: int, code: str, text: str, key: str, address: str) -> PaiError:
    """Return the error for an answer about the key; ``code`` is the service's error code."""
    where = f"{address}/{key}".rstrip("/")
    message = line(text) or code or f"http status {status}"
    if code in NO_BUCKET:
        return NotFound(f"{address}: it does not exist, or belongs to another account", 404)
    if code in DAMAGES or (status == 400 and "md5" in message.lower()):
        return CorruptData(f"{where}: damaged in transit ({code})")
    if status == 412:
        return CorruptData(f"{where}: it changed while it was read")
    if (status >= 500 and status != NOT_IMPLEMENTED) or status == 429 or code in PASSING:
        return Unreachable(f"{where}: the server is not ready: {message}")
    if status == 404:
        return NoSuchPath(f"{where}: no such file")
    if status in (401, 403) or code in REFUSALS:
        return Denied(f"{where}: refused: {message} (check the key and its permissions)", status)
    return PathError(f"{where}: the server answered: {message}")


def no_answer_error(err: BaseException, key: str, address: str) -> Unreachable:
    """Return the error for a missing or incomplete answer."""
    why = line(str(err)) or type(err).__name__
    return Unreachable(f"{f'{address}/{key}'.rstrip('/')}: no answer: {why}")


@contextlib.contextmanager
def parsing_answer(key: str, address: str) -> Iterator[None]:
    """Raise an error for an answer that is not from such a service."""
    try:
        yield
    except PaiError:
        raise
    except MALFORMED as err:
        where = f"{address}/{key}".rstrip("/")
        raise PathError(f"{where}: cannot understand the server's answer; check its address") from err


def release(err: BaseException | None) -> None:
    """Free the data that failed calls still refer to, which may be megabytes."""
    while err is not None:
        traceback.clear_frames(err.__traceback__)
        err = err.__cause__ or err.__context__


def line(text: str) -> str:
    """Return the first line without the queries of URLs; the rest may quote signed data."""
    first = text.strip().partition("\n")[0]
    return re.sub(r"\?[^\s\"']*", "", " ".join(first.split()))[:300]


def mute() -> None:
    """Keep requests with their signatures out of logs, unless their logger was configured."""
    for name in CHATTY:
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.WARNING)
