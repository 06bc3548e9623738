"""Errors of WebHDFS, and ours for them: one line with the path."""

from __future__ import annotations

import re

from openpai_tasks.errors import Denied, NoSuchPath, PaiError, PathError, Unreachable

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
ON_STANDBY = ("StandbyException", "RetriableException")
TEMPORARY = (*ON_STANDBY, "RuntimeException")
REFUSALS = ("AccessControlException", "SecurityException")


class NoAnswer(Exception):
    """Raised when a node gives no answer, or none of WebHDFS."""


class DataNodeError(NoAnswer):
    """Raised when a data node fails; ``host`` is its machine."""

    def __init__(self, message: str, host: str) -> None:
        super().__init__(message)
        self.host = host


class RemoteError(Exception):
    """An error that HDFS reports; ``kind`` is the name of its Java class."""

    def __init__(self, kind: str, message: str, status: int = 403) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind, self.message, self.status = kind, message, status

    def matches(self, pattern: re.Pattern[str]) -> bool:
        return pattern.search(str(self)) is not None

    @property
    def is_unknown_operation(self) -> bool:
        """Whether an older HDFS does not know the requested operation."""
        return self.kind.endswith("IllegalArgumentException") and '"op"' in self.message


HDFS_ERRORS = (RemoteError, NoAnswer)


class ParentIsFile(PathError):
    """Raised for a path that uses a file as a folder."""


def make_error(err: Exception, path: str) -> PaiError:
    """Return our error for one of HDFS."""
    if not isinstance(err, RemoteError):
        return Unreachable(f"{path}: HDFS does not answer: {_line(str(err))}")
    line = _line(err.message.partition("\n")[0])  # a stack trace may follow
    if line.startswith("Path is not a file"):
        return PathError(f"{path}: a folder, not a file")
    if err.kind == "FileNotFoundException":
        return NoSuchPath(f"{path}: no such file or folder on HDFS")
    if err.kind in TEMPORARY or err.status >= 500 or NO_DATA_NODE.search(line):
        return Unreachable(f"{path}: HDFS is not ready: {line}")
    if err.kind == "FileAlreadyExistsException":
        return PathError(f"{path}: there is a file or folder of that name")
    if NO_FOLDER.search(line):
        return ParentIsFile(f"{path}: its parent is a file, not a folder")
    if err.kind in REFUSALS:
        return Denied(f"{path}: HDFS refuses: {line}", 403)
    if err.kind == "PathIsNotEmptyDirectoryException":
        return PathError(f"{path}: the folder is not empty")
    return PathError(f"{path}: HDFS says: {line or err.kind}")


def _line(words: str) -> str:
    return " ".join(words.split())[:300]
