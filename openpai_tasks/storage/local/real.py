"""Where a path of this machine really leads, with every link followed."""

from __future__ import annotations

import os

from openpai_tasks.storage.store import join


def real_path(path: str) -> str:
    """As ``os.path.realpath``; Linux is asked in three calls, which does not take longer and longer below."""
    found, missing = path, []
    while not os.path.lexists(found) and found != os.path.dirname(found):
        found, name = os.path.split(found)
        missing += [name] if name else []
    if {os.curdir, os.pardir} & {*missing}:
        return os.path.realpath(path)
    return join(_existing(found), "/".join(reversed(missing))) if missing else _existing(found)


def _existing(path: str) -> str:
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (AttributeError, OSError):  # another system, or a link that leads nowhere
        return os.path.realpath(path)
    try:
        told = os.readlink(f"/proc/self/fd/{handle}")
    except OSError:  # no /proc here, or too long a path
        return os.path.realpath(path)
    finally:
        os.close(handle)
    return told if told.startswith("/") and os.path.lexists(told) else os.path.realpath(path)
