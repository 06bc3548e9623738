"""What commands need to know of a server: whether it runs, where, and which ports it may have."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any

from openpai_tasks.errors import ConfigError
from openpai_tasks.net.addresses import LAST_PORT

LOCK, STATUS = "server.lock", "server.json"
ALREADY_RUNNING = 3
"""Exit code of a server whose folder another one uses."""
PORT_TAKEN = 5
"""Exit code of a server that cannot listen on its port."""


def is_held(folder: Path) -> bool:
    """Whether a server runs in the folder; its lock is released however it ends."""
    try:
        handle = os.open(folder / LOCK, os.O_RDONLY)  # the disk may be read-only
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(handle)


def read_status(folder: Path) -> dict[str, Any] | None:
    """Return what the running server has written about itself; None if it does not answer yet."""
    if not is_held(folder):
        return None
    try:
        facts = json.loads((folder / STATUS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return facts if isinstance(facts, dict) and "uri" in facts else None


def check_port(port: int) -> None:
    """Raise unless a server can be asked to listen there; 0 leaves the choice to it."""
    if not 0 <= port <= LAST_PORT:
        raise ConfigError(f"a port is a number from 0 to {LAST_PORT}, got {port}")
