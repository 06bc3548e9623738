"""What the system tells of a file of this machine, as an entry of a store."""

from __future__ import annotations

import errno
import os
import stat

from openpai_tasks.storage.local.identity import number_of
from openpai_tasks.storage.store import Entry


def entry(place: str, name: str, path: str) -> Entry:
    facts = os.lstat(place)
    is_link = stat.S_ISLNK(facts.st_mode)
    return _made(name, path, os.stat(place) if is_link else facts, is_link)


def link(place: str, name: str, path: str) -> Entry:
    """The link, and nothing of what it leads to."""
    return Entry(name, path, False, mtime_ms=os.lstat(place).st_mtime_ns // 1_000_000, is_link=True)


def listed(found: os.DirEntry[str], name: str, path: str) -> Entry:
    try:
        return _made(name, path, found.stat(), found.is_symlink())
    except OSError as err:  # a link that leads nowhere, or a file that has just gone
        if err.errno == errno.ENAMETOOLONG:  # of a folder, all that is in it would be left out in silence
            raise
        return Entry(name, path, False, is_link=found.is_symlink())


def _made(name: str, path: str, facts: os.stat_result, is_link: bool) -> Entry:
    is_folder = stat.S_ISDIR(facts.st_mode)
    can_run = bool(facts.st_mode & stat.S_IXUSR) and not is_folder
    size = 0 if is_folder else facts.st_size
    is_special = not is_folder and not stat.S_ISREG(facts.st_mode)
    mtime_ms, mode = facts.st_mtime_ns // 1_000_000, facts.st_mode & 0o777
    number = number_of(facts) if is_folder else ""
    return Entry(name, path, is_folder, size, mtime_ms, is_link, can_run, is_special, mode, id=number)
