"""What a history leaves: tracebacks in logs, damaged databases, modes, folders, mounts and groups."""

from __future__ import annotations

import itertools
import os
import re
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from openpai_tasks.settings import home

TRACEBACK = "Traceback (most recent call last)"
LIMITS = (
    "SystemError: error return without exception set",  # some of Python's functions that get no memory
    *("OSError: [Errno 12] ", "OSError: [Errno 24] ", "MemoryError", "RuntimeError: can't allocate lock"),
    *("OSError: [Errno 5] ", "OSError: [Errno 28] ", "OSError: [Errno 30] "),
    "AttributeError: '_UnixSelectorEventLoop' object has no attribute '_ssock'",  # it got no descriptors
)
LIBRARIES = re.compile(r"ImportError: .*(Too many open files|failed to map segment|Cannot allocate memory)")
LOADERS = re.compile(r"/openpai_tasks/lazy_\w+\.py|/lib/python3\.")
MACHINES = ("login",)  # with ssh
LARGEST_LOG = 16 << 20


def tracebacks(log: str) -> Iterator[str]:
    """Yield what follows the beginning of each traceback, but not of Python that could not load or wait."""
    parts = log.split(TRACEBACK)[1:]
    for part, following in itertools.zip_longest(parts, parts[1:], fillvalue=""):
        lines = part.splitlines()[1:]
        frames = list(itertools.takewhile(lambda line: line.startswith("  "), lines))
        own = [line for line in frames if line.startswith('  File "') and '"<frozen ' not in line]
        is_loading = all(line.endswith(" in <module>") or LOADERS.search(line) for line in own)
        is_ours = any("/openpai_tasks/" in line for line in own)
        error = "".join(lines[len(frames) :][:1])
        is_excused = error.startswith(LIMITS) and (is_loading or not is_ours)
        if not (is_excused or LIBRARIES.match(error)):
            yield part + (
                following if part.endswith((" exception:\n\n", " occurred:\n\n")) else ""
            )  # which this one led to


def home_violations(folder: Path) -> Iterator[str]:
    """Yield what is wrong in a home folder whose processes have ended."""
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or _is_of_users(path.relative_to(folder)):
            continue
        mode = path.lstat().st_mode
        if stat.S_IMODE(mode) & 0o077:
            yield f"{path} has the mode {stat.S_IMODE(mode):o}"
        if path.suffix == ".db":
            yield from _damages(path)
        elif stat.S_ISSOCK(mode) or ".pai-part" in path.name:
            yield f"left behind: {path}"
        elif stat.S_ISREG(mode) and path.stat().st_size <= LARGEST_LOG:
            for text in tracebacks(path.read_text(errors="replace")):
                yield f"{path} has a traceback: {text[:3000]}"
                break


def _is_of_users(path: Path) -> bool:
    """Whether a file belongs to a job or a storage: its program and its users decide on its mode."""
    return "storage" in path.parts[:2] or (path.parts[:2] == ("local", "jobs") and "work" in path.parts)


def _damages(path: Path) -> Iterator[str]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        try:
            found = [row[0] for row in database.execute("PRAGMA integrity_check")]
        except sqlite3.DatabaseError as err:
            found = [str(err)]
    if found != ["ok"]:
        yield f"{path} is damaged: {found[:3]}"


def outside_leftovers(folder: Path, server: Path) -> Iterator[str]:
    """Yield folders of sockets, mounts and control groups of a history whose processes have ended.

    ``server`` is the folder of its server.
    """
    for path in (server, server / "jobs", *(folder / "home" / "ssh" / name for name in MACHINES)):
        short = home._short_folder(path)
        if short.exists():
            yield f"{short} for {path}: {[one.name for one in short.iterdir()]}"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        if f"{folder}/" in line and " tmpfs endure " not in line:  # the small disk of a fault
            yield f"mount {line}"
    known = (server / "cluster.db").read_bytes()
    for parent, groups, _ in os.walk("/sys/fs/cgroup"):  # those of others may disappear meanwhile
        for group in groups:
            if group.startswith("openpai-") and group.removeprefix("openpai-").encode() in known:
                yield f"control group {parent}/{group}"
