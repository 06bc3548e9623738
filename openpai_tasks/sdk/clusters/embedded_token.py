"""The token of the embedded cluster's owner, kept between commands: what is wrong with it costs a login."""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from pathlib import Path

from openpai_tasks.errors import ConfigError
from openpai_tasks.settings.home import write_private

FILE = "token"
LONGEST = 4096
_TOKEN = re.compile(rb"[\w-]+\.[\w-]+\.[\w-]+")  # three parts, as every token of a server of ours


def read(folder: Path) -> str:
    """The token, or nothing if there is none that could be used: not ours alone to read, cut off, no file."""
    try:
        handle = os.open(folder / FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        status = os.fstat(handle)
        private = stat.S_ISREG(status.st_mode) and stat.S_IMODE(status.st_mode) == 0o600
        content = os.read(handle, LONGEST).strip() if private and status.st_uid == os.geteuid() else b""
    finally:
        os.close(handle)
    return content.decode("ascii") if _TOKEN.fullmatch(content) else ""


def keep(folder: Path, token: str) -> None:
    """Put it in the place of whatever is there; where that cannot be, the next command logs in again."""
    path = folder / FILE
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
    with suppress(ConfigError):
        write_private(path, token)
