"""What was kept for containers, their host keys and keys that a cluster made, goes when their job is over.

That a job is over is seen when somebody asks for it. And when a container is met for the first time, the
cluster is asked once which of the user's jobs go on.
"""

from __future__ import annotations

import contextlib
import re
import threading
import weakref
from collections.abc import Callable, Collection
from pathlib import Path

from openpai_tasks.client import Client
from openpai_tasks.errors import PaiError
from openpai_tasks.home import home, locked
from openpai_tasks.sdk import jobs
from openpai_tasks.sdk.user_files import read, replace

_ODD = re.compile(r"[^A-Za-z0-9._~-]")
_LOCK = threading.Lock()
_ASKED: weakref.WeakSet[Client] = weakref.WeakSet()


def known_hosts(alias: str) -> Path:
    """The file with the host keys of a cluster's containers."""
    return home() / "known_hosts" / alias


def kept_name(*parts: str) -> str:
    """What a host key is kept under: the job, the task, its try."""
    return _ODD.sub("_", "-".join(parts))


def job_key_path(alias: str, job_key: str) -> Path:
    """Where the key that a cluster made for a job is kept."""
    return home() / "keys" / alias / job_key.replace("/", "_")


def forget(alias: str, job_key: str, names: Collection[str]) -> None:
    """What was kept for a job that is over: its host keys by their names, and its own key."""
    with contextlib.suppress(PaiError, OSError):  # it is kept then, as before
        _drop(alias, lambda name: name in names)
        job_key_path(alias, job_key).unlink(missing_ok=True)


def forget_over(client: Client) -> None:
    """The same of all of the user's jobs, by one question; a cluster that does not answer is let be."""
    alias, mine = client.cluster.alias, f"{client.user}~"
    with _LOCK:
        if client in _ASKED:
            return
        _ASKED.add(client)
    with contextlib.suppress(PaiError, OSError):
        active = client.jobs(username=client.user, state=jobs.UNFINISHED, limit=jobs.ALL)
        going = tuple(f"{kept_name(job.key)}-" for job in active)
        _drop(alias, lambda name: name.startswith(kept_name(mine)) and not name.startswith(going))
        kept = {job_key_path(alias, job.key) for job in active}
        for path in job_key_path(alias, mine).parent.glob(f"{mine}*"):
            if path not in kept:
                path.unlink(missing_ok=True)


def _drop(alias: str, is_over: Callable[[str], bool]) -> None:
    """Take lines out of the file, by the names they begin with; it is written only if there are some."""
    file = known_hosts(alias)
    if not file.exists():
        return
    with locked(file):
        lines = read(file).splitlines(keepends=True)
        left = [line for line in lines if not is_over(line.partition(" ")[0])]
        if len(left) < len(lines):
            replace(file, "".join(left))
