"""Folders of jobs: names that users choose become folder names that are safe and unique."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

_LONGEST = 150  # bytes; file systems allow up to 255


def folder_name(name: str) -> str:
    """Return the name itself if it is safe and distinct on every file system, else with a hash added."""
    plain = re.sub(r"[^\w.~-]", "_", name, flags=re.ASCII)
    if plain == name == name.lower() and 0 < len(name) <= _LONGEST and not name.startswith("."):
        return name
    mark = hashlib.md5(name.encode("utf-8"), usedforsecurity=False).hexdigest()[:8]
    return f"{plain.lstrip('.')[:_LONGEST]}-{mark}"


def task_folder(jobs: Path, key: str, attempt: int, role: str, index: int, number: int) -> Path:
    """Return the folder of attempt ``number`` of one task instance."""
    return jobs.joinpath(folder_name(key), str(attempt), f"{folder_name(role)}-{index}-{number}")
