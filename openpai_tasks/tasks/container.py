"""Work in the containers of running jobs: shells, commands, files, ports; and build images."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path

from openpai_tasks import hints, sdk
from openpai_tasks.errors import ConfigError
from openpai_tasks.tasks import views
from openpai_tasks.tasks.framework import terminal
from openpai_tasks.tasks.framework.base import command_text, connect, say, settings, show
from openpai_tasks.tasks.framework.screen import LiveView
from openpai_tasks.tasks.framework.signals import terminable
from openpai_tasks.tasks.framework.task import task

CONTAINERS = ("role", "index", "state", "host", "port", "user")
KEY = ("job", "key")

WHICH = {
    "name": "the job's name, or user~name for another user's",
    "role": "task role of the container (default: the first that is running)",
    "index": "index of the task in its role",
}
COPYING = {
    "checksum": "compare files by content, not by size and time",
    "workers": "number of files to copy at once",
    "preview": "only show what would be done",
}


@task(name="list", positional=["name"], help={"name": WHICH["name"]})
def list_(c, name, cluster_alias=None, output=None):
    """List a job's containers and their ssh addresses."""
    found = sdk.containers.reach(connect(c, cluster_alias), name, settings(c))
    show(c, list(found.containers), CONTAINERS, output)


@task(
    positional=["name"],
    kinds={"index": int},
    help={**WHICH, "print-command": "print the equivalent ssh command instead"},
)
def ssh(c, name, role=None, index=None, print_command=False, cluster_alias=None):
    """Open a shell in a container; the exit code is the shell's."""
    client, given = connect(c, cluster_alias), settings(c)
    found = sdk.containers.reach(client, name, given)
    container = sdk.containers.first_running(found, role, index)
    if print_command:
        terminal.exact(
            shlex.join(sdk.ssh.ssh_command(sdk.containers.ssh_target(client, found, container, given))) + "\n"
        )
        return
    with sdk.containers.open_when_ready(client, found, container, given, say) as remote:
        if sys.stdin.isatty():
            say(f"shell in {container.label} of {found.job.name}; `exit` leaves it")
        views.interactive.show_stay(found.job.name, sdk.containers.read_stay(remote))
        with views.containers.explain_lost_connection(client, found, container):
            code = sdk.containers.open_shell(
                remote, 0, views.containers.write_stdout, views.containers.write_stderr
            )
    views.containers.exit_with(code)


@task(
    positional=["name", "command"],
    kinds={"index": int},
    help={
        **WHICH,
        "command": "what to run, in quotes; or everything after --",
        "all": "run in all containers (of the role) at once; each line begins with its container",
    },
)
def run(c, name, command=None, role=None, index=None, all=False, cluster_alias=None):
    """Run a command in a container, or in all of them; the exit code is the command's."""
    wanted = command_text(command)
    if not wanted.strip():
        raise ConfigError(
            f"no command given; for example `{hints.command('container.run', name)} -- nvidia-smi`"
        )
    client, given = connect(c, cluster_alias), settings(c)
    found = sdk.containers.reach(client, name, given)
    if all:
        chosen = views.containers.skip_ended(found, sdk.containers.choose(found, role, index))
        with sdk.containers.Fanout(client, found, chosen, given) as fanout, terminable():
            ended = fanout.run(wanted, views.containers.write_stdout_line, views.containers.write_stderr_line)
        views.containers.exit_with(views.containers.show_failures(ended))
        return
    container = sdk.containers.first_running(found, role, index)
    with (
        sdk.containers.open_when_ready(client, found, container, given, say) as remote,
        terminable(),
        views.containers.explain_lost_connection(client, found, container),
    ):
        code = sdk.containers.run_command(
            remote,
            wanted,
            views.containers.write_stdout,
            views.containers.write_stderr,
            views.containers.stdin_descriptor(),
        )
    views.containers.exit_with(code)


@task(
    positional=["name", "paths"],
    iterable=["paths"],
    kinds={"index": int, "workers": int},
    help={
        **WHICH,
        **COPYING,
        "paths": "sources in the container and, last, the target (default: this folder)",
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
    """Copy files and folders from a container; run it again to continue."""
    _copy(
        c, sdk.containers.get, name, paths, role, index, (workers, checksum, preview), cluster_alias, output
    )


@task(
    positional=["name", "paths"],
    iterable=["paths"],
    kinds={"index": int, "workers": int},
    help={
        **WHICH,
        **COPYING,
        "paths": "sources and, last, the target in the container (default: the login's home folder)",
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
    """Copy files and folders into a container; run it again to continue."""
    _copy(
        c, sdk.containers.put, name, paths, role, index, (workers, checksum, preview), cluster_alias, output
    )


@task(
    positional=["name", "ports"],
    iterable=["ports"],
    kinds={"index": int},
    help={
        **WHICH,
        "ports": "ports of the container, as number or label; PORT:LOCAL for a different local port",
    },
)
def forward(c, name, ports, role=None, index=None, cluster_alias=None):
    """Forward ports of a container to this machine, until Ctrl-C or the end of the job."""
    typed = [sdk.containers.parse_port(text) for text in ports]
    client, given = connect(c, cluster_alias), settings(c)
    found = sdk.containers.reach(client, name, given)
    container = sdk.containers.first_running(found, role, index)
    wanted = sdk.containers.find_ports(client, found.job, container.role, container.index, typed)
    with views.containers.forward(client, found, container, given, wanted) as forward:
        for one in forward.start().ports:
            target = views.containers.describe_container(found, container)
            say(f"forwarding 127.0.0.1:{one.here} → {target}:{one.there}")
        why = forward.serve()
    say(f"{why}: forwarding has ended")


@task(
    positional=["name"],
    kinds={"index": int, "every": float},
    help={
        **WHICH,
        "role": "only this task role",
        "once": "show it once and exit",
        "every": "seconds between updates",
    },
)
def top(c, name, role=None, index=None, once=False, every=2.0, cluster_alias=None, output=None):
    """Show the CPU, memory and GPU usage of a job's containers."""
    pause = sdk.containers.check_interval(every)
    client, given = connect(c, cluster_alias), settings(c, output=output)
    found = sdk.containers.reach(client, name, given)
    screen = LiveView(sys.stdout)
    with (
        screen,
        sdk.containers.Fanout(client, found, sdk.containers.choose(found, role, index), given) as fanout,
    ):
        views.interactive.show_idle_gpus(found.job.name, sdk.containers.read_stays(fanout))
        if once or given.output != "table" or not screen.is_drawn:
            show(c, fanout.look(), views.containers.usage_table, output)
            return
        while not sdk.jobs.find(client, name).final:
            fanout.renew()
            screen.show(views.containers.usage_table(fanout.look()), "")
            time.sleep(pause)


@task(positional=["name"], help={"name": WHICH["name"], "target": "write the key to this file"})
def key(c, name, target=None, cluster_alias=None, output=None):
    """Fetch the private key that OpenPAI 0.14 made for a job, or show which key opens it."""
    client = connect(c, cluster_alias)
    job = sdk.jobs.find(client, name)
    if client.capabilities.job_keys or target:
        path = sdk.ssh.fetched_key(client, job, Path(target) if target else None, refresh=True)
    else:
        path = sdk.ssh.private_key(settings(c))
    show(c, [{"job": job.name, "key": str(path)}], KEY, output)


@task(
    positional=["name"],
    help={
        "name": WHICH["name"],
        "print": "print the entries without writing them",
        "yes": "include them in ~/.ssh/config without asking",
    },
)
def ssh_config(c, name, print_=False, yes=False, cluster_alias=None):
    """Write ssh hosts for a job's containers, for ssh, scp, rsync, VS Code and `fab -H JOB`."""
    client, given = connect(c, cluster_alias), settings(c)
    found = views.containers.find_containers(client, name, given, writes=not print_)
    hosts = views.containers.plan_hosts(client, found, given)
    if print_:
        terminal.exact(sdk.ssh.host_block(client.cluster.shelf, found.job, hosts))
        return
    written = sdk.ssh.write_hosts(client, found.job, hosts)
    say(f"{written.path} now has {', '.join(name for host in hosts for name in host.names)}")
    views.containers.show_moved_names(found.job, written.moved)
    views.containers.include_hosts(yes)


def _copy(c, copy_files, name, paths, role, index, options, cluster_alias, output):
    workers, checksum, preview = options
    client, given = connect(c, cluster_alias), settings(c)
    found = sdk.containers.reach(client, name, given)
    container = sdk.containers.first_running(found, role, index)
    rules = sdk.files.copy_rules(workers, checksum, preview=preview)
    with (
        sdk.containers.open_files(client, found, container, given) as store,
        views.transfers.copying(c, output, preview) as meter,
    ):
        copied = copy_files(store, container.label, paths, given, rules, meter)
    show(c, copied, views.listings.describe_copy, output)
    sdk.files.check_copied(copied)
