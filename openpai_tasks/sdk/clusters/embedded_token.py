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
_TOKEN = re.compile(rb"[\w-]+\.[\w-]+\.[\w-]+|[0-9a-f]{40}")  # of its OpenPAI API, or of its PaddleCloud API


def read(folder: Path, file: str = FILE) -> str:
    """Return the token; empty if the file is missing, truncated, or accessible to other users."""
    try:
        with open_regular(folder / file) as opened:
            status = os.fstat(opened.fileno())
            is_private = stat.S_IMODE(status.st_mode) == 0o600 and status.st_uid == os.geteuid()
            content = opened.read(LONGEST).strip() if is_private else b""
    except OSError:
        return ""
    return content.decode("ascii") if _TOKEN.fullmatch(content) else ""


def keep(folder: Path, token: str, file: str = FILE) -> None:
    """Store the token; if that fails, the next command logs in again."""
    path = folder / file
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
    with suppress(ConfigError):
        write_private(path, token)
