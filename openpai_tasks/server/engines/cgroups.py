"""Find a control group of this machine below which tasks can have their own, with a memory limit.

With version 2, processes are only in groups without children that have limits, so the group must be empty and
delegated to this user. systemd gives one if it is asked, and ends what is in it with the last
session of the user unless the user lingers; the server asks only if its tasks then live as long as before.
With version 1, root can use the group that it is in.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pwd
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from openpai_tasks.server.engines.base import MemoryLimits

V1, V2 = "cgroup v1", "cgroup v2"
SCOPE_SECONDS = 10.0  # a busy machine needs a few
_MANAGER = ("org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager")


class CgroupTree:
    """The groups of a system as a process sees them; tests have a folder instead of a root."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self.has_systemd = (root / "run/systemd/system").is_dir()

    def own(self, version: str) -> Path | None:
        """Return the group of this process that can limit memory; None if there is none."""
        mark = "0::" if version == V2 else ":memory:"
        lines = _read(self._root / "proc/self/cgroup").split("\n")
        path = next((line.partition(mark)[2] for line in lines if mark in line), None)
        for root, point in self._mounts(version) if path else ():
            inside = os.path.relpath(str(path), root)
            if not inside.startswith(".."):
                return self._root / point.lstrip("/") / inside
        return None

    def parents(self, group: Path) -> Iterator[Path]:
        """Yield the groups around one of version 2, from the inside to the outside."""
        top = {self._root / point.lstrip("/") for _, point in self._mounts(V2)}
        while group not in top and group != group.parent:
            group = group.parent
            yield group

    def _mounts(self, version: str) -> Iterator[tuple[str, str]]:
        """Yield the root of each mounted hierarchy, and where it is mounted."""
        for line in _read(self._root / "proc/self/mountinfo").split("\n"):
            head, _, tail = line.partition(" - ")
            place, kind = head.split(" "), tail.split(" ")
            is_first = kind[:1] == ["cgroup"] and "memory" in kind[-1].split(",")
            if is_first if version == V1 else kind[:1] == ["cgroup2"]:
                yield place[3], place[4]


@functools.cache
def task_groups() -> tuple[Path | None, MemoryLimits]:
    """Return the group in which tasks get their own, or None, and whether memory is limited."""
    return find_groups(CgroupTree())


def find_groups(tree: CgroupTree) -> tuple[Path | None, MemoryLimits]:
    unified, first = tree.own(V2), tree.own(V1)
    with contextlib.suppress(OSError):
        if unified and _has_memory(unified):
            return _find_delegated(tree, unified), MemoryLimits(True, V2)
        if first and os.access(first, os.W_OK):
            return first, MemoryLimits(True, V1)
    if unified and tree.has_systemd and os.geteuid():
        return None, MemoryLimits(False, "systemd keeps no cgroup for you (`loginctl enable-linger` helps)")
    why = "you may not make cgroups here" if unified or first else "this system has no cgroups"
    return None, MemoryLimits(False, why)


def _find_delegated(tree: CgroupTree, own: Path) -> Path:
    """Return a group of version 2 whose children may have limits; raise OSError if there is none."""
    if tree.has_systemd:
        own = _scope(tree, own) or own
        return _allow_limits(own)
    for group in (own, *tree.parents(own)):
        with contextlib.suppress(OSError):
            return _allow_limits(group)
    raise PermissionError


def _allow_limits(group: Path) -> Path:
    """Allow limits in the children of a group; if this process is alone in it, move it to a child."""
    if not (os.access(group, os.W_OK) and os.access(group / "cgroup.procs", os.W_OK)):
        raise PermissionError
    if (group / "cgroup.procs").read_text().split() == [str(os.getpid())]:
        child = group / "openpai-server"
        child.mkdir(mode=0o700, exist_ok=True)
        (child / "cgroup.procs").write_text("0")
    if not _has_memory(group, "cgroup.subtree_control"):
        (group / "cgroup.subtree_control").write_text("+memory")
    return group


def _scope(tree: CgroupTree, own: Path) -> Path | None:
    """Let systemd move this process to a new group; None if it cannot, or the user may log out."""
    user, pid = os.geteuid(), os.getpid()
    is_kept = user == 0 or f"user@{user}.service" in own.parts or _lingers()
    program = shutil.which("busctl")
    if not is_kept or program is None:
        return None
    bus = ["--system"] if user == 0 else ["--user"]
    unit = f"openpai-tasks-{pid}.scope"
    values = ["StartTransientUnit", "ssa(sv)a(sa(sv))", unit, "fail"]
    values += ["3", "PIDs", "au", "1", str(pid), "Delegate", "b", "true"]
    values += ["CollectMode", "s", "inactive-or-failed", "0"]
    environment = {"XDG_RUNTIME_DIR": f"/run/user/{user}", **os.environ}
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        argv = [program, *bus, "call", *_MANAGER, *values]
        done = subprocess.run(argv, env=environment, capture_output=True, timeout=SCOPE_SECONDS, check=False)
        end = time.monotonic() + SCOPE_SECONDS
        while done.returncode == 0 and time.monotonic() < end:
            found = tree.own(V2)
            if found and found.name == unit:
                return found
            time.sleep(0.01)
    return None


def _lingers() -> bool:
    """Whether what the user has started continues when nobody is logged in."""
    with contextlib.suppress(KeyError):
        return Path("/var/lib/systemd/linger", pwd.getpwuid(os.geteuid()).pw_name).exists()
    return False


def _has_memory(group: Path, file: str = "cgroup.controllers") -> bool:
    return "memory" in _read(group / file).split()


def _read(path: Path) -> str:
    try:
        return os.fsdecode(path.read_bytes())
    except OSError:
        return ""
