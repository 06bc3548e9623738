"""Read files that another program may have replaced: links, pipes and devices are never opened."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

LARGEST = 4 << 20
"""Bytes of a file that people write: settings, a template, a list of names."""
LARGEST_LIST = 64 << 20
"""Bytes of a file that programs write: a record of all sources, the points of a sweep."""


def open_regular(path: str | Path, follow: bool = False) -> BinaryIO:
    """Open a regular file for reading; pipes, devices and, unless ``follow``, symlinks count as missing."""
    try:
        links = 0 if follow else os.O_NOFOLLOW
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | links)
    except OSError as err:
        if err.errno in (errno.ELOOP, errno.ENXIO, errno.ENOTDIR):
            raise FileNotFoundError(err.errno, os.strerror(err.errno), str(path)) from err
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise FileNotFoundError(errno.ENOENT, "not a regular file", str(path))
    return open(handle, "rb")


def read_limited(
    path: str | Path, most: int = LARGEST, errors: str = "strict", is_named: bool = False
) -> str:
    """Return the text of a file that may be another user's; raise OSError if it has more bytes.

    It may be a pipe only if the user named it: others would block a command.
    """
    try:
        with open(path, "rb") if is_named else open_regular(path, follow=True) as file:
            content = file.read(most + 1)
    except FileNotFoundError as err:
        if os.path.exists(path):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path)) from err
        raise
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it is larger than {most >> 20} MB", str(path))
    return content.decode("utf-8", errors)


def reason(err: OSError | UnicodeDecodeError) -> str:
    """Return why a file could not be read, without its name."""
    return err.strerror or str(err) if isinstance(err, OSError) else "it is not UTF-8 text"


def is_regular(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()
