"""Write new small files on this machine, relative to their open folder."""

from __future__ import annotations

import contextlib
import errno
import os
from types import TracebackType

from openpai_tasks.storage.copying.claims import part_name

NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class FolderWriter:
    """Writes files into an open folder, one after the other; each is complete or absent."""

    def __init__(self, handle: int) -> None:
        self._handle, self._part = handle, part_name()

    def __enter__(self) -> FolderWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, err: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._handle)

    def write(self, name: str, content: bytes, mode: int, mtime_ms: int) -> None:
        """Write the file under a temporary name, then rename it; its mode is limited by the umask."""
        folder, part = self._handle, self._part
        file = os.open(part, NEW, mode, dir_fd=folder)
        try:
            try:
                if os.write(file, content) < len(content):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.utime(file, ns=(mtime_ms * 1_000_000, mtime_ms * 1_000_000))
            finally:
                os.close(file)
            os.rename(part, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(part, dir_fd=folder)
            raise
