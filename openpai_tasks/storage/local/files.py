"""Operations on local files; errors are raised as ours."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from functools import lru_cache
from typing import BinaryIO, Literal

from openpai_tasks import clearing
from openpai_tasks.errors import Denied, NoSuchPath, PathError
from openpai_tasks.storage.store import join, parent

MISSING = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
FORBIDDEN = (errno.EACCES, errno.EPERM)


def remove_tree(name: str, holder: int, path: str) -> None:
    try:
        clearing.remove_tree(name, holder)
    except PathError:
        raise
    except OSError as err:
        raise _ours(err, join(parent(path), str(err.filename))) from err


def make_folders(place: str) -> None:
    """Create the folder and its missing parents, one level at a time, as there may be very many."""
    missing = []
    while not os.path.isdir(place):
        missing.append(place)
        place = os.path.dirname(place)
    for path in reversed(missing):
        try:
            os.mkdir(path)
        except FileExistsError:
            if not os.path.isdir(path):  # otherwise another thread was faster
                raise


@lru_cache(1)
def umask(second: int) -> int:
    """Return the umask for new files; read at most once a second.

    Linux reports it in /proc, since asking the process means changing it for a moment.
    """
    with contextlib.suppress(OSError), open("/proc/self/status") as status:
        for line in status:
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def regular(handle: int, path: str, mode: Literal["rb", "wb"] = "rb") -> BinaryIO:
    """Open the file; refuse pipes and devices, as reading them could block or never end."""
    file = os.fdopen(handle, mode, buffering=0)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        file.close()
        raise PathError(f"{path} is neither a file nor a folder")
    return file


def write_all(file: BinaryIO, piece: bytes) -> None:
    view = memoryview(piece)
    while view:
        view = view[file.write(view) :]


@contextlib.contextmanager
def mapping_errors(path: str) -> Iterator[None]:
    """Translate errors of the system to ours."""
    try:
        yield
    except PathError:
        raise
    except OSError as err:
        raise _ours(err, path) from err


def _ours(err: OSError, path: str) -> PathError | NoSuchPath | Denied:
    reason = (err.strerror or str(err)).lower()
    if err.errno in MISSING:
        return NoSuchPath(f"{path}: {reason}")
    if err.errno in FORBIDDEN:
        return Denied(f"{path}: {reason}", 403)
    return PathError(f"{path}: {reason}")
