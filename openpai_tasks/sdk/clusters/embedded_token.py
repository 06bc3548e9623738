"""The token of the embedded cluster's owner, stored between commands; without it, a command logs in again."""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from pathlib import Path

from openpai_tasks.errors import ConfigError
from openpai_tasks.regular_files import open_regular
from openpai_tasks.settings.home import write_private

FILE = "token"
LONGEST = 4096
_TOKEN = re.compile(rb"[\w-]+\.[\w-]+\.[\w-]+")  # three parts, as in every token of the embedded server


def read(folder: Path) -> str:
    """Return the token; empty if the file is missing, truncated, or accessible to other users."""
    try:
        with open_regular(folder / FILE) as file:
            status = os.fstat(file.fileno())
            is_private = stat.S_IMODE(status.st_mode) == 0o600 and status.st_uid == os.geteuid()
            content = file.read(LONGEST).strip() if is_private else b""
    except OSError:
        return ""
    return content.decode("ascii") if _TOKEN.fullmatch(content) else ""


def keep(folder: Path, token: str) -> None:
    """Store the token; if that fails, the next command logs in again."""
    path = folder / FILE
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
    with suppress(ConfigError):
        write_private(path, token)
