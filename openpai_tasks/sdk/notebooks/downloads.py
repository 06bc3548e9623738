"""Digests of downloaded files, so that a new download replaces ours but never the user's.

``~/.openpai/downloads.json`` has the digest of each file as it was written. A file that still matches is
ours; any other file stays, and the download gets a free name beside it.
"""

from __future__ import annotations

import json
import logging
import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path

from openpai_tasks.errors import ConfigError, PathError
from openpai_tasks.protocol.fields import mapping
from openpai_tasks.sdk.payloads.notebook_runner import digest_of
from openpai_tasks.settings.home import home, locked, write_private

MOST_NAMES = 1000  # tried for a file beside an existing one

log = logging.getLogger("openpai_tasks")


def is_ours(path: Path) -> bool:
    """Whether the file is still as a download or pull has written it."""
    written = _known().get(_key(path))
    return written is not None and not path.is_symlink() and local_digest(path) == written


def local_digest(path: Path) -> str | None:
    """Return the digest of a regular file; None if it is not one."""
    try:
        return digest_of(path) if stat.S_ISREG(path.stat().st_mode) else None
    except FileNotFoundError:
        return None
    except OSError as err:
        raise PathError(f"cannot read {path}: {err.strerror}") from err


def free_path(path: Path, is_replaceable: Callable[[Path], bool] = is_ours, first: int = 0) -> Path:
    """Return the first of ``path`` and its ``.remote`` variants that is free or replaceable."""
    for number in range(first, MOST_NAMES):
        mark = "" if number == 0 else ".remote" if number == 1 else f".remote-{number}"
        beside = path.with_name(f"{path.stem}{mark}{path.suffix}")
        if not os.path.lexists(beside) or is_replaceable(beside):
            return beside
    raise PathError(f"too many files named {path.stem}.remote-*{path.suffix}; remove some")


def remember(paths: Iterable[Path]) -> None:
    """Remember the files as they are now; if that fails, they are never replaced."""
    try:
        with locked(_file()):
            known = _known() | {_key(path): digest_of(path) for path in paths if path.is_file()}
            kept = {key: value for key, value in known.items() if os.path.isfile(key)}
            write_private(_file(), json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    except (ConfigError, OSError) as err:
        log.warning("warning: cannot record the downloaded files: %s", err)


def _key(path: Path) -> str:
    return str(path.parent.resolve() / path.name)


def _known() -> dict[str, str]:
    try:
        found = json.loads(_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {key: value for key, value in mapping(found).items() if isinstance(value, str)}


def _file() -> Path:
    return home() / "downloads.json"
