"""A folder for the files that a target's parser reads, used again for each input."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path


@functools.cache
def _all() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="pai-fuzz-")  # removed when the process ends


def empty_folder(name: str) -> Path:
    """Return an empty folder."""
    folder = Path(os.path.realpath(_all().name)) / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


@contextlib.contextmanager
def home_folder(files: dict[str, bytes]) -> Iterator[Path]:
    """Make a home folder with these files the user's; other variables that name one are unset."""
    folder = empty_folder("home")
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_bytes(content)
    before = dict(os.environ)
    os.environ["HOME"] = str(folder)
    os.environ.pop("OPENPAI_HOME", None)
    try:
        yield folder
    finally:
        os.environ.clear()
        os.environ.update(before)
