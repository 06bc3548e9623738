"""One login of a user at a time: of simultaneous logins, OpenPAI keeps only one."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import time
from collections.abc import Iterator
from pathlib import Path

from openpai_tasks.backends.base import Say
from openpai_tasks.errors import ConfigError
from openpai_tasks.net import web_address
from openpai_tasks.settings.digests import sha256
from openpai_tasks.settings.home import home, locked
from openpai_tasks.settings.registry import Cluster

SILENT_SECONDS = 2.0  # the user is notified of a longer wait
LONGEST_SECONDS = 60.0  # a suspended command must not block all others
POLL_SECONDS = 0.05


@contextlib.contextmanager
def login_lock(cluster: Cluster, say: Say) -> Iterator[None]:
    """Hold the lock for logins of the cluster's user; continue without it if it cannot be taken."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(ConfigError):  # the home folder is not writable
            stack.enter_context(locked(_path(cluster), functools.partial(_wait, cluster.alias, say)))
        yield


def _path(cluster: Cluster) -> Path:
    """Return the path of the lock, which all aliases of a server share."""
    who = f"{cluster.user} {web_address.normal(cluster.uri)}"
    return home() / "logins" / sha256(who.encode())[:16]


def _wait(alias: str, say: Say, handle: int) -> None:
    begun, is_silent = time.monotonic(), True
    while time.monotonic() - begun < LONGEST_SECONDS:
        try:
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(POLL_SECONDS)
        except OSError:
            return  # the file system does not support locks
        if is_silent and time.monotonic() - begun > SILENT_SECONDS:
            is_silent = False
            say(f"waiting for another command that logs in to cluster {alias!r}")
