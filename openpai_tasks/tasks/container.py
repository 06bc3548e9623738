"""Into the containers of a running job: a shell, commands, files, ports; and images for them."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path

from openpai_tasks.errors import ConfigError
from openpai_tasks.lazy import lazy
from openpai_tasks.tasks.framework import terminal
from openpai_tasks.tasks.framework.base import connect, say, settings, show, task, the_command
from openpai_tasks.tasks.framework.screen import Screen
from openpai_tasks.tasks.framework.signals import terminable

container_files = lazy("openpai_tasks.sdk.containers.files")
everywhere = lazy("openpai_tasks.sdk.containers.fanout")
files = lazy("openpai_tasks.sdk.files.operations")
forwarding = lazy("openpai_tasks.sdk.containers.forwarding")
interactive = lazy("openpai_tasks.sdk.containers.interactive")
jobs = lazy("openpai_tasks.sdk.jobs.lookup")
keys = lazy("openpai_tasks.sdk.ssh.keys")
listings = lazy("openpai_tasks.tasks.views.listings")
reaching = lazy("openpai_tasks.sdk.containers.endpoints")
render = lazy("openpai_tasks.render")
sessions = lazy("openpai_tasks.sdk.containers.sessions")
shown = lazy("openpai_tasks.tasks.views.containers")
ssh_config_ = lazy("openpai_tasks.sdk.ssh.hosts_file")
staying = lazy("openpai_tasks.tasks.views.interactive")
top_ = lazy("openpai_tasks.sdk.containers.top")
transfers = lazy("openpai_tasks.tasks.views.transfers")

CONTAINERS = ("role", "index", "state", "host", "port", "user")
KEY = ("job", "key")

WHICH = {
    "name": "the job's name, or user~name for somebody else's",
    "role": "only this task role; else the first that runs",
    "index": "only this task of the role",
}
COPYING = {
    "checksum": "compare contents, not size and time, to see what is there already",
    "workers": "how many files travel at once",
    "preview": "only tell what would be done",
}


@task(name="list", positional=["name"], help={"name": WHICH["name"]})
def list_(c, name, cluster_alias=None, output=None):
    """Show a job's containers, and where each takes ssh."""
    found = reaching.reach(connect(c, cluster_alias), name, settings(c))
    show(c, list(found.containers), CONTAINERS, output)


@task(
    positional=["name"],
    kinds={"index": int},
    help={**WHICH, "print-command": "only print the ssh command that does the same"},
)
def ssh(c, name, role=None, index=None, print_command=False, cluster_alias=None):
    """Open a shell in a container; the exit code is the shell's."""
    client, given = connect(c, cluster_alias), settings(c)
    found = reaching.reach(client, name, given)
    container = reaching.one(found, role, index)
    if print_command:
        terminal.exact(shlex.join(ssh_config_.argv(reaching.target(client, found, container, given))) + "\n")
        return
    with reaching.open_soon(client, found, container, given, say) as remote:
        if sys.stdin.isatty():
            say(f"{container.label} of {found.job.name}; `exit` leaves it")
        staying.tell_time(found.job.name, interactive.stay(remote))
        code = shown.surely(client, found, container, sessions.shell, remote, 0, shown.out, shown.err)
    shown.leave(code)


@task(
    positional=["name", "command"],
    kinds={"index": int},
    help={
        **WHICH,
        "command": "what to run, in quotes; or everything behind --",
        "all": "in all containers (of the role) at once, each line with its container in front",
    },
)
def run(c, name, command=None, role=None, index=None, all=False, cluster_alias=None):
    """Run a command in a container, or in all of them; the exit code is the command's."""
    wanted = the_command(command)
    if not wanted.strip():
        raise ConfigError("which command? `container.run JOB -- nvidia-smi`")
    client, given = connect(c, cluster_alias), settings(c)
    found = reaching.reach(client, name, given)
    if all:
        meant = shown.not_over(found, reaching.chosen(found, role, index))
        with everywhere.Crowd(client, found, meant, given) as crowd, terminable():
            ended = crowd.run(wanted, shown.out_line, shown.err_line)
        shown.leave(shown.tell_ended(ended))
        return
    container = reaching.one(found, role, index)
    with reaching.open_soon(client, found, container, given, say) as remote, terminable():
        talk = (remote, wanted, shown.out, shown.err, shown.stdin())
        code = shown.surely(client, found, container, sessions.run, *talk)
    shown.leave(code)


@task(
    positional=["name", "paths"],
    iterable=["paths"],
    kinds={"index": int, "workers": int},
    help={
        **WHICH,
        **COPYING,
        "paths": "sources in the container and, last, the target; one alone comes here",
    },
)
def get(
    c,
    name,
    paths,
    role=None,
    index=None,
    checksum=False,
    workers=6,
    preview=False,
    cluster_alias=None,
    output=None,
):
    """Copy files and folders from a container; run again, it continues."""
    _copy(
        c, container_files.get, name, paths, role, index, (workers, checksum, preview), cluster_alias, output
    )


@task(
    positional=["name", "paths"],
    iterable=["paths"],
    kinds={"index": int, "workers": int},
    help={
        **WHICH,
        **COPYING,
        "paths": "sources and, last, the target in the container; one alone goes where a login begins",
    },
)
def put(
    c,
    name,
    paths,
    role=None,
    index=None,
    checksum=False,
    workers=6,
    preview=False,
    cluster_alias=None,
    output=None,
):
    """Copy files and folders into a container; run again, it continues."""
    _copy(
        c, container_files.put, name, paths, role, index, (workers, checksum, preview), cluster_alias, output
    )


@task(
    positional=["name", "ports"],
    iterable=["ports"],
    kinds={"index": int},
    help={**WHICH, "ports": "ports of the container, PORT or PORT:LOCAL where it is another one here"},
)
def forward(c, name, ports, role=None, index=None, cluster_alias=None):
    """Make ports of a container ports of this machine, until Ctrl-C or the job's end."""
    wanted = [forwarding.port(text) for text in ports]
    client, given = connect(c, cluster_alias), settings(c)
    found = reaching.reach(client, name, given)
    container = reaching.one(found, role, index)
    with shown.forward(client, found, container, given, wanted) as forward:
        for one in forward.start().ports:
            say(f"http://127.0.0.1:{one.here} is port {one.there} of {shown.place(found, container)}")
        why = forward.serve()
    say(f"{why}: the forward ends")


@task(
    positional=["name"],
    kinds={"index": int, "every": float},
    help={
        **WHICH,
        "role": "only this task role",
        "once": "show it once and leave",
        "every": "seconds between two looks",
    },
)
def top(c, name, role=None, index=None, once=False, every=2.0, cluster_alias=None, output=None):
    """Show the CPU, memory and GPUs that a job's containers use."""
    pause = top_.pause(every)
    client, given = connect(c, cluster_alias), settings(c, output=output)
    found = reaching.reach(client, name, given)
    screen = Screen(sys.stdout)
    with everywhere.Crowd(client, found, reaching.chosen(found, role, index), given) as crowd:
        staying.tell_idle_ones(found.job.name, interactive.stays(crowd))
        if once or given.output != "table" or not sys.stdout.isatty():
            show(c, crowd.look(), shown.usages, output)
            return
        while not jobs.find(client, name).final:
            crowd.renew()
            picture = shown.usages(crowd.look())
            screen.show(picture, picture)
            time.sleep(pause)


@task(positional=["name"], help={"name": WHICH["name"], "target": "write it to this file instead"})
def key(c, name, target=None, cluster_alias=None, output=None):
    """Fetch the private key that an OpenPAI 0.14 made for a job, or tell which key opens it."""
    client = connect(c, cluster_alias)
    job = jobs.find(client, name)
    if client.dialect.ssh or target:
        path = keys.fetched_key(client, job, Path(target) if target else None, anew=True)
    else:
        path = keys.private_key(settings(c))
    show(c, [{"job": job.name, "key": str(path)}], KEY, output)


@task(
    positional=["name"],
    help={
        "name": WHICH["name"],
        "print": "print the entries, and write nothing",
        "yes": "do not ask: include them in ~/.ssh/config",
    },
)
def ssh_config(c, name, print_=False, yes=False, cluster_alias=None):
    """Let `ssh JOB`, scp, rsync, VS Code and `fab -H JOB` know a job's containers."""
    client, given = connect(c, cluster_alias), settings(c)
    found = shown.reached(client, name, given, writes=not print_)
    hosts = shown.hosts(client, found, given)
    if print_:
        terminal.exact(ssh_config_.block(client.cluster.shelf, found.job, hosts))
        return
    written = ssh_config_.write(client, found.job, hosts)
    say(f"{written.path} knows {', '.join(name for host in hosts for name in host.names)}")
    shown.tell_moved(found.job, written.moved)
    shown.include(yes)


def _copy(c, act, name, paths, role, index, how, cluster_alias, output):
    workers, checksum, preview = how
    client, given = connect(c, cluster_alias), settings(c)
    found = reaching.reach(client, name, given)
    container = reaching.one(found, role, index)
    rules = files.rules(workers, checksum, preview=preview)
    with (
        container_files.opened(client, found, container, given) as store,
        transfers.copying(c, output, preview) as meter,
    ):
        copied = act(store, container.label, paths, given, rules, meter)
    show(c, copied, listings.summary, output)
    files.check(copied)
