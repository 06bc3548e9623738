"""Read the answers of a name node with checked types; anything else is one error."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar
from urllib.parse import urlsplit

from openpai_tasks.errors import PaiError, PathError
from openpai_tasks.protocol.fields import MALFORMED, count, mapping, moment, rows, text, whole

Answer = TypeVar("Answer")


class Misfit(PathError):
    """Raised for an answer that WebHDFS would not give."""


@contextlib.contextmanager
def reading(foreign: tuple[type[Exception], ...], path: str) -> Iterator[None]:
    """Raise Misfit for a field that is missing or of another type."""
    try:
        yield
    except PaiError:
        raise
    except foreign:  # some of them are ValueErrors too
        raise
    except MALFORMED as err:
        raise Misfit(f"{path}: cannot understand the answer of HDFS; is it WebHDFS?") from err


def understood(ask: Callable[..., Answer], foreign: tuple[type[Exception], ...]) -> Callable[..., Answer]:
    """The method, whose first argument is a path, with ``reading`` around it."""

    @functools.wraps(ask)
    def asked(self: Any, path: str, *args: Any, **options: Any) -> Answer:
        with reading(foreign, path):
            return ask(self, path, *args, **options)

    return asked


def status(value: Any) -> dict[str, Any]:
    """A FileStatus; only what is not known everywhere may be missing."""
    size, mode = whole(value["length"]), int(text(value["permission"]) or "0", 8)
    if value["type"] not in ("FILE", "DIRECTORY", "SYMLINK") or size is None or size < 0:
        raise ValueError("no status of a file")
    return {
        "type": value["type"],
        "length": size,
        "modificationTime": moment(value["modificationTime"]) or 0,
        "permission": mode & 0o7777,
        "pathSuffix": text(value.get("pathSuffix")),
        "fileId": text(value.get("fileId")),
    }


def statuses(value: Any) -> list[dict[str, Any]]:
    """The entries of a folder."""
    found = value["FileStatuses"]["FileStatus"]
    if len(rows(found)) != len(found):
        raise TypeError("no list of files")
    return [status(one) for one in found]


def batch(value: Any) -> tuple[list[dict[str, Any]], int]:
    """Some of the entries of a folder, and how many are left."""
    listing = mapping(value)["DirectoryListing"]
    return statuses(listing["partialListing"]), count(listing["remainingEntries"])


def defaults(value: Any) -> dict[str, int]:
    """The defaults of new files, all of them needed."""
    defaults = value["FsServerDefaults"]
    keys = ("blockSize", "bytesPerChecksum", "checksumType", "replication")
    found = {key: count(defaults[key]) for key in keys}
    if not found["blockSize"] or not found["bytesPerChecksum"]:
        raise ValueError("no sizes of blocks")
    return found | {"encryptDataTransfer": bool(defaults["encryptDataTransfer"])}


def is_address(url: str) -> bool:
    """Whether data can be asked for there."""
    try:
        parts = urlsplit(url)
        is_server = bool(parts.hostname) and parts.netloc.isascii() and parts.port != 0
    except ValueError:
        return False
    return is_server and parts.scheme in ("http", "https")
