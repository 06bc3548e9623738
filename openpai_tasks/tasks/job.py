"""Submit, watch and stop jobs."""

from __future__ import annotations

import sys

from openpai_tasks import render, sdk
from openpai_tasks.tasks import views
from openpai_tasks.tasks.framework.base import connect, say, settings, show
from openpai_tasks.tasks.framework.screen import LiveView
from openpai_tasks.tasks.framework.task import task

COLUMNS = ("name", "state", "virtual_cluster", "submitted", "duration", "user_exit_code", "retries")

ALIAS_HELP = "the cluster; `local` is the embedded one"
NAME_HELP = "the job's name, or user~name for another user's"


@task(
    name="list",
    default=True,
    kinds={"limit": int},
    help={
        "user": "whose jobs; 'all' for everyone's (default: yours)",
        "state": "only jobs in these states, such as RUNNING,WAITING",
        "virtual-cluster": "only jobs in this virtual cluster",
        "keyword": "only jobs with this in their name",
        "limit": "how many jobs to list",
        "cluster-alias": ALIAS_HELP,
    },
)
def list_(
    c, user=None, state=None, virtual_cluster=None, keyword=None, limit=100, cluster_alias=None, output=None
):
    """List jobs, newest first."""
    wanted = sdk.jobs.parse_states(state) if state else None
    client = connect(c, cluster_alias)
    found = sdk.jobs.list_jobs(client, user, wanted, virtual_cluster, keyword, limit)
    show(c, found, COLUMNS if user is None else ("user", *COLUMNS), output)


@task(positional=["name"], help={"name": NAME_HELP, "cluster-alias": ALIAS_HELP})
def status(c, name, cluster_alias=None, output=None):
    """Show one job and its tasks."""
    show(c, sdk.jobs.describe(connect(c, cluster_alias), name), render.status, output)


@task(positional=["name"], help={"name": NAME_HELP, "cluster-alias": ALIAS_HELP})
def config(c, name, cluster_alias=None, output=None):
    """Show the document that a job was submitted with, secrets masked."""
    show(c, sdk.jobs.submitted_document(connect(c, cluster_alias), name), render.document, output or "yaml")


@task(
    positional=["name"],
    kinds={"attempt": int, "index": int, "lines": int},
    help={
        "name": NAME_HELP,
        "follow": "follow the output until the job ends, and exit with its exit code",
        "role": "only this task role",
        "index": "only the task with this index",
        "attempt": "only this attempt of the job, counted from 0 (default: the latest)",
        "stdout": "only stdout",
        "stderr": "only stderr",
        "lines": "only the last lines of each task, so many",
        "plain": "without colours and other terminal escapes",
        "structured": "only the log records of the program, of all tasks and attempts, by time",
        "level": "with --structured: only records of this level or above, such as WARNING",
        "since": "with --structured: only records since then: 90s, 1h30m or 2026-01-31T12:00",
        "grep": "with --structured: only records in which this regular expression is found",
        "output": "with --structured: json for JSON lines",
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
    structured=False,
    level=None,
    since=None,
    grep=None,
    cluster_alias=None,
    output=None,
):
    """Show a job's output, or the log records in it."""
    views.records.check_flags(structured, output, level=level, since=since, grep=grep)
    chosen = sdk.logs.parse_filter(level, since, grep)
    client = connect(c, cluster_alias)
    which = sdk.logs.LogChoice(role, index, sdk.logs.choose_stream(stdout, stderr), attempt)
    how = (client, name, which, follow, lines, sdk.diagnosis.News(client, say))
    with views.submitting.job_continues(name, follow):
        if structured:
            found = sdk.logs.read_structured(*how, chosen, sdk.files.mounts(settings(c)), output == "json")
            views.submitting.write_output(views.records.encode(found, output, follow))
        else:
            views.submitting.write_output(sdk.logs.read_output(*how, plain))
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
        "timeout": "give up after this many seconds (exit code 124)",
        "cluster-alias": ALIAS_HELP,
    },
)
def wait(c, name, timeout=None, cluster_alias=None, output=None):
    """Wait for a job to end, and exit with its exit code."""
    with views.submitting.job_continues(name):
        job = sdk.jobs.wait(connect(c, cluster_alias), name, timeout)
    show(c, [job], COLUMNS, output)
    sdk.jobs.check_succeeded(job)


@task(
    name="connect",
    positional=["name"],
    help={"name": NAME_HELP, "cluster-alias": ALIAS_HELP},
)
def connect_(c, name, cluster_alias=None):
    """Watch a job's status until it ends."""
    client = connect(c, cluster_alias)
    with views.submitting.job_continues(name), LiveView(sys.stdout) as screen:
        for job in sdk.jobs.watch(client, name):
            screen.show(render.status(job), render.progress(job))
    sdk.jobs.check_succeeded(job)
