"""Read files that another program may have replaced: links, pipes and devices are never opened."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

LARGEST_SETTINGS = 4 << 20  # bytes of a file of settings or of a record


def open_regular(path: str | Path) -> BinaryIO:
    """Open a regular file for reading; a symlink, pipe or device counts as missing."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as err:
        if err.errno in (errno.ELOOP, errno.ENXIO, errno.ENOTDIR):
            raise FileNotFoundError(err.errno, os.strerror(err.errno), str(path)) from err
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise FileNotFoundError(errno.ENOENT, "not a regular file", str(path))
    return open(handle, "rb")


def is_regular(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def read_settings(path: Path, errors: str = "strict") -> str:
    """Return the text of a settings file or a record; OSError if it is too large for one."""
    with path.open("rb") as file:
        data = file.read(LARGEST_SETTINGS + 1)
    if len(data) > LARGEST_SETTINGS:
        raise OSError(errno.EFBIG, f"larger than {LARGEST_SETTINGS >> 20} MB", os.fspath(path))
    return data.decode("utf-8", errors)
