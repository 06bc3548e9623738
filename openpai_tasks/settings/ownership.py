"""Check whether other users can change a file that we are about to run or trust.

The rule of ssh's StrictModes and git's safe.directory: the file, and every link and folder on the way to it,
must belong to the user or root and be writable by nobody else. ``OPENPAI_TRUST`` overrides it.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import stat
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

VARIABLE = "OPENPAI_TRUST"
MOST_LINKS = 40
CACHE = "__pycache__"


def problem(*files: str | Path) -> str:
    """Return why another user could have changed one of the files, and a fix; empty if nobody could."""
    return _first_problem(files)


def _first_problem(files: Iterable[str | Path]) -> str:
    seen: set[str] = set()
    for file in files:
        if is_trusted_by_variable(file):
            continue
        for place in _path_parts(str(file)):
            if place not in seen and (found := _problem_at(place, project_of(file))):
                return found
            seen.add(place)
    return ""


def tree_problem(folder: Path) -> str:
    """Return the first problem of a folder and everything in it; what another user made is not searched."""
    return _first_problem(everything_in(folder))


def is_trusted_by_variable(path: str | Path) -> bool:
    """Whether the path is in a folder that ``OPENPAI_TRUST`` names; only absolute paths count."""
    given = os.environ.get(VARIABLE, "")
    folders = [os.path.realpath(folder) for folder in given.split(os.pathsep) if os.path.isabs(folder)]
    return bool(folders) and any(Path(os.path.realpath(path)).is_relative_to(folder) for folder in folders)


def project_of(file: str | Path) -> Path:
    """Return the project folder that a file belongs to."""
    folder = Path(os.path.abspath(file)).parent
    return folder.parent if folder.name in (".openpai", CACHE) else folder


def everything_in(folder: Path) -> Iterator[Path]:
    """Yield the folder and everything below it, following each linked folder once."""
    seen: set[str] = set()
    todo = [folder]
    while todo:
        path = todo.pop()
        yield path
        real = os.path.realpath(path)
        if os.path.isdir(real) and real not in seen:
            seen.add(real)
            with contextlib.suppress(PermissionError):
                todo += [Path(path, name) for name in os.listdir(real)]


def allow_bytecode() -> None:
    """Let Python write .pyc files, which Invoke forbids, unless the umask lets others write their folder."""
    mask = os.umask(0o077)
    os.umask(mask)
    is_shared = not mask & stat.S_IWOTH or not (mask & stat.S_IWGRP or _is_private_group(os.getegid()))
    sys.dont_write_bytecode = bool(sys.flags.dont_write_bytecode) or is_shared


def _path_parts(path: str) -> Iterator[str]:
    """Yield every folder and link on the way to the file, and the file itself."""
    here, links = os.sep, 0
    todo = os.path.abspath(path).split(os.sep)[::-1]
    yield here
    while todo:
        part = todo.pop()
        if part == os.pardir:
            here = os.path.dirname(here)
        elif part not in ("", os.curdir):
            place = os.path.join(here, part)
            yield place
            if os.path.islink(place) and links < MOST_LINKS:
                links += 1
                target = os.readlink(place)
                here = os.sep if os.path.isabs(target) else here
                todo += target.split(os.sep)[::-1]
            else:
                here = place


def _problem_at(place: str, folder: Path) -> str:
    try:
        found = os.lstat(place)
    except OSError:
        return ""  # the file cannot be read either
    allow = f"export {VARIABLE}={shlex.quote(str(folder))}"
    if found.st_uid not in _own_users():
        owner = _name(found.st_uid)
        return f"{place} belongs to {owner} (`{allow}` if you trust {owner})"
    if stat.S_ISLNK(found.st_mode) or not _is_writable_by_others(found):
        return ""
    change = "chmod -R go-w" if os.path.basename(place) == CACHE else "chmod go-w"
    end = f"{change} {shlex.quote(place)}"
    return f"other users can write {place} (`{end}` prevents that, `{allow}` if you trust them)"


def _own_users() -> Iterable[int]:
    """Return root, the user, and under `sudo` also its caller, like git."""
    user, caller = os.geteuid(), os.environ.get("SUDO_UID", "")
    return {0, user} | ({int(caller)} if user == 0 and caller.isdecimal() else set())


def _is_writable_by_others(found: os.stat_result) -> bool:
    if stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX:
        return False  # sticky, like /tmp: users cannot replace each other's files
    if found.st_mode & stat.S_IWOTH:
        return True
    return bool(found.st_mode & stat.S_IWGRP) and not _is_private_group(found.st_gid)


def _is_private_group(number: int) -> bool:
    """Whether it is a user's private group, with no other members."""
    import grp

    names = {_name(user) for user in _own_users()}
    try:
        group = grp.getgrgid(number)
    except KeyError:
        return False
    return group.gr_name in names and names.issuperset(group.gr_mem)


def _name(user: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"
