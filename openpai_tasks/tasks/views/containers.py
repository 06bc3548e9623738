"""Shared by the tasks of containers: output of commands, tables, questions."""

from __future__ import annotations

import sys
import threading

from invoke.exceptions import Exit

from openpai_tasks import render, sdk
from openpai_tasks.errors import Lost, PaiError
from openpai_tasks.plain_text import one_line
from openpai_tasks.tasks.framework import terminal
from openpai_tasks.tasks.framework.base import say
from openpai_tasks.tasks.framework.prompts import ask

_LOCK = threading.Lock()


def out(piece):
    terminal.raw(sys.stdout, piece)


def err(piece):
    terminal.raw(sys.stderr, piece)


def out_line(label, line):
    _write_line(sys.stdout, label, line)


def err_line(label, line):
    _write_line(sys.stderr, label, line)


def _write_line(stream, label, line):
    with _LOCK:
        terminal.raw(stream, f"{one_line(label)}: ".encode() + line + b"\n")


def stdin():
    """Return the descriptor that a command may read; None if this program has no input."""
    try:
        return sys.stdin.fileno()
    except (AttributeError, OSError, ValueError):
        return None


def surely(client, found, container, act, *args):
    """Call ``act``; explain a lost connection by the state of the container on the cluster."""
    try:
        return act(*args)
    except Lost as err_:
        raise sdk.containers.explain_lost(client, found, container, err_) from err_


def leave(code):
    """End with the exit code of the remote command."""
    if code:
        raise Exit(code=code)


def tell_ended(ended):
    """Report failures; return the highest exit code."""
    for one in ended:
        if one.error:
            say(f"error: {one.container}: {one.error}")
        elif one.code:
            say(f"{one.container}: exit code {one.code}")
    return max((one.code for one in ended), default=0)


def forward(client, found, container, given, ports):
    """Return a forward that looks up the container for every connection: it may have been restarted."""

    def connect():
        now = sdk.containers.reach(client, found.job.key, given)
        same = sdk.containers.first_running(now, container.role, container.index)
        return sdk.containers.open_remote(client, now, same, given)

    def over():
        return sdk.containers.explain_end(client, found, container)

    return sdk.containers.Forward(connect, ports, say, over)


def place(found, container):
    """Name the job of a port, and its container if there are several."""
    job = f"job {found.job.name}"
    return f"{container.label} of {job}" if len(found.containers) > 1 else job


def not_over(found, among):
    """Return the containers that are not over, and report the others."""
    left = sdk.containers.not_over(found, among)
    over = [f"{one.label} is {one.state}" for one in among if one not in left]
    if over:
        say(f"left out: {', '.join(over)}")
    return left


def usages(items):
    """A row for each container; columns that are rarely used only if they have a value."""
    rows = [
        {
            "container": item.container,
            "cpu": f"{item.cpu:.2f} of {item.cpu_limit:g}"
            if item.cpu is not None and item.cpu_limit
            else None,
            "memory": _of(item.memory, item.memory_limit),
            "scope": item.scope if item.scope == sdk.containers.MACHINE else "",
            "gpus": ", ".join(map(_gpu, item.gpus)),
            "note": item.error,
        }
        for item in items
    ]
    rare = [name for name in ("scope", "note") if any(row[name] for row in rows)]
    columns = ["container", "cpu", "memory", "scope", "gpus", "note"]
    return render.rows(rows, [name for name in columns if name in rare or name not in ("scope", "note")])


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
    """Find the containers of the job; remove the ssh hosts of one that is over."""
    try:
        return sdk.containers.reach(client, name, given, forgets=writes)
    except PaiError:
        if writes:
            sdk.ssh.prune_hosts(client)
        raise


def hosts(client, found, given):
    running = [one for one in found.containers if one.state == sdk.containers.RUNNING and one.host]
    targets = [(one.label, sdk.containers.ssh_target(client, found, one, given)) for one in running]
    if not targets:
        sdk.containers.ssh_target(
            client, found, sdk.containers.first_running(found), given
        )  # raises the reason
    taken, name = sdk.ssh.named_hosts(), sdk.ssh.job_host(client, found.job)
    if name in taken:
        say(f"{sdk.ssh.user_config_path()} already has a host {name!r}: use {name}-{targets[0][0]}")
    return sdk.ssh.plan_hosts(client, found.job, targets, taken)


def tell_moved(job, moved):
    """Report host names that now mean this job instead of another one that still runs."""
    for one in moved:
        say(f"{', '.join(one.names)}: means job {job.key} now, and no longer {one.job_key} on {one.cluster}")


def include(yes):
    """Make OpenSSH and Fabric read our file, after asking once."""
    own = sdk.ssh.fabric_settings()
    ssh, fabric = not sdk.ssh.is_included(), own is None and not sdk.ssh.is_fabric_configured()
    if own and not sdk.ssh.is_fabric_configured():
        say(sdk.ssh.fabric_manual(own))
    if not ssh and not fabric:
        return
    by_hand = f"so that ssh finds them, {sdk.ssh.manual_steps()}" if ssh else "so that Fabric finds them"
    files = " and ".join([str(sdk.ssh.user_config_path())] * ssh + ["~/.fabric.py"] * fabric)
    if not yes and not sys.stdin.isatty():
        say(f"{by_hand}{'; or' if ssh else ','} say --yes")
    elif not yes and not ask(f"have {files} read it?"):
        say(f"nothing else was changed; {by_hand}{'' if ssh else ', say --yes'}")
    else:
        if ssh:
            say(f"{sdk.ssh.include_hosts()} includes it now")
        if fabric:
            say(f"{sdk.ssh.configure_fabric()} has Fabric read it too")
