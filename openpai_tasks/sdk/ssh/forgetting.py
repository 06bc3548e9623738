"""What was kept for containers goes when their job is over: names, host keys, keys that a cluster made.

That a job is over is seen when somebody asks for it. And when a container is met for the first time, the
cluster is asked once which of the user's jobs go on. A name for ssh goes before its host key, and a host key
stays as long as a name needs it: without the key, whoever has the address by now would be taken for the job.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import threading
import weakref
from collections.abc import Callable, Collection
from pathlib import Path

from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import PaiError
from openpai_tasks.protocol import states
from openpai_tasks.sdk.ssh import host_blocks
from openpai_tasks.sdk.ssh.user_files import read, replace
from openpai_tasks.settings.home import home, locked

_ODD = re.compile(r"[^A-Za-z0-9._~-]")
_LOCK = threading.Lock()
_ASKED: weakref.WeakSet[Backend] = weakref.WeakSet()


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
    """All that was kept for a job that is over; the names are those of its host keys."""
    with contextlib.suppress(PaiError, OSError):  # it is kept then, as before
        gone = host_blocks.drop(lambda whose: whose == (alias, job_key))
        named = {name for _, text in gone for name in host_blocks.kept_under(text)}
        forget_keys(alias, job_key, named.union(names))


def forget_keys(alias: str, job_key: str, names: Collection[str]) -> None:
    """The keys of a job that has no block any more: those of its hosts, and its own."""
    with contextlib.suppress(PaiError, OSError):
        _drop(alias, lambda name: name in names)
        job_key_path(alias, job_key).unlink(missing_ok=True)


def forget_over(client: Backend) -> None:
    """The same of all of the user's jobs, by one question; a cluster that does not answer is let be."""
    alias, mine = client.cluster.shelf, f"{client.user}~"
    with _LOCK:
        if client in _ASKED:
            return
        _ASKED.add(client)
    with contextlib.suppress(PaiError, OSError):
        seen = {whose for whose, _ in host_blocks.kept() if whose[0] == alias and whose[1].startswith(mine)}
        active = client.jobs(username=client.user, state=states.UNFINISHED)
        over = seen - {(alias, job.key) for job in active}
        host_blocks.drop(lambda whose: whose in over)
        going = tuple(f"{kept_name(job.key)}-" for job in active)
        _drop(alias, lambda name: name.startswith(kept_name(mine)) and not name.startswith(going))
        kept = {job_key_path(alias, job.key) for job in active}
        for path in job_key_path(alias, mine).parent.glob(f"{mine}*"):
            if path not in kept:
                path.unlink(missing_ok=True)


def forget_cluster(alias: str) -> None:
    """All that was kept for the jobs of a cluster."""
    with contextlib.suppress(PaiError, OSError):
        host_blocks.drop(lambda whose: whose[0] == alias)
        file = known_hosts(alias)
        for path in (file, file.with_name(f".{file.name}.lock")):
            path.unlink(missing_ok=True)
        for kind in ("keys", "notebooks"):
            shutil.rmtree(home() / kind / alias, ignore_errors=True)


def _drop(alias: str, is_over: Callable[[str], bool]) -> None:
    """Take lines out of the file, by the names they begin with; it is written only if there are some."""
    file = known_hosts(alias)
    if not file.exists():
        return
    with locked(file):
        lines = read(file).splitlines(keepends=True)
        named = [text for whose, text in host_blocks.kept() if whose[0] == alias]
        needed = {name for text in named for name in host_blocks.kept_under(text)}
        left = [line for line in lines if (name := line.partition(" ")[0]) in needed or not is_over(name)]
        if len(left) < len(lines):
            replace(file, "".join(left))
