"""Read the answers of a name node with type checks; raise one kind of error for invalid ones."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from openpai_tasks.errors import PaiError, PathError
from openpai_tasks.protocol.fields import MALFORMED, count, mapping, moment, rows, text, whole


class Misfit(PathError):
    """Raised for an answer that WebHDFS would not give."""


@contextlib.contextmanager
def reading(path: str) -> Iterator[None]:
    """Raise Misfit for a field that is missing or has another type."""
    try:
        yield
    except PaiError:
        raise
    except MALFORMED as err:
        raise Misfit(f"{path}: cannot understand the answer of HDFS; is it WebHDFS?") from err


def status(value: Any) -> dict[str, Any]:
    """Read a FileStatus; only fields that some versions lack may be missing."""
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
    found = value["FileStatuses"]["FileStatus"]
    if len(rows(found)) != len(found):
        raise TypeError("no list of files")
    return [status(one) for one in found]


def batch(value: Any) -> tuple[list[dict[str, Any]], int]:
    """Read some of a folder's entries, and the number of those left."""
    listing = mapping(value)["DirectoryListing"]
    return statuses(listing["partialListing"]), count(listing["remainingEntries"])


def defaults(value: Any) -> dict[str, int]:
    """Read the defaults of new files, all of which are needed."""
    defaults = value["FsServerDefaults"]
    keys = ("blockSize", "bytesPerChecksum", "checksumType", "replication")
    found = {key: count(defaults[key]) for key in keys}
    if not found["blockSize"] or not found["bytesPerChecksum"]:
        raise ValueError("no sizes of blocks")
    return found | {"encryptDataTransfer": bool(defaults["encryptDataTransfer"])}
