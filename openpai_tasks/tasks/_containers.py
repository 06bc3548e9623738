"""What the tasks of containers share: bytes to this terminal, tables, questions."""

from __future__ import annotations

import shlex
import sys
import threading

from invoke.exceptions import Exit

from openpai_tasks.errors import ConfigError, Lost, PaiError
from openpai_tasks.lazy import lazy
from openpai_tasks.tasks._base import say
from openpai_tasks.tasks._listings import confirm

forwarding = lazy("openpai_tasks.sdk.forwarding")
reaching = lazy("openpai_tasks.sdk.reaching")
render = lazy("openpai_tasks.render")
ssh_config = lazy("openpai_tasks.sdk.ssh_config")
users_ssh = lazy("openpai_tasks.sdk.users_ssh")

_LOCK = threading.Lock()


def out(piece):
    _write(sys.stdout, piece)


def err(piece):
    _write(sys.stderr, piece)


def out_line(label, line):
    with _LOCK:
        _write(sys.stdout, f"{label}: ".encode() + line + b"\n")


def err_line(label, line):
    with _LOCK:
        _write(sys.stderr, f"{label}: ".encode() + line + b"\n")


def _write(stream, piece):
    stream.flush()
    stream.buffer.write(piece)
    stream.buffer.flush()


def stdin():
    """What a command may read; nothing where this program has no input."""
    try:
        return sys.stdin.fileno()
    except (AttributeError, OSError, ValueError):
        return None


def command_of(command, rest):
    """The command as one text for the shell over there."""
    given = command if command is not None else shlex.join(rest)
    if not given.strip():
        raise ConfigError("which command? `container.run JOB -- nvidia-smi`")
    return given


def surely(client, found, container, act, *args):
    """Do it; a connection that is lost meanwhile is explained by what the cluster knows."""
    try:
        return act(*args)
    except Lost as err_:
        raise reaching.lost(client, found, container, err_) from err_


def leave(code):
    """End with the code of what ran over there."""
    if code:
        raise Exit(code=code)


def tell_ended(ended):
    """Say how it went where it did not go well; the highest exit code."""
    for one in ended:
        if one.error:
            say(f"error: {one.container}: {one.error}")
        elif one.code:
            say(f"{one.container}: exit code {one.code}")
    return max((one.code for one in ended), default=0)


def forward(client, name, given, role, index, ports):
    """The forward of a job's container, found anew for every connection: it may have been started again."""

    def connect():
        found = reaching.reach(client, name, given)
        return reaching.open_remote(client, found, reaching.one(found, role, index), given)

    def over():
        job = client.job(key)
        return f"job {job.name} is {job.state}" if job.final else ""

    key = reaching.reach(client, name, given).job.key
    return forwarding.Forward(connect, ports, say, over)


def usages(items):
    """A line for each container, GPUs below each other."""
    rows = [
        {
            "container": item.container,
            "cpu": f"{item.cpu:.2f} of {item.cpu_limit:g}"
            if item.cpu is not None and item.cpu_limit
            else None,
            "memory": _of(item.memory, item.memory_limit),
            "gpus": ", ".join(map(_gpu, item.gpus)),
            "note": item.error,
        }
        for item in items
    ]
    columns = ["container", "cpu", "memory", "gpus", *(["note"] if any(row["note"] for row in rows) else [])]
    return render.table(rows, columns)


def _of(used, limit):
    if used is None:
        return None
    return f"{render.size(used)} of {render.size(limit)}" if limit else render.size(used)


def _gpu(gpu):
    busy = "?" if gpu.busy is None else f"{gpu.busy}%"
    memory = (
        f" {gpu.memory_mb / 1024:.1f} of {gpu.total_mb / 1024:.1f} GiB"
        if gpu.total_mb and gpu.memory_mb is not None
        else ""
    )
    return f"{gpu.index}: {busy}{memory}"


def reached(client, name, given, writes):
    """The job; one that is over leaves nothing in our file."""
    try:
        return reaching.reach(client, name, given)
    except PaiError:
        if writes:
            ssh_config.prune(client)
        raise


def hosts(client, found, given):
    running = [one for one in found.containers if one.state == reaching.RUNNING and one.host]
    targets = [(one.label, reaching.target(client, found, one, given)) for one in running]
    if not targets:
        reaching.target(client, found, found.containers[0], given)  # says why there is none
    taken, name = users_ssh.names(), ssh_config.job_host(client, found.job)
    if name in taken:
        say(f"{users_ssh.config()} has a host {name!r} of its own, which stays: use {name}-{targets[0][0]}")
    return ssh_config.hosts(client, found.job, targets, taken)


def include(yes):
    """Have OpenSSH's own file, and Fabric, read ours; asked for once."""
    has_own = users_ssh.has_fabric_settings()
    files = [users_ssh.config()] * (not users_ssh.is_included())
    fabric = not has_own and not users_ssh.is_fabric_told()
    wanted = " and ".join(map(str, files + ["~/.fabric.py"] * fabric))
    if not wanted:
        return
    if not yes:
        if not sys.stdin.isatty():
            way = f"so that ssh finds them, {users_ssh.manual()}" if files else "so that Fabric finds them"
            say(f"{way}; or say --yes" if files else f"{way}, say --yes")
            return
        confirm(f"have {wanted} read it?", "nothing else was changed")
    if files:
        say(f"{users_ssh.include()} includes it now")
    if fabric:
        say(f"{users_ssh.tell_fabric()} has Fabric read it too")
    elif has_own:
        say(f"you have settings for Fabric: there, `fab -S {ssh_config.config_path()} -H HOST` finds them")
