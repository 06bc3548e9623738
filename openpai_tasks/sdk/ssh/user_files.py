"""Files that are a person's own as well as ours: read and replaced with every byte that is in them."""

from __future__ import annotations

from pathlib import Path

from openpai_tasks.errors import ConfigError
from openpai_tasks.settings.home import write_private


def read(path: Path) -> str:
    """The text with every byte that is in the file, whatever its encoding and its ends of lines."""
    try:
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return ""
    except OSError as err:
        raise ConfigError(f"cannot read {path}: {err.strerror}") from err


def replace(path: Path, text: str) -> None:
    """Write what ``read`` read, as a whole; the file keeps its rights, a new one is the user's alone."""
    try:
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    except OSError as err:
        raise ConfigError(f"cannot write {path}: {err.strerror}") from err
    write_private(path, text, mode)
