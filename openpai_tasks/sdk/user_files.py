"""Files that are a person's own as well as ours: read and replaced with every byte that is in them."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from openpai_tasks.errors import ConfigError
from openpai_tasks.home import make_private


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
    make_private(path.parent)
    try:
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(text.encode("utf-8", "surrogateescape"))
                file.flush()
                os.fchmod(handle, mode)
                os.fsync(handle)
            os.replace(name, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)
            raise
    except OSError as err:
        raise ConfigError(f"cannot write {path}: {err.strerror}") from err
