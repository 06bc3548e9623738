"""Shared by the container tasks: output of commands, tables, questions."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TextIO

from invoke.exceptions import Exit

from openpai_tasks import render, sdk
from openpai_tasks.errors import ConfigError, Lost, PaiError
from openpai_tasks.tasks.framework import terminal
from openpai_tasks.tasks.framework.base import say
from openpai_tasks.tasks.framework.prompts import ask, ask_or_interrupt
from openpai_tasks.text.hints import command
from openpai_tasks.text.plain import one_line

if TYPE_CHECKING:
    from openpai_tasks.backends.base import Backend, TaskUsage, UsageLevel
    from openpai_tasks.protocol.models import JobInfo
    from openpai_tasks.render import Page, TextTable
    from openpai_tasks.sdk.containers.endpoints import Container, RunningJob
    from openpai_tasks.sdk.containers.fanout import CommandResult
    from openpai_tasks.sdk.containers.keepalive import ContainerStay
    from openpai_tasks.sdk.containers.top import ContainerUsage, GpuUsage
    from openpai_tasks.sdk.ssh.connection import Remote
    from openpai_tasks.sdk.ssh.hosts_file import Host
    from openpai_tasks.settings.config import Settings

_LOCK = threading.Lock()
HISTORY_HEADER = (
    *("TASK", "TIME", "CPU", "MOST CPU", "MEMORY", "MOST MEMORY"),
    *("GPU", "USE", "MOST USE", "GPU MEMORY", "MOST GPU MEMORY"),
)


def write_line(stream: TextIO, label: str, line: bytes) -> None:
    """Write a line of a container; several write at once."""
    with _LOCK:
        terminal.raw(stream, f"{one_line(label)}: ".encode() + line + b"\n")


def stdin_descriptor() -> int | None:
    """Return the descriptor of the input for a remote command; None if this program has no input."""
    try:
        return sys.stdin.fileno()
    except (AttributeError, OSError, ValueError):
        return None


@contextlib.contextmanager
def explain_lost_connection(client: Backend, found: RunningJob, container: Container) -> Iterator[None]:
    """Add the state of the container on the cluster to the error when the connection is lost."""
    try:
        yield
    except Lost as err:
        raise sdk.containers.explain_lost(client, found, container, err) from err


def exit_with(code: int) -> None:
    """Exit with the code of the remote command; return if it is 0."""
    if code:
        raise Exit(code=code)


def show_failures(ended: Sequence[CommandResult]) -> int:
    """Report the containers in which a command failed; return the highest exit code."""
    for one in ended:
        if one.error:
            say(f"error: {one.container}: {one.error}")
        elif one.code:
            say(f"{one.container}: exit code {one.code}")
    return max((one.code for one in ended), default=0)


def skip_ended(found: RunningJob, among: Sequence[Container]) -> tuple[Container, ...]:
    """Return the containers that have not ended, and report the others."""
    left = sdk.containers.not_over(found, among)
    over = [f"{one.label} is {one.state}" for one in among if one not in left]
    if over:
        say(f"skipped: {', '.join(over)}")
    return left


def split_command(name: str | None, command: str | None) -> tuple[str | None, str | None]:
    """Return the job and the command: a single word with spaces is a command, in the only container."""
    is_command = command is None and name is not None and " " in name
    return (None, name) if is_command else (name, command)


def split_words(task: str, name: str | None, words: Sequence[str] | None) -> tuple[str | None, list[str]]:
    """Return the job and the paths: a single word is a path, in the only container."""
    if name and not words:
        return None, [name]
    if not words:
        raise ConfigError(f"no path given; for example `{command(task, 'JOB', 'result.json')}`")
    return name, list(words)


def split_ports(
    name: str | None, ports: Sequence[str] | None, has_reverse: bool
) -> tuple[str | None, list[str]]:
    """Return the job and the ports: if the first word is a port too, they are those of the only container."""
    if name and (not (ports or has_reverse) or re.fullmatch(r"\d+(:\d+)?", name)):
        return None, [name, *(ports or ())]
    if not (ports or has_reverse):
        raise ConfigError(f"no port given; for example `{command('container.forward', 'JOB', '8888')}`")
    return name, list(ports or ())


def container_rows(found: Iterable[RunningJob]) -> list[dict[str, object]]:
    """Return a row for each container of several jobs."""
    return [{"job": one.job.name, **dataclasses.asdict(row)} for one in found for row in one.containers]


def usage_table(items: Iterable[ContainerUsage]) -> TextTable:
    """Return a row for each container; rare columns appear only if one of them has a value."""
    rows = [
        {
            "container": item.container,
            "cpu": f"{item.cpu:.2f} of {item.cpu_limit:g}"
            if item.cpu is not None and item.cpu_limit
            else None,
            "memory": _amount(item.memory, item.memory_limit),
            "scope": item.scope if item.scope == sdk.containers.MACHINE else "",
            "gpus": ", ".join(map(_gpu, item.gpus)),
            "note": item.error,
        }
        for item in items
    ]
    usual = ("container", "cpu", "memory", "gpus")
    columns = ("container", "cpu", "memory", "scope", "gpus", "note")
    return render.rows(rows, [name for name in columns if name in usual or any(row[name] for row in rows)])


def report_unrecorded(tasks: Sequence[TaskUsage]) -> None:
    """Say why there is nothing to show for some tasks, if so."""
    for why in dict.fromkeys(task.unrecorded for task in tasks if task.unrecorded):
        labels = [task.label for task in tasks if task.unrecorded == why]
        whose = f" of {', '.join(labels)}" if len(labels) < len(tasks) else ""
        say(f"the use{whose} was not recorded: {why}")
    if not any(task.samples or task.unrecorded for task in tasks):
        say("nothing was recorded: the first sample is taken a few seconds after a task has started")


def history_page(tasks: Sequence[TaskUsage]) -> Page:
    """Return charts of what tasks used over time, above a row for each task and its GPUs."""
    rows = [row for task in tasks if task.samples for row in _history_rows(task)]
    if not rows:
        return render.Page([])
    has_gpus = any(row[6] != "-" for row in rows)
    wide = len(HISTORY_HEADER) if has_gpus else 6
    table = render.TextTable(HISTORY_HEADER[:wide], [row[:wide] for row in rows])
    return render.Page([*render.usage_charts(tasks), table])


def _history_rows(task: TaskUsage) -> Iterator[list[str]]:
    first, last = task.samples[0], task.samples[-1]
    time = render.duration((last.time - first.time) / 1000 + last.seconds)
    cpu = _range([one.cpu for one in task.samples], "{:.2f}".format)
    memory = _range([one.memory for one in task.samples], lambda value: render.size(int(value)))
    indices = sorted({gpu.index for one in task.samples for gpu in one.gpus})
    for index in [*indices, *([] if indices else [None])]:
        found = [gpu for one in task.samples for gpu in one.gpus if gpu.index == index]
        busy = _range([gpu.percent for gpu in found], "{:.0f}%".format)
        filled = _range([gpu.memory_mb for gpu in found], lambda value: render.size(int(value) << 20))
        yield [task.label, time, *cpu, *memory, "-" if index is None else str(index), *busy, *filled]


def _range(levels: Sequence[UsageLevel | None], show: Callable[[float], str]) -> tuple[str, str]:
    """Return the mean and the maximum of values over time."""
    known = [level for level in levels if level]
    if not known:
        return "-", "-"
    mean = sum(level.mean for level in known) / len(known)
    return show(mean), show(max(level.maximum for level in known))


def _amount(used: int | None, limit: int | None) -> str | None:
    if used is None:
        return None
    return f"{render.size(used)} of {render.size(limit)}" if limit else render.size(used)


def _gpu(gpu: GpuUsage) -> str:
    busy = "?" if gpu.busy is None else f"{gpu.busy}%"
    memory = (
        f" {gpu.memory_mb / 1024:.1f} of {gpu.total_mb / 1024:.1f} GiB"
        if gpu.total_mb and gpu.memory_mb is not None
        else ""
    )
    return f"{gpu.index}: {busy}{memory}"


def find_containers(client: Backend, name: str, given: Settings, writes: bool) -> RunningJob:
    """Find the containers of the job; if that fails, remove the ssh hosts of jobs that have ended."""
    try:
        return sdk.containers.reach(client, name, given, forgets=writes)
    except PaiError:
        if writes:
            sdk.ssh.prune_hosts(client)
        raise


def plan_hosts(client: Backend, found: RunningJob, given: Settings) -> tuple[Host, ...]:
    """Choose the ssh host names of the running containers; report a name that the user already uses."""
    running = [one for one in found.containers if one.state == sdk.containers.RUNNING and one.host]
    targets = [(one.label, sdk.containers.ssh_target(client, found, one, given)) for one in running]
    if not targets:
        first = sdk.containers.first_running(found)
        sdk.containers.ssh_target(client, found, first, given)  # raises the reason
    taken, name = sdk.ssh.named_hosts(), sdk.ssh.job_host(client, found.job)
    if name in taken:
        say(f"{sdk.ssh.user_config_path()} already has a host {name!r}: use {name}-{targets[0][0]}")
    return sdk.ssh.plan_hosts(client, found.job, targets, taken)


def include_hosts(yes: bool) -> None:
    """Make OpenSSH and Fabric read our file, after asking once."""
    own = sdk.ssh.fabric_settings()
    ssh, fabric = not sdk.ssh.is_included(), own is None and not sdk.ssh.is_fabric_configured()
    if own and not sdk.ssh.is_fabric_configured():
        say(sdk.ssh.fabric_manual(own))
    if not ssh and not fabric:
        return
    by_hand = f"to let ssh find them, {sdk.ssh.manual_steps()}" if ssh else "to let Fabric find them"
    files = " and ".join([str(sdk.ssh.user_config_path())] * ssh + ["~/.fabric.py"] * fabric)
    if not yes and not sys.stdin.isatty():
        say(f"{by_hand}{'; or' if ssh else ','} add --yes")
    elif not yes and not ask(f"let {files} read it?"):
        say(f"nothing else was changed; {by_hand}{'' if ssh else ', add --yes'}")
    else:
        if ssh:
            say(f"{sdk.ssh.include_hosts()} includes it now")
        if fabric:
            say(f"{sdk.ssh.configure_fabric()} makes Fabric read it too")


def show_stay(name: str, stay: ContainerStay | None) -> None:
    """Report how long an interactive container stays, and whether its GPUs are idle; None prints nothing."""
    if stay is None:
        return
    say(f"it runs {_end(stay)}; `{command('container.extend', name)}` keeps it longer")
    show_idle(name, stay, "its GPUs")


def _end(stay: ContainerStay) -> str:
    """Return until when a container runs, in words."""
    left = max(0, stay.left)
    moment, today = (render.when(int(now * 1000))[:16] for now in (time.time() + left, time.time()))
    moment = moment[11:] if moment[:10] == today[:10] else moment
    idle = f", or until it is idle for {render.duration(stay.idle_limit)}" if stay.idle_limit else ""
    return f"until {moment} (for {render.duration(left)}){idle}"


def announce_end(seconds: int, idle_seconds: int) -> None:
    """Say before a container starts when it will end by itself."""
    idle = f" without a login and without CPU or GPU use (--idle {sdk.amounts.NEVER} keeps it)"
    earlier = f", or earlier after {render.duration(idle_seconds)}{idle}" if idle_seconds else ""
    say(f"it ends by itself after {render.duration(seconds)} (--timeout){earlier}")


def announce_failure(client: Backend, job: JobInfo) -> None:
    """Say why a job has failed whose environment is kept, and until when."""
    if job.kept_until:
        why = one_line(job.cause or job.message)
        say(f"job {job.name} failed: {why}; {sdk.jobs.describe_kept(client, job)}")


def read_stay_again(remote: Remote) -> ContainerStay | None:
    """Read how long the container stays now, as a login may have extended it; None if it is gone."""
    with contextlib.suppress(PaiError):
        return sdk.containers.read_stay(remote)
    return None


def leave(client: Backend, name: str, stay: ContainerStay | None) -> None:
    """After a shell, ask whether to stop the container; without a terminal, only say until when it runs."""
    if sdk.jobs.find(client, name).final:
        return
    if sys.stdin.isatty() and ask_or_interrupt(f"stop job {name}?"):
        sdk.jobs.stop(client, [name])
        say(f"job {name} stopped")
        return
    end = f"runs {_end(stay)}" if stay else "continues"
    say(
        f"job {name} {end}; `{command('container.ssh', name)}` opens a shell again, "
        f"`{command('container.stop', name)}` stops it"
    )


def show_idle(name: str, stay: ContainerStay, whose: str) -> None:
    """Warn if the GPUs of a container are idle."""
    if stay.idle is not None:
        idle = render.duration(stay.idle)
        say(f"warning: {whose} have been idle for {idle}; `{command('container.stop', name)}` frees them")


@contextlib.contextmanager
def offer_stop_on_interrupt(client: Backend, name: str) -> Iterator[None]:
    """On Ctrl-C, end the wait; stop the job only if the user agrees."""
    try:
        yield
    except KeyboardInterrupt:
        can_ask = sys.stdin.isatty()
        if can_ask:
            say("")  # end the line with the ^C
        if can_ask and ask_or_interrupt(f"stop job {name} too?"):
            sdk.jobs.stop(client, [name])
            say(f"job {name} stopped")
        else:
            ways = (
                f"`{command('container.ssh', name)}` opens a shell when it runs, "
                f"`{command('container.stop', name)}` stops it"
            )
            say("", f"job {name} continues; {ways}")
        raise
