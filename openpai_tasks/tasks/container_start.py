"""Containers to work in: start one, keep it longer, stop it."""

from __future__ import annotations

import shlex
from pathlib import Path

from openpai_tasks.lazy import lazy
from openpai_tasks.tasks.container import ssh
from openpai_tasks.tasks.framework.base import connect, say, settings, show, task
from openpai_tasks.tasks.views.interactive import goes_on, tell_time
from openpai_tasks.tasks.views.job_flags import FLAGS, job_task
from openpai_tasks.tasks.views.submitting import SUBMITTED, only_looks, show_preview, tell_sources

amounts = lazy("openpai_tasks.sdk.amounts")
interactive = lazy("openpai_tasks.sdk.containers.interactive")
jobs = lazy("openpai_tasks.sdk.jobs.lookup")
keys = lazy("openpai_tasks.sdk.ssh.keys")
mounts = lazy("openpai_tasks.storage.local.mounted")
reaching = lazy("openpai_tasks.sdk.containers.endpoints")
ssh_config = lazy("openpai_tasks.sdk.ssh.hosts_file")
submission_ = lazy("openpai_tasks.sdk.jobs.submission")
wishes = lazy("openpai_tasks.sdk.jobs.wishes")

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
    job,
    idle_after="30m",
    wait_limit="30m",
    shell=True,
    cluster_alias=None,
    output=None,
):
    """Start a container to work in: an empty job that stays for a time, and a shell in it."""
    given = job.settings(c)
    stay, limit = amounts.seconds(timeout, "--timeout"), amounts.seconds(wait_limit, "--wait-limit")
    idle = 0 if idle_after == "0" else amounts.seconds(idle_after, "--idle-after")
    reaching.check(given)
    wish = job.wish(
        command=interactive.MARK,
        name=job.job_name or submission_.new_name("", interactive.NAME),
        ssh_key=keys.public_key(given),
    )
    spec = interactive.staying(wishes.spec(wish, given), stay, idle)
    client = connect(c, cluster_alias)
    here, mounted = Path.cwd(), mounts.mount_map(given.storage_mounts)
    draft = submission_.draft(client, spec, given.sources, given.workspace, here, mounts=mounted)
    ready = _ready(c, client, draft.submission(job.update), limit, job)
    if ready and shell:
        ssh(c, ready.found.job.name, cluster_alias=cluster_alias)
    elif ready:
        tell_time(ready.found.job.name, ready.stay)
        show(c, _login(ready), _line, output)


@task(
    positional=["name"],
    help={"name": "the job", "timeout": "how long it shall stay from now on, such as 30m, 2h or 1d"},
)
def extend(c, name, timeout="2h", cluster_alias=None, output=None):
    """Keep a container longer; a time before its end changes nothing."""
    seconds = amounts.seconds(timeout, "--timeout")
    client = connect(c, cluster_alias)
    show(c, interactive.extend(client, name, settings(c), seconds), EXTENDED, output)


@task(
    positional=["names"],
    iterable=["names"],
    help={"names": "jobs, or patterns; the one that was started in this folder if there is no other"},
)
def stop(c, names=None, cluster_alias=None, output=None):
    """Stop containers that `container.start` made, by name or pattern."""
    client = connect(c, cluster_alias)
    stopped = interactive.stop(client, names or [interactive.the_only(client, Path.cwd())])
    show(c, stopped, SUBMITTED, output)


def _ready(c, client, submission, limit, flags):
    """Submit it, and wait for it; nothing where one only wanted to look."""
    submission_.check_tags(client, flags.tag)
    tell_sources(submission)
    if only_looks(c, flags.preview):
        show_preview(client, submission)
        return None
    jobs.succeed(client, flags.after, say)
    job = submission_.tag(client, jobs.submit(client, submission, say), flags.tag)
    say(
        f"job {job.name} is submitted to {client.cluster.alias}; it has {limit} s to let us in (--wait-limit)"
    )
    with goes_on(client, job.name):
        return interactive.ready(client, job.name, settings(c), limit, say)


def _login(ready):
    target = ready.target
    return {
        "job": ready.found.job.name,
        "container": ready.container.label,
        "host": target.host,
        "port": target.port,
        "user": target.user,
        "key": str(target.key),
        "command": shlex.join(ssh_config.argv(target)),
    }


def _line(login):
    return login["command"]
