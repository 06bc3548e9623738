"""Errors of the machine rather than of the program: no space, descriptors, memory, folder, a broken disk."""

from __future__ import annotations

import errno
import os

NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
NUMBERS = (
    *NO_DESCRIPTORS,
    *(errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ENOMEM),
)
_SQLITE = (
    "database or disk is full",
    "disk I/O error",
    "attempt to write a readonly database",
    "unable to open database file",
    "database disk image is malformed",  # also if a read fails with EIO
)
_NO_THREAD = "can't start new thread"
_NO_EXCEPTION = ("error return without exception set", "returned NULL without setting an exception")
"""How some functions of Python itself end for lack of memory."""
_NO_LIBRARY = "failed to map segment from shared object"  # for lack of memory, as glibc says


def is_shortage(err: BaseException | None) -> bool:
    """Whether an operation may succeed once there is space, memory or a working disk again."""
    if isinstance(err, OSError):
        return err.errno in NUMBERS
    if type(err).__module__ == "sqlite3":  # which takes long to load
        return str(err).startswith(_SQLITE)
    if isinstance(err, ImportError):
        return _NO_LIBRARY in str(err)
    if isinstance(err, SystemError):
        return str(err).endswith(_NO_EXCEPTION)
    return isinstance(err, MemoryError) or (isinstance(err, RuntimeError) and str(err) == _NO_THREAD)


def find_shortage(err: BaseException | None) -> BaseException | None:
    """Return the shortage that caused an error; None if there is none."""
    while err is not None and not is_shortage(err):
        err = err.__cause__ or err.__context__
    return err


def describe(err: BaseException) -> str:
    """Return a shortage in one line."""
    if isinstance(err, OSError):
        name = f": {os.fsdecode(err.filename)}" if err.filename else ""
        return f"{err.strerror}{name}"
    return "out of memory" if isinstance(err, (ImportError, SystemError)) else str(err) or "out of memory"


def missing_folder() -> str:
    """Return why there is no current folder, in one line; empty if there is one."""
    try:
        os.getcwd()
    except OSError as err:
        return f"the current folder cannot be used: {err.strerror}; change to another one"
    return ""
