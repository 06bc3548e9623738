"""Name nodes: PyHDFS's operations and two more, with retries and with errors as ours."""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, TypeVar, cast
from urllib.parse import parse_qs, urlsplit

import pyhdfs
from requests.exceptions import RequestException

from openpai_tasks.errors import Denied, NoSuchPath, PaiError, PathError, Unreachable
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.net.retry import RetryPolicy
from openpai_tasks.protocol.fields import text
from openpai_tasks.storage.hdfs.web import answers
from openpai_tasks.storage.hdfs.web.answers import reading, understood
from openpai_tasks.storage.hdfs.web.connections import V1, Wire
from openpai_tasks.storage.retry import paused

Result = TypeVar("Result")

NO_DATA_NODE = re.compile(
    r"Failed to find datanode|No active nodes contain|could only be (written|replicated) to|safe mode"
    r"|not sufficiently replicated yet",
    re.I,
)
NO_FOLDER = re.compile(r"is not a directory|Parent path is not a directory")
STILL_OPEN = re.compile(
    r"AlreadyBeingCreated|RecoveryInProgress|is already being created|recovery is in progress"
)
PAST_END = re.compile(r"out of the range|Cannot seek after EOF")
FOREIGN = (pyhdfs.HdfsException, RequestException)
"""Errors of PyHDFS and of the connection below it."""


logging.getLogger("pyhdfs").addHandler(logging.NullHandler())  # failures are raised, not logged


class BelowFile(PathError):
    """Raised for a path that uses a file as a folder."""


@dataclass(frozen=True)
class Patience:
    """Number of tries, and pauses between them: doubled each time, with some randomness.

    An HDFS that has answered before gets the time that its nodes may need to restart or to fail over; a host
    that never answered may be a wrong address.
    """

    tries: int = 9
    first: float = 0.2
    longest: float = 5.0
    unknown_tries: int = 5

    def pause(self, number: int, is_known: bool = True) -> float | None:
        """Return the seconds to wait after try ``number`` (from 0); None after the last try."""
        tries = self.tries if is_known else min(self.tries, self.unknown_tries)
        return RetryPolicy(tries, self.first, longest_pause=self.longest).pause(number)


class NameNodes(pyhdfs.HdfsClient):  # type: ignore[misc,unused-ignore]
    """All name nodes of one HDFS; the active one answers."""

    def __init__(
        self, hosts: tuple[str, ...], user: str, scheme: str, wire: Wire, timeout: float, patience: Patience
    ) -> None:
        super().__init__(
            hosts=list(hosts),
            randomize_hosts=False,
            user_name=user,
            timeout=timeout,
            max_tries=1,  # patiently() retries, with growing pauses
            scheme=scheme,
            requests_session=cast(Any, wire),
        )
        self._wire, self.patience = wire, patience

    mkdirs = understood(pyhdfs.HdfsClient.mkdirs, FOREIGN)
    delete = understood(pyhdfs.HdfsClient.delete, FOREIGN)
    set_times = understood(pyhdfs.HdfsClient.set_times, FOREIGN)
    set_permission = understood(pyhdfs.HdfsClient.set_permission, FOREIGN)

    def patiently(self, operation: Callable[[int], Result], path: str) -> Result:
        """Return ``operation(number of the try)``; retry after temporary errors, never after a refusal.

        Callers do not retry again: there is one layer of retries.
        """
        for number in itertools.count():
            try:
                return operation(number)
            except FOREIGN as err:
                ours = make_error(err, path)
                pause = self.patience.pause(number, self._wire.has_answered)
                if pause is None or not isinstance(ours, Unreachable) or paused(pause):
                    ours.is_given_up = True
                    raise ours from err
        raise AssertionError("counting never ends")

    def _request(self, *args: Any, **kwargs: Any) -> Any:
        """Send a request to a name node; if PyHDFS only reports that none could be used, raise the reason."""
        try:
            with reading(FOREIGN, str(args[1])):
                return super()._request(*args, **kwargs)
        except pyhdfs.HdfsNoServerException as err:
            raise pyhdfs.HdfsNoServerException(self._wire.trouble() + self._guesses()) from err

    def _guesses(self) -> str:
        """Return which ports of a host were tried because its web port is not known; empty if it is."""
        host = self.hosts[0].rpartition(":")[0]
        ports = [one.rpartition(":")[2] for one in self.hosts if one.rpartition(":")[0] == host]
        if len(ports) < 2:
            return ""
        return f" (tried its web ports {', '.join(ports)}; if it has another one, use webhdfs://{host}:PORT)"

    def list_batch(self, path: str, after: str) -> tuple[list[dict[str, Any]], int]:
        """Return some of a folder's entries, those after a name, and the number of those left."""
        with reading(FOREIGN, path):
            return answers.batch(self._get(path, "LISTSTATUS_BATCH", startAfter=after).json())

    def list_all(self, path: str) -> list[dict[str, Any]]:
        """Return a folder's entries in one answer, for an HDFS that does not support batches."""
        with reading(FOREIGN, path):
            return answers.statuses(self._get(path, "LISTSTATUS").json())

    def file_status(self, path: str) -> dict[str, Any]:
        """Return the status of one file or folder."""
        with reading(FOREIGN, path):
            return answers.status(self._get(path, "GETFILESTATUS").json()["FileStatus"])

    def checksum(self, path: str, **but: str) -> tuple[str, str]:
        """Return the kind and the value of a file's digest."""
        with reading(FOREIGN, path):
            found = self.get_file_checksum(path, **but)
            return text(found["algorithm"]), text(found["bytes"])

    def server_defaults(self) -> dict[str, int]:
        """Return the defaults of new files: blockSize, bytesPerChecksum, checksumType and so on."""
        with reading(FOREIGN, "/"):
            return answers.defaults(self._get("/", "GETSERVERDEFAULTS").json())

    def is_open(self, path: str) -> bool:
        """Whether the file is still open for writing, as far as the name node knows."""
        with reading(FOREIGN, path):
            found = self._get(path, "GET_BLOCK_LOCATIONS").json()["LocatedBlocks"]
            return bool(found["isUnderConstruction"])

    def rpc_address(self, path: str, is_new: bool) -> tuple[str, int] | None:
        """Return the address of the name node's native protocol, from its redirects to data nodes."""
        ask, op = (self._put, "CREATE") if is_new else (self._get, "OPEN")
        reply = ask(path, op, HTTPStatus.TEMPORARY_REDIRECT)
        sent_to = urlsplit(reply.headers["location"])
        host, _, port = parse_qs(sent_to.query).get("namenoderpcaddress", [""])[0].rpartition(":")
        is_gateway = not sent_to.path.startswith(V1)  # a gateway passes only HTTP
        is_port = port.isdecimal() and len(port) < 6 and 0 < int(port) < 65536
        return (host, int(port)) if host and is_port and not is_gateway else None

    def replace(self, path: str, target: str) -> None:
        """Rename a file in one step, replacing the file that has the name."""
        self._put(path, "RENAME", HTTPStatus.OK, destination=target, renameoptions="OVERWRITE")


def make_error(err: Exception, path: str) -> PaiError:
    """Convert an error of PyHDFS to one of ours: one line with the path."""
    if not isinstance(err, pyhdfs.HdfsHttpException):
        return Unreachable(f"{path}: HDFS does not answer: {_line(str(err))}")
    line = _line(err.message.partition("\n")[0])  # a stack trace may follow
    if line.startswith("Path is not a file"):
        return PathError(f"{path}: a folder, not a file")
    if isinstance(err, pyhdfs.HdfsFileNotFoundException):
        return NoSuchPath(f"{path}: no such file or folder on HDFS")
    if isinstance(err, (pyhdfs.HdfsRetriableException, pyhdfs.HdfsStandbyException)) or _may_pass(err, line):
        return Unreachable(f"{path}: HDFS is not ready: {line}")
    if isinstance(err, pyhdfs.HdfsFileAlreadyExistsException):
        return PathError(f"{path}: there is a file or folder of that name")
    if NO_FOLDER.search(line):
        return BelowFile(f"{path}: its parent is a file, not a folder")
    if isinstance(err, (pyhdfs.HdfsAccessControlException, pyhdfs.HdfsSecurityException)):
        return Denied(f"{path}: HDFS refuses: {line}", 403)
    if isinstance(err, pyhdfs.HdfsPathIsNotEmptyDirectoryException):
        return PathError(f"{path}: the folder is not empty")
    return PathError(f"{path}: HDFS says: {line}")


def is_past_end(err: Exception) -> bool:
    return isinstance(err, pyhdfs.HdfsHttpException) and bool(PAST_END.search(err.message))


def is_still_open(err: Exception) -> bool:
    return isinstance(err, pyhdfs.HdfsHttpException) and bool(STILL_OPEN.search(err.message))


def is_without_data_node(err: Exception) -> bool:
    return isinstance(err, pyhdfs.HdfsHttpException) and bool(NO_DATA_NODE.search(err.message))


def is_unknown_operation(err: Exception) -> bool:
    """Whether an older HDFS does not know the requested operation."""
    return isinstance(err, pyhdfs.HdfsIllegalArgumentException) and '"op"' in err.message


def _may_pass(err: pyhdfs.HdfsHttpException, line: str) -> bool:
    return err.status_code >= 500 or bool(NO_DATA_NODE.search(line))


def _line(words: str) -> str:
    return " ".join(words.split())[:300]
