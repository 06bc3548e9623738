"""What was brought to this machine, so that it can be replaced, and a file of the user's never is.

``~/.openpai/brought.json`` has the digest of each file as it was written. A file that is still so is ours;
any other one stays, and what is brought gets a free name beside it.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from openpai_tasks.errors import ConfigError, PathError
from openpai_tasks.sdk.payloads.notebook_server import digest_of
from openpai_tasks.settings.home import home, locked, write_private

NAMES = 1000  # that are tried for a file beside another one

log = logging.getLogger("openpai_tasks")


def place(path: Path) -> Path:
    """Where a file may be written that should be ``path``: there, or beside what is not ours."""
    known = _known()
    return free(path, lambda there: _is_ours(there, known))


def free(path: Path, is_ours: Callable[[Path], bool], first: int = 0) -> Path:
    """The first of the names for the file, itself or those beside it, that nobody else's has."""
    for number in range(first, NAMES):
        mark = "" if number == 0 else ".remote" if number == 1 else f".remote-{number}"
        beside = path.with_name(f"{path.stem}{mark}{path.suffix}")
        if not os.path.lexists(beside) or is_ours(beside):
            return beside
    raise PathError(f"there are too many files named {path.stem}.remote-*{path.suffix}; remove some")


def note(paths: Iterable[Path]) -> None:
    """Remember the files as they are now; where that cannot be, they are never replaced."""
    try:
        with locked(_file()):
            told = _known() | {_key(path): digest_of(path) for path in paths if path.is_file()}
            kept = {key: value for key, value in told.items() if os.path.isfile(key)}
            write_private(_file(), json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    except (ConfigError, OSError) as err:
        log.warning("warning: what was brought could not be noted: %s", err)


def _is_ours(path: Path, known: dict[str, str]) -> bool:
    if path.is_symlink() or not path.is_file() or _key(path) not in known:
        return False
    try:
        return digest_of(path) == known[_key(path)]
    except OSError as err:
        raise PathError(f"cannot read {path}: {err.strerror}") from err


def _key(path: Path) -> str:
    return str(path.parent.resolve() / path.name)


def _known() -> dict[str, str]:
    try:
        told = json.loads(_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    pairs = told.items() if isinstance(told, dict) else ()
    return {key: value for key, value in pairs if isinstance(value, str)}


def _file() -> Path:
    return home() / "brought.json"
