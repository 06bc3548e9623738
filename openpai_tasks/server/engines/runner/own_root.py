"""A root folder for one task: that of the machine, with one more link.

An ordinary user may mount only in a user namespace. There, the user's and the group's ids are what they were;
all others are shown as nobody's, and programs that change the user (sudo) do not work.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence

_NEWNS, _NEWUSER = 0x20000, 0x10000000
_RDONLY, _NOSUID, _NODEV, _REMOUNT, _BIND, _REC, _SLAVE = 1, 2, 4, 32, 4096, 16384, 1 << 19
_DETACH = 2
_LIBC = ctypes.CDLL(None, use_errno=True)


def enter(folder: str, path: str) -> None:
    """Move this process to a root in which ``path``, which does not exist, links to FOLDER/mounts/PATH.

    The root is a small file system to which the folders of the old root are bound. It is read-only: a file
    that is written to it would be lost.
    """
    uid, gid, place = os.geteuid(), os.getegid(), os.path.realpath(folder)
    _call("unshare", _NEWNS | (_NEWUSER if uid else 0))
    if uid:
        _write("setgroups", "deny")
        _write("uid_map", f"{uid} {uid} 1")
        _write("gid_map", f"{gid} {gid} 1")
    _mount("none", "/", _REC | _SLAVE)  # what is mounted on the machine later is mounted here, too
    _mount("tmpfs", place, _NOSUID | _NODEV, "mode=755")
    _fill("", place, path.strip("/").split("/"), f"{folder}/mounts{path}")
    _call("umount2", os.fsencode(place + place), _DETACH)  # the new root, bound with the folder
    os.chdir(place)
    _call("pivot_root", b".", b".")
    _call("umount2", b".", _DETACH)  # the old root, which is on top of the new one
    _mount("none", "/", _REMOUNT | _BIND | _RDONLY | _NOSUID | _NODEV)
    os.chdir(folder)


def _fill(old: str, new: str, names: Sequence[str], target: str) -> None:
    """Bind what is in the folder ``old`` to the empty folder ``new``, and add the link."""
    first, *rest = names
    for entry in os.scandir(old or "/") if os.path.isdir(old or "/") else ():
        place = f"{new}/{entry.name}"
        if entry.name == first:
            continue
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), place)
            continue
        if entry.is_dir():
            os.mkdir(place)
        else:
            os.close(os.open(place, os.O_CREAT | os.O_EXCL))
        _mount(entry.path, place, _BIND | _REC)
    if rest:
        os.mkdir(f"{new}/{first}")
        _fill(f"{old}/{first}", f"{new}/{first}", rest, target)
    else:
        os.symlink(target, f"{new}/{first}")


def _mount(source: str, target: str, flags: int, data: str = "") -> None:
    kind = source.encode() if data else None
    _call("mount", os.fsencode(source), os.fsencode(target), kind, ctypes.c_ulong(flags), data.encode())


def _call(name: str, *arguments: object) -> None:
    if getattr(_LIBC, name)(*arguments) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def _write(name: str, text: str) -> None:
    with open(f"/proc/self/{name}", "w") as file:
        file.write(text)


if __name__ == "__main__":  # whether it works on this machine
    enter(*sys.argv[1:])
