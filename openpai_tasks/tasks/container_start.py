"""Start, extend and stop containers to work in."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path

from openpai_tasks import sdk
from openpai_tasks.tasks import views
from openpai_tasks.tasks.container import ssh
from openpai_tasks.tasks.framework.base import connect, say, settings, show
from openpai_tasks.tasks.framework.task import task
from openpai_tasks.tasks.views.job_flags import FLAGS, job_request, job_settings, job_task

EXTENDED = ("container", "duration", "extended_by")


@job_task(
    *(name for name in FLAGS if name not in ("retries", "max_time")),
    help={
        "timeout": "how long it runs, such as 30m, 8h or 1d; container.extend makes it longer",
        "idle-after": "warn when its GPUs were idle for this long; 0 to never warn",
        "wait-limit": "how long to wait until it accepts logins",
        "shell": "open a shell when it is ready; --no-shell prints the ssh command instead",
    },
)
def start(
    c,
    timeout="1d",
    *,
    flags,
    idle_after="30m",
    wait_limit="30m",
    shell=True,
    cluster_alias=None,
    output=None,
):
    """Start a container to work in, and open a shell in it."""
    given = job_settings(c, flags)
    stay, limit = (
        sdk.amounts.parse_seconds(timeout, "--timeout"),
        sdk.amounts.parse_seconds(wait_limit, "--wait-limit"),
    )
    idle = 0 if idle_after == "0" else sdk.amounts.parse_seconds(idle_after, "--idle-after")
    sdk.containers.check_settings(given)
    name = flags.get("job_name") or sdk.jobs.new_name("", sdk.containers.NAME)
    request = job_request(flags, given, command=sdk.containers.MARK, job_name=name)
    request = dataclasses.replace(request, ssh_key=sdk.ssh.public_key(given))
    request = sdk.containers.keep_alive(request, stay, idle)
    client = connect(c, cluster_alias)
    submission = sdk.jobs.prepare(client, request, Path.cwd(), sdk.files.mounts(given))
    ready = _ready(c, client, submission, limit, views.submitting.is_preview(c, flags))
    if ready and shell:
        ssh(c, ready.found.job.name, cluster_alias=cluster_alias)
    elif ready:
        views.interactive.show_stay(ready.found.job.name, ready.stay)
        show(c, _login(ready), _line, output)


@task(
    positional=["name"],
    help={"name": "the job", "timeout": "how long to keep it from now on, such as 30m, 2h or 1d"},
)
def extend(c, name, timeout="2h", cluster_alias=None, output=None):
    """Keep a container longer; never shortens its time."""
    seconds = sdk.amounts.parse_seconds(timeout, "--timeout")
    client = connect(c, cluster_alias)
    show(c, sdk.containers.extend(client, name, settings(c), seconds), EXTENDED, output)


@task(
    positional=["names"],
    iterable=["names"],
    help={"names": "jobs, or patterns (default: the only one that was started in this folder)"},
)
def stop(c, names=None, cluster_alias=None, output=None):
    """Stop containers that container.start has started, by name or pattern."""
    client = connect(c, cluster_alias)
    stopped = sdk.containers.stop(client, names or [sdk.containers.only_container(client, Path.cwd())])
    show(c, stopped, views.submitting.SUBMITTED, output)


def _ready(c, client, submission, limit, preview):
    """Submit the container and wait until it is ready; None for a preview."""
    job = views.submitting.submit_or_preview(client, submission, preview)
    if job is None:
        return None
    say(f"job {job.name} submitted to {client.cluster.alias}; waiting up to {limit} s for it (--wait-limit)")
    with views.interactive.offer_stop_on_interrupt(client, job.name):
        return sdk.containers.wait_ready(client, job.name, settings(c), limit, say)


def _login(ready):
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


def _line(login):
    return login["command"]
