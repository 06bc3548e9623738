"""Host keys, host names and keys of jobs, which are forgotten when their job has ended.

This happens when a job is looked up. When a container is first connected to, the cluster is asked once which
of the user's jobs are active. A host name is removed before its host key, and a host key stays while a name
needs it: otherwise another machine that got the address would be accepted as the job.
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

_UNSAFE = re.compile(r"[^A-Za-z0-9._~-]")
_LOCK = threading.Lock()
_ASKED: weakref.WeakSet[Backend] = weakref.WeakSet()


def known_hosts(alias: str) -> Path:
    """Return the file with the host keys of a cluster's containers."""
    return home() / "known_hosts" / alias


def host_key_name(*parts: str) -> str:
    """Return the name under which a host key is kept: job, task and attempt."""
    return _UNSAFE.sub("_", "-".join(parts))


def job_key_path(alias: str, job_key: str) -> Path:
    """Return the path of the key that a cluster made for a job."""
    return home() / "keys" / alias / job_key.replace("/", "_")


def forget_job(alias: str, job_key: str, names: Collection[str] = ()) -> None:
    """Forget an ended job; ``names`` are those of its host keys, besides those in its block."""
    with contextlib.suppress(PaiError, OSError):  # it then stays
        gone = host_blocks.drop_blocks(lambda job: job == (alias, job_key))
        named = {name for _, text in gone for name in host_blocks.key_aliases(text)}.union(names)
        _drop_host_keys(alias, lambda name: name in named)
        job_key_path(alias, job_key).unlink(missing_ok=True)


def forget_ended_jobs(client: Backend) -> None:
    """Forget all ended jobs of the user with one request; ignore a cluster that does not answer."""
    alias, mine = client.cluster.unique_name, f"{client.user}~"
    with _LOCK:
        if client in _ASKED:
            return
        _ASKED.add(client)
    with contextlib.suppress(PaiError, OSError):
        seen = {job for job, _ in host_blocks.read_blocks() if job[0] == alias and job[1].startswith(mine)}
        active = client.jobs(username=client.user, state=states.UNFINISHED)
        over = seen - {(alias, job.key) for job in active}
        host_blocks.drop_blocks(lambda job: job in over)
        active_prefixes = tuple(f"{host_key_name(job.key)}-" for job in active)
        _drop_host_keys(
            alias, lambda name: name.startswith(host_key_name(mine)) and not name.startswith(active_prefixes)
        )
        kept = {job_key_path(alias, job.key) for job in active}
        for path in job_key_path(alias, mine).parent.glob(f"{mine}*"):
            if path not in kept:
                path.unlink(missing_ok=True)


def forget_cluster(alias: str) -> None:
    """Forget all jobs of a cluster."""
    with contextlib.suppress(PaiError, OSError):
        host_blocks.drop_blocks(lambda job: job[0] == alias)
        file = known_hosts(alias)
        for path in (file, file.with_name(f".{file.name}.lock")):
            path.unlink(missing_ok=True)
        for kind in ("keys", "notebooks"):
            shutil.rmtree(home() / kind / alias, ignore_errors=True)


def _drop_host_keys(alias: str, is_over: Callable[[str], bool]) -> None:
    """Remove lines from the file by their names; write it only if any match."""
    file = known_hosts(alias)
    if not file.exists():
        return
    with locked(file):
        lines = read(file).splitlines(keepends=True)
        named = [text for job, text in host_blocks.read_blocks() if job[0] == alias]
        needed = {name for text in named for name in host_blocks.key_aliases(text)}
        left = [line for line in lines if (name := line.partition(" ")[0]) in needed or not is_over(name)]
        if len(left) < len(lines):
            replace(file, "".join(left))
