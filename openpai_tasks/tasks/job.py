"""Submit jobs, look at them, stop them."""

from __future__ import annotations

import sys

from openpai_tasks.lazy import lazy
from openpai_tasks.tasks.framework.base import connect, say, show, task
from openpai_tasks.tasks.framework.screen import Screen
from openpai_tasks.tasks.views.submitting import SUBMITTED, goes_on, write

jobs = lazy("openpai_tasks.sdk.jobs.lookup")
logs_ = lazy("openpai_tasks.sdk.logs.output")
names = lazy("openpai_tasks.sdk.known_names")
notebook_kept = lazy("openpai_tasks.sdk.notebooks.sessions")
render = lazy("openpai_tasks.render")
waiting = lazy("openpai_tasks.sdk.diagnosis.news")

COLUMNS = ("name", "state", "virtual_cluster", "submitted", "duration", "exit_code", "retries")

ALIAS_HELP = "the cluster; `local` is the embedded one"
NAME_HELP = "the job's name, or user~name for somebody else's"


@task(
    name="list",
    default=True,
    kinds={"limit": int},
    help={
        "user": "whose jobs; yours if not given, 'all' for everybody's",
        "state": "only these states, e.g. RUNNING,WAITING",
        "virtual-cluster": "only in this virtual cluster",
        "keyword": "only with this in their name",
        "limit": "how many, newest first",
        "cluster-alias": ALIAS_HELP,
    },
)
def list_(
    c, user=None, state=None, virtual_cluster=None, keyword=None, limit=100, cluster_alias=None, output=None
):
    """Show jobs, newest first."""
    client = connect(c, cluster_alias)
    whose = None if user == "all" else user or client.user
    wanted = state.upper() if state else None
    found = client.jobs(username=whose, state=wanted, vc=virtual_cluster, keyword=keyword, limit=limit)
    names.saw_jobs(client, found)
    notebook_kept.saw(client, found)
    show(c, found, COLUMNS if user is None else ("user", *COLUMNS), output)


@task(positional=["name"], help={"name": NAME_HELP, "cluster-alias": ALIAS_HELP})
def status(c, name, cluster_alias=None, output=None):
    """Show one job and its tasks."""
    show(c, jobs.describe(connect(c, cluster_alias), name), render.status, output)


@task(positional=["name"], help={"name": NAME_HELP, "cluster-alias": ALIAS_HELP})
def config(c, name, cluster_alias=None, output=None):
    """Show the document a job was submitted as, secrets masked."""
    show(c, jobs.config(connect(c, cluster_alias), name), render.document, output or "yaml")


@task(
    positional=["name"],
    kinds={"attempt": int, "index": int, "lines": int},
    help={
        "name": NAME_HELP,
        "follow": "go on until the job is over, and end with its exit code",
        "role": "only this task role",
        "index": "only this task",
        "attempt": "what this attempt of the job has written, from 0; the latest if not given",
        "stdout": "only what went to stdout",
        "stderr": "only what went to stderr",
        "lines": "only the last so many lines of each task",
        "plain": "without colours and all else that steers a terminal",
        "cluster-alias": ALIAS_HELP,
    },
)
def logs(
    c,
    name,
    follow=False,
    role=None,
    index=None,
    stdout=False,
    stderr=False,
    lines=None,
    attempt=None,
    plain=False,
    cluster_alias=None,
):
    """Show a job's output."""
    client = connect(c, cluster_alias)
    which = logs_.Which(role, index, logs_.stream(stdout, stderr), attempt)
    with goes_on(name, follow):
        write(logs_.output(client, name, which, follow, lines, waiting.News(client, say), plain))
    if follow:
        jobs.check(jobs.wait(client, name))


@task(
    positional=["names"],
    iterable=["names"],
    help={"names": "jobs, or patterns such as 'train-*'", "cluster-alias": ALIAS_HELP},
)
def stop(c, names, cluster_alias=None, output=None):
    """Stop jobs, by name or pattern."""
    show(c, jobs.stop(connect(c, cluster_alias), names), SUBMITTED, output)


@task(
    positional=["name"],
    kinds={"timeout": float},
    help={
        "name": NAME_HELP,
        "timeout": "give up after so many seconds (exit code 124)",
        "cluster-alias": ALIAS_HELP,
    },
)
def wait(c, name, timeout=None, cluster_alias=None, output=None):
    """Wait for a job, and end with its own exit code."""
    with goes_on(name):
        job = jobs.wait(connect(c, cluster_alias), name, timeout)
    show(c, [job], COLUMNS, output)
    jobs.check(job)


@task(
    name="connect",
    positional=["name"],
    help={"name": NAME_HELP, "cluster-alias": ALIAS_HELP},
)
def connect_(c, name, cluster_alias=None):
    """Show a job's status as it changes, until it is over."""
    screen, client = Screen(sys.stdout), connect(c, cluster_alias)
    with goes_on(name), client.saying(screen.say):
        for job in jobs.watch(client, name):
            screen.show(render.status(job), render.progress(job))
    jobs.check(job)
