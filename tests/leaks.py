"""Search files for a secret, while a server may be changing them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def files_with(secret: str, folder: Path) -> list[Path]:
    """Return the files below the folder that contain the secret, without those that vanish."""
    return [path for path, content in contents(folder) if secret.encode() in content]


def contents(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """Yield each regular file below the folder with its content."""
    for parent, _, names in os.walk(folder):
        for path in (Path(parent, name) for name in names):
            with suppress(FileNotFoundError):
                if path.is_file() and not path.is_symlink():
                    yield path, path.read_bytes()
