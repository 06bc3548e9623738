"""Read and replace files that users edit too, without changing any other byte."""

from __future__ import annotations

from pathlib import Path

from openpai_tasks.errors import ConfigError
from openpai_tasks.settings.home import write_private


def read(path: Path) -> str:
    """Read text that keeps every byte, whatever the encoding and line ends."""
    try:
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return ""
    except OSError as err:
        raise ConfigError(f"cannot read {path}: {err.strerror}") from err


def replace(path: Path, text: str) -> None:
    """Write text from ``read`` atomically; keep the mode, or make a new file private."""
    try:
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    except OSError as err:
        raise ConfigError(f"cannot write {path}: {err.strerror}") from err
    write_private(path, text, mode)
