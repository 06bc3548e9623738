"""Containers to work in: start one, keep it longer, stop it."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path

from openpai_tasks import sdk
from openpai_tasks.tasks import views
from openpai_tasks.tasks.container import ssh
from openpai_tasks.tasks.framework.base import connect, say, settings, show, task
from openpai_tasks.tasks.views.job_flags import FLAGS, job_request, job_settings, job_task

EXTENDED = ("container", "duration", "told_by")


@job_task(
    *(name for name in FLAGS if name not in ("retries", "max_time")),
    help={
        "timeout": "how long it stays, such as 30m, 8h or 1d; `container.extend` makes it longer",
        "idle-after": "warn when its GPUs did nothing for so long; 0 never does",
        "wait-limit": "how long to wait until it lets us in",
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
    """Start a container to work in: an empty job that stays for a time, and a shell in it."""
    given = job_settings(c, flags)
    stay, limit = sdk.amounts.seconds(timeout, "--timeout"), sdk.amounts.seconds(wait_limit, "--wait-limit")
    idle = 0 if idle_after == "0" else sdk.amounts.seconds(idle_after, "--idle-after")
    sdk.containers.check_settings(given)
    name = flags.get("job_name") or sdk.jobs.new_name("", sdk.containers.NAME)
    request = job_request(flags, given, command=sdk.containers.MARK, job_name=name)
    request = dataclasses.replace(request, ssh_key=sdk.ssh.public_key(given))
    request = sdk.containers.keep_alive(request, stay, idle)
    client = connect(c, cluster_alias)
    submission = sdk.jobs.prepare(client, request, Path.cwd(), sdk.files.mounts(given))
    ready = _ready(c, client, submission, limit, views.submitting.only_looks(c, flags))
    if ready and shell:
        ssh(c, ready.found.job.name, cluster_alias=cluster_alias)
    elif ready:
        views.interactive.tell_time(ready.found.job.name, ready.stay)
        show(c, _login(ready), _line, output)


@task(
    positional=["name"],
    help={"name": "the job", "timeout": "how long it shall stay from now on, such as 30m, 2h or 1d"},
)
def extend(c, name, timeout="2h", cluster_alias=None, output=None):
    """Keep a container longer; a time before its end changes nothing."""
    seconds = sdk.amounts.seconds(timeout, "--timeout")
    client = connect(c, cluster_alias)
    show(c, sdk.containers.extend(client, name, settings(c), seconds), EXTENDED, output)


@task(
    positional=["names"],
    iterable=["names"],
    help={"names": "jobs, or patterns; the one that was started in this folder if there is no other"},
)
def stop(c, names=None, cluster_alias=None, output=None):
    """Stop containers that `container.start` made, by name or pattern."""
    client = connect(c, cluster_alias)
    stopped = sdk.containers.stop(client, names or [sdk.containers.only_container(client, Path.cwd())])
    show(c, stopped, views.submitting.SUBMITTED, output)


def _ready(c, client, submission, limit, only_looks):
    """Submit it, and wait for it; nothing where one only wanted to look."""
    job = views.submitting.submitted(client, submission, only_looks)
    if job is None:
        return None
    say(
        f"job {job.name} is submitted to {client.cluster.alias}; it has {limit} s to let us in (--wait-limit)"
    )
    with views.interactive.goes_on(client, job.name):
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
