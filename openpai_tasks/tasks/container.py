"""Work in the containers of running jobs: shells, commands, files, ports; and build images."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from invoke.context import Context
from invoke.exceptions import CommandTimedOut

from openpai_tasks import render, sdk
from openpai_tasks import settings as user_settings
from openpai_tasks.errors import ConfigError, TimedOut
from openpai_tasks.tasks import views
from openpai_tasks.tasks.framework import terminal
from openpai_tasks.tasks.framework.base import command_text, connect, say, settings, show
from openpai_tasks.tasks.framework.screen import LiveView
from openpai_tasks.tasks.framework.task import terminable, with_flags
from openpai_tasks.tasks.framework.task import typed_task as task
from openpai_tasks.tasks.views.job_flags import (
    BATCH_ONLY,
    COMMAND_HELP,
    COPY_HELP,
    FLAGS,
    choose_cluster,
    job_options,
    job_request,
    job_settings,
    job_task,
)
from openpai_tasks.text import hints

if TYPE_CHECKING:
    from invoke.runners import Result

    from openpai_tasks.backends.base import Backend
    from openpai_tasks.sdk.containers.endpoints import Container, RunningJob
    from openpai_tasks.sdk.containers.interactive import ReadyContainer
    from openpai_tasks.sdk.ssh.connection import Remote
    from openpai_tasks.settings.config import Settings
    from openpai_tasks.storage.copying.progress import Copied

CONTAINERS = ("role", "index", "state", "host", "port", "user")
KEY = ("job", "key")
EXTENDED = ("container", "duration", "extended_by")
IMAGES = ("repository", "tag", "id", "created", "space")
PROGRAMS = ("program", "there", "version", "required", "needed_for")
STDOUT = "-"

CONTAINER_HELP = {
    "role": "task role of the container (default: the first that is running)",
    "index": "index of the task in its role",
}
ANY_CONTAINER_HELP = {
    **CONTAINER_HELP,
    "name": "the job's name, or user~name for another user's (default: your only running job with ssh)",
}


def _reach(
    c: Context, name: str | None, cluster_alias: str | None, task: str, *words: str
) -> tuple[Backend, Settings, RunningJob]:
    """Return the cluster, the settings and the containers of a job, by default of the only one with ssh."""
    client, given = connect(c, cluster_alias), settings(c)
    name = name or sdk.containers.only_running(client, task, words)
    return client, given, sdk.containers.reach(client, name, given)


@task(name="list", positional=["name"], help={"name": "the job (default: all running jobs with ssh)"})
def list_(
    c: Context, name: str | None = None, cluster_alias: str | None = None, output: str | None = None
) -> None:
    """List the containers of a job, or of all running jobs, and their ssh addresses."""
    if name is None:
        found = sdk.containers.list_running(connect(c, cluster_alias), settings(c), say)
        show(c, views.containers.container_rows(found), ("job", *CONTAINERS), output)
        return
    _, _, job = _reach(c, name, cluster_alias, "container.list")
    show(c, list(job.containers), CONTAINERS, output)


@task(
    positional=["name"],
    help={**ANY_CONTAINER_HELP, "print-command": "print the equivalent ssh command instead"},
)
def ssh(
    c: Context,
    name: str | None = None,
    role: str | None = None,
    index: int | None = None,
    print_command: bool = False,
    cluster_alias: str | None = None,
) -> None:
    """Open a shell in a container; the exit code is the shell's."""
    client, given, found = _reach(c, name, cluster_alias, "container.ssh")
    container = sdk.containers.first_running(found, role, index)
    views.containers.announce_failure(client, found.job)
    if print_command:
        target = sdk.containers.ssh_target(client, found, container, given)
        terminal.exact(shlex.join(sdk.ssh.ssh_command(target)) + "\n")
        return
    with sdk.containers.open_when_ready(client, found, container, given, say) as remote:
        code = _open_shell(client, found, container, remote)
    views.containers.exit_with(code)


def _open_shell(client: Backend, found: RunningJob, container: Container, remote: Remote) -> int:
    """Open a shell on the connection, after saying how long it stays; return its exit code."""
    if sys.stdin.isatty():
        say(f"shell in {container.label} of {found.job.name}; `exit` leaves it")
    views.containers.show_stay(found.job.name, sdk.containers.read_stay(remote))
    with views.containers.explain_lost_connection(client, found, container):
        return sdk.containers.open_shell(remote, 0, *_writers(terminal.raw))


@task(
    positional=["name", "command"],
    help={
        **ANY_CONTAINER_HELP,
        "command": COMMAND_HELP,
        "all": "run in all containers (of the role) at once; each line begins with its container",
    },
)
def run(
    c: Context,
    name: str | None = None,
    command: str | None = None,
    role: str | None = None,
    index: int | None = None,
    all: bool = False,
    cluster_alias: str | None = None,
) -> None:
    """Run a command in a container, or in all of them; the exit code is the command's."""
    name, command = views.containers.split_command(name, command)
    wanted = command_text(command)
    if not wanted.strip():
        raise ConfigError(
            f"no command given; for example `{hints.command('container.run', name or 'JOB')} -- nvidia-smi`"
        )
    client, given, found = _reach(c, name, cluster_alias, "container.run", wanted)
    if all:
        chosen = views.containers.skip_ended(found, sdk.containers.choose(found, role, index))
        with sdk.containers.Fanout(client, found, chosen, given) as fanout, terminable():
            ended = fanout.run(wanted, *_writers(views.containers.write_line))
        views.containers.exit_with(views.containers.show_failures(ended))
        return
    container = sdk.containers.first_running(found, role, index)
    with (
        sdk.containers.open_when_ready(client, found, container, given, say) as remote,
        terminable(),
        views.containers.explain_lost_connection(client, found, container),
    ):
        stdin = views.containers.stdin_descriptor()
        code = sdk.containers.run_command(remote, wanted, *_writers(terminal.raw), stdin)
    views.containers.exit_with(code)


def _copy(
    c: Context,
    copy_files: Callable[..., Copied],
    task: str,
    name: str | None,
    paths: list[str] | None,
    role: str | None = None,
    index: int | None = None,
    checksum: bool = False,
    workers: int = 6,
    preview: bool = False,
    cluster_alias: str | None = None,
    output: str | None = None,
) -> None:
    name, paths = views.containers.split_words(task, name, paths)
    client, given, found = _reach(c, name, cluster_alias, task, *paths)
    container = sdk.containers.first_running(found, role, index)
    rules = sdk.files.copy_rules(workers, checksum, preview=preview)
    with sdk.containers.open_files(client, found, container, given) as store:
        copy = functools.partial(copy_files, store, container.label, paths, given, rules)
        views.transfers.run_copy(c, copy, output, preview)


copy_flags = with_flags([*inspect.signature(_copy).parameters.values()][5:])


@task(
    positional=["name", "paths"],
    help={
        **ANY_CONTAINER_HELP,
        **COPY_HELP,
        "paths": "sources in the container and, last, the target (default: this folder)",
    },
)
@copy_flags
def get(
    c: Context, name: str | None = None, paths: list[str] | None = None, *, flags: dict[str, Any]
) -> None:
    """Copy files and folders from a container; run it again to continue."""
    _copy(c, sdk.containers.get, "container.get", name, paths, **flags)


@task(
    positional=["name", "paths"],
    help={
        **ANY_CONTAINER_HELP,
        **COPY_HELP,
        "paths": "sources and, last, the target in the container (default: the login's home folder)",
    },
)
@copy_flags
def put(
    c: Context, name: str | None = None, paths: list[str] | None = None, *, flags: dict[str, Any]
) -> None:
    """Copy files and folders into a container; run it again to continue."""
    _copy(c, sdk.containers.put, "container.put", name, paths, **flags)


@task(
    positional=["name", "ports"],
    help={
        **ANY_CONTAINER_HELP,
        "ports": "ports of the container, as number or label; PORT:LOCAL for a different local port",
        "reverse": "port in the container that leads back here: PORT, PORT:LOCAL or PORT:HOST:LOCAL; "
        "repeat for more",
    },
)
def forward(
    c: Context,
    name: str | None = None,
    ports: list[str] | None = None,
    reverse: list[str] | None = None,
    role: str | None = None,
    index: int | None = None,
    cluster_alias: str | None = None,
) -> None:
    """Forward ports of a container to this machine, or back, until Ctrl-C or the end of the job."""
    back = sdk.containers.parse_reverse_ports(reverse or ())
    name, ports = views.containers.split_ports(name, ports, bool(back))
    typed = [sdk.containers.parse_port(text) for text in ports]
    again = [*ports, *(word for text in reverse or () for word in ("-R", text))]
    client, given, found = _reach(c, name, cluster_alias, "container.forward", *again)
    container = sdk.containers.first_running(found, role, index)
    with sdk.containers.forward_ports(client, found, container, given, typed, back, say) as forward:
        job = f"job {found.job.name}"
        target = f"{container.label} of {job}" if len(found.containers) > 1 else job
        for one in forward.start().ports:
            say(f"forwarding 127.0.0.1:{one.here} → {target}:{one.there}")
        for way in back:
            say(f"forwarding {target}:{way.there} → {way.host}:{way.here} as seen from here")
        why = forward.serve()
    say(f"{why}: forwarding has ended")


@task(
    positional=["name"],
    help={
        **ANY_CONTAINER_HELP,
        "role": "only this task role",
        "once": "show it once and exit",
        "every": "seconds between updates",
        "history": "show what the tasks used over time, also of a job that has ended",
    },
)
def top(
    c: Context,
    name: str | None = None,
    role: str | None = None,
    index: int | None = None,
    once: bool = False,
    every: float = 2.0,
    history: bool = False,
    cluster_alias: str | None = None,
    output: str | None = None,
) -> None:
    """Show the CPU, memory and GPU usage of a job's containers."""
    if history:
        client = connect(c, cluster_alias)
        name = name or sdk.containers.only_running(client, "container.top", ["--history"])
        used = sdk.jobs.read_usage(client, name, role, index)
        views.containers.report_unrecorded(used)
        show(c, sdk.jobs.usage_rows(used), lambda _: views.containers.history_page(used), output)
        return
    pause = sdk.containers.check_interval(every)
    client, given, found = _reach(c, name, cluster_alias, "container.top")
    screen = LiveView(sys.stdout)
    with (
        screen,
        sdk.containers.Fanout(client, found, sdk.containers.choose(found, role, index), given) as fanout,
    ):
        for label, stay in sdk.containers.read_stays(fanout).items():
            views.containers.show_idle(found.job.name, stay, f"the GPUs of {label}")
        if once or (output or given.output) != "table" or not screen.is_drawn:
            show(c, fanout.look(), views.containers.usage_table, output)
            return
        while not sdk.jobs.find(client, found.job.key).final:
            fanout.renew()
            screen.show(views.containers.usage_table(fanout.look()), "")
            time.sleep(pause)


@task(help={"target": "write the key to this file"})
def key(
    c: Context,
    name: str,
    target: str | None = None,
    cluster_alias: str | None = None,
    output: str | None = None,
) -> None:
    """Fetch the private key that OpenPAI 0.14 made for a job, or show which key opens it."""
    client = connect(c, cluster_alias)
    job = sdk.jobs.find(client, name)
    if client.capabilities.job_keys or target:
        path = sdk.ssh.fetched_key(client, job, Path(target) if target else None, refresh=True)
    else:
        path = sdk.ssh.private_key(settings(c))
    show(c, [{"job": job.name, "key": str(path)}], KEY, output)


@task(
    help={
        "print": "print the entries without writing them",
        "yes": "include them in ~/.ssh/config without asking",
    },
)
def ssh_config(
    c: Context, name: str, print_: bool = False, yes: bool = False, cluster_alias: str | None = None
) -> None:
    """Write ssh hosts for a job's containers, for ssh, scp, rsync, VS Code and `fab -H JOB`."""
    client, given = connect(c, cluster_alias), settings(c)
    found = views.containers.find_containers(client, name, given, writes=not print_)
    hosts = views.containers.plan_hosts(client, found, given)
    if print_:
        terminal.exact(sdk.ssh.host_block(client.cluster.unique_name, found.job, hosts))
        return
    written = sdk.ssh.write_hosts(client, found.job, hosts)
    say(f"{written.path} now has {', '.join(name for host in hosts for name in host.names)}")
    for one in written.moved:
        other = f"{one.job_key} on {one.cluster}"
        say(f"{', '.join(one.names)}: now points to job {found.job.key}, no longer to {other}")
    views.containers.include_hosts(yes)


@job_task(
    *(name for name in FLAGS if name not in BATCH_ONLY),
    help={
        "timeout": "how long it runs, such as 30m, 8h or 1d; container.extend makes it longer",
        "idle": "end it after this time without a login and without CPU or GPU use, or never (default: 2h)",
        "idle-after": "warn after its GPUs have been idle for this long; 0 never warns",
        "wait-limit": "how long to wait until it accepts logins",
        "shell": "open a shell when it is ready; --no-shell prints the ssh command instead",
        "key-here": "copy its private key to the file JOB in this folder, as the older client did",
    },
)
def start(
    c: Context,
    timeout: str = "1d",
    *,
    flags: dict[str, Any],
    idle: str | None = None,
    idle_after: str = "30m",
    wait_limit: str = "30m",
    shell: bool = True,
    key_here: bool = False,
    cluster_alias: str | None = None,
    output: str | None = None,
) -> None:
    """Start a container to work in, and open a shell in it."""
    options = job_options(flags, command=sdk.containers.MARK)
    cluster_alias = choose_cluster(c, cluster_alias, options, ssh=True)
    given = job_settings(c, options, cluster_alias)
    stay = sdk.amounts.read("timeout", sdk.amounts.seconds, timeout)
    limit = sdk.amounts.read("wait_limit", sdk.amounts.seconds, wait_limit)
    warn = 0 if idle_after == "0" else sdk.amounts.read("idle_after", sdk.amounts.seconds, idle_after)
    most = sdk.amounts.read("idle", sdk.amounts.idle_seconds, idle or sdk.amounts.IDLE)
    sdk.containers.check_settings(given)
    name = sdk.jobs.new_name(options.job_name, sdk.containers.NAME)
    if key_here:
        sdk.ssh.check_new_file(Path(name))
    key = sdk.ssh.public_key(given)
    request = dataclasses.replace(job_request(options, given), name=name, ssh_key=key)
    request = sdk.containers.keep_alive(request, stay, warn, most)
    client = connect(c, cluster_alias)
    submission = sdk.jobs.prepare(client, request, Path.cwd(), sdk.files.mounts(given))
    job = views.submitting.submit_or_preview(
        client, submission, views.submitting.is_preview(c, flags), output
    )
    if job is None:
        return
    say(f"job {job.name} submitted to {client.cluster.alias}; waiting up to {limit} s for it (--wait-limit)")
    views.containers.announce_end(stay, most)
    with views.containers.offer_stop_on_interrupt(client, job.name):
        ready = sdk.containers.wait_ready(client, job.name, settings(c), limit, say)
    if key_here:
        copy = sdk.ssh.copy_key(ready.target.key, Path(name))
        ready = dataclasses.replace(ready, target=dataclasses.replace(ready.target, key=copy))
        say(f"warning: {copy} is a private key: keep it out of git and of the sources of jobs")
    if shell:
        _enter(c, client, ready)
    else:
        views.containers.show_stay(ready.found.job.name, ready.stay)
        show(c, _login(ready), lambda login: login["command"], output)


def _enter(c: Context, client: Backend, ready: ReadyContainer) -> None:
    """Open a shell in a new container; offer to stop the container afterwards."""
    if not terminal.is_quiet():  # not wrapped, so that it can be copied
        terminal.put_line(sys.stderr, f"ssh command: {_login(ready)['command']}")
    with sdk.containers.open_when_ready(client, ready.found, ready.container, settings(c), say) as remote:
        code = _open_shell(client, ready.found, ready.container, remote)
        left = views.containers.read_stay_again(remote)
    views.containers.leave(client, ready.found.job.name, left)
    views.containers.exit_with(code)


@task(help={"name": "the job", "timeout": "how long to keep it from now on, such as 30m, 2h or 1d"})
def extend(
    c: Context, name: str, timeout: str = "2h", cluster_alias: str | None = None, output: str | None = None
) -> None:
    """Keep a container longer; never shortens its time."""
    limit = sdk.amounts.read("timeout", sdk.amounts.seconds, timeout)
    client = connect(c, cluster_alias)
    show(c, sdk.containers.extend(client, name, settings(c), limit), EXTENDED, output)


@task(
    positional=["names"],
    help={"names": "jobs, or patterns (default: the only container started in this folder)"},
)
def stop(
    c: Context, names: list[str] | None = None, cluster_alias: str | None = None, output: str | None = None
) -> None:
    """Stop containers that container.start has started, by name or pattern."""
    client = connect(c, cluster_alias)
    stopped = sdk.containers.stop(client, names or [sdk.containers.only_container(client, Path.cwd())])
    show(c, stopped, views.submitting.SUBMITTED, output)


def _login(ready: ReadyContainer) -> dict[str, Any]:
    target = ready.target
    return {
        "job": ready.found.job.name,
        "container": ready.container.label,
        "host": target.host,
        "port": target.port,
        "user": target.user,
        "key": str(target.key),
        "command": shlex.join(sdk.ssh.ssh_command(target)),
    }


@task(
    positional=["folder"],
    help={
        "folder": "folder to build the image from (default: this one)",
        "tag": "name of the image, such as lab/train:1",
        "file": "the Dockerfile (default: the one in the folder)",
        "build-arg": "value of an ARG in the Dockerfile, NAME=VALUE, not for secrets; repeat for more",
        "fresh": "use no cache of earlier builds, and pull the newest base image",
    },
)
def build(
    c: Context,
    folder: str = ".",
    tag: str = "",
    file: str | None = None,
    build_arg: list[str] | None = None,
    fresh: bool = False,
) -> None:
    """Build an image from a folder with a Dockerfile."""
    engine = _engine(c)
    argv = sdk.images.build_command(
        engine, folder, tag, file, build_arg or (), fresh, only_shown=c.config.run.dry
    )
    done = _run(c, argv, pty=_is_terminal())
    sdk.images.check_ended(engine, f"build {tag}", done.exited)


@task(help={"image": "name of the image, beginning with its registry"})
def push(c: Context, image: str) -> None:
    """Push an image to its registry, with the login of docker or podman."""
    engine = _engine(c)
    done = _run(c, sdk.images.push_command(engine, image), pty=_is_terminal())
    sdk.images.check_push(engine, image, done.exited)


@task(positional=["name"], help={"name": "only images with this name"})
def images(c: Context, name: str | None = None, output: str | None = None) -> None:
    """List the images on this machine."""
    engine = _engine(c)
    done = _run(c, sdk.images.list_command(engine, name), sdk.images.LIST_SECONDS, hide="out")
    sdk.images.check_ended(engine, "list images", done.exited)
    if not c.config.run.dry:
        show(c, sdk.images.parse_images(done.stdout), IMAGES, output)


@task(
    help={"image": "name of the image; pulled if it is not here", "ssh": "also require what ssh needs"},
)
def check(c: Context, image: str, ssh: bool = True, output: str | None = None) -> None:
    """Check whether an image has what jobs need: a shell, sshd, curl, python and more."""
    engine = _engine(c)
    done = _run(c, sdk.images.check_command(engine, image), hide="out")
    if c.config.run.dry:
        return
    found = sdk.images.parse_findings(engine, image, done.exited, done.stdout, ssh)
    show(c, found, PROGRAMS, output)
    sdk.images.check_findings(image, found)


@task(
    help={
        "base": "base image (default: the setting `image`)",
        "pip": "Python package to install; repeat for more",
        "apt": "Debian package to install; repeat for more",
        "ssh": "add openssh-server and curl, which OpenPAI needs for ssh logins",
        "file": "the file to write; - prints it",
        "yes": "overwrite an existing file",
    },
)
def dockerfile(
    c: Context,
    base: str | None = None,
    pip: list[str] | None = None,
    apt: list[str] | None = None,
    ssh: bool = False,
    file: str = "Dockerfile",
    yes: bool = False,
) -> None:
    """Write a Dockerfile with the packages that a job needs."""
    given = settings(c)
    text = sdk.images.dockerfile(base or given.image, pip or (), apt or (), ssh, given.python)
    if file == STDOUT or c.config.run.dry:
        terminal.exact(text)
        return
    sdk.images.write_dockerfile(Path(file), text, yes)
    say(f"wrote {file}; `{hints.command('container.build')} --tag NAME` builds it")


def _run(c: Context, argv: Sequence[str], longest: float | None = None, **how: Any) -> Result:
    """Run a command of the engine, with a time limit that is shown."""
    limit = c.config.timeouts.command or longest or sdk.images.LONGEST_SECONDS
    what = " ".join(argv[:2])
    if not c.config.run.dry:
        change = hints.command("-T SECONDS ...")
        say(f"`{what}` may take {render.duration(limit)} (`{change}` changes the limit)")
    try:
        alone = user_settings.credentials.hidden_environment()
        done = c.run(shlex.join(argv), warn=True, timeout=limit, env=alone, replace_env=True, **how)
    except CommandTimedOut as err:
        raise TimedOut(f"`{what}` did not finish within {render.duration(limit)} and was stopped") from err
    assert done is not None  # as it is with disown=True
    return done


def _writers(write: Callable[..., None]) -> tuple[Callable[..., None], Callable[..., None]]:
    return functools.partial(write, sys.stdout), functools.partial(write, sys.stderr)


def _engine(c: Context) -> str:
    return sdk.images.find_engine(settings(c).container_engine)


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()
