"""Submit jobs, look at them, stop them."""

from __future__ import annotations

import sys

from openpai_tasks import render, sdk
from openpai_tasks.tasks import views
from openpai_tasks.tasks.framework.base import connect, say, show, task
from openpai_tasks.tasks.framework.screen import LiveView

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
    sdk.known_names.note_jobs(client, found)
    sdk.notebooks.forget_ended(client, found)
    show(c, found, COLUMNS if user is None else ("user", *COLUMNS), output)


@task(positional=["name"], help={"name": NAME_HELP, "cluster-alias": ALIAS_HELP})
def status(c, name, cluster_alias=None, output=None):
    """Show one job and its tasks."""
    show(c, sdk.jobs.describe(connect(c, cluster_alias), name), render.status, output)


@task(positional=["name"], help={"name": NAME_HELP, "cluster-alias": ALIAS_HELP})
def config(c, name, cluster_alias=None, output=None):
    """Show the document a job was submitted as, secrets masked."""
    show(c, sdk.jobs.submitted_document(connect(c, cluster_alias), name), render.document, output or "yaml")


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
    which = sdk.logs.LogChoice(role, index, sdk.logs.choose_stream(stdout, stderr), attempt)
    with views.submitting.goes_on(name, follow):
        views.submitting.write(
            sdk.logs.read_output(client, name, which, follow, lines, sdk.diagnosis.News(client, say), plain)
        )
    if follow:
        sdk.jobs.check_succeeded(sdk.jobs.wait(client, name))


@task(
    positional=["names"],
    iterable=["names"],
    help={"names": "jobs, or patterns such as 'train-*'", "cluster-alias": ALIAS_HELP},
)
def stop(c, names, cluster_alias=None, output=None):
    """Stop jobs, by name or pattern."""
    show(c, sdk.jobs.stop(connect(c, cluster_alias), names), views.submitting.SUBMITTED, output)


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
    with views.submitting.goes_on(name):
        job = sdk.jobs.wait(connect(c, cluster_alias), name, timeout)
    show(c, [job], COLUMNS, output)
    sdk.jobs.check_succeeded(job)


@task(
    name="connect",
    positional=["name"],
    help={"name": NAME_HELP, "cluster-alias": ALIAS_HELP},
)
def connect_(c, name, cluster_alias=None):
    """Show a job's status as it changes, until it is over."""
    client = connect(c, cluster_alias)
    with views.submitting.goes_on(name), LiveView(sys.stdout) as screen:
        for job in sdk.jobs.watch(client, name):
            screen.show(render.status(job), render.progress(job))
    sdk.jobs.check_succeeded(job)
