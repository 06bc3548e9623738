"""Submit, watch and stop jobs."""

from __future__ import annotations

import sys

from openpai_tasks import render, sdk
from openpai_tasks.tasks import views
from openpai_tasks.tasks.framework.base import connect, say, settings, show
from openpai_tasks.tasks.framework.screen import LiveView
from openpai_tasks.tasks.framework.task import task

COLUMNS = ("name", "state", "virtual_cluster", "submitted", "duration", "exit_code", "retries")

SUMMARY = ("user", "jobs", "running", "waiting", "failed", "gpus", "gpu_hours")

ALIAS_HELP = "the cluster; `local` is the embedded one"
NAME_HELP = "the job's name, or user~name for another user's"
NAMES_HELP = "jobs: names or their beginnings, patterns such as 'train-*', sweeps, @last"


@task(
    name="list",
    default=True,
    kinds={"limit": int},
    help={
        "user": "whose jobs; 'all' for everyone's (default: yours)",
        "state": "only jobs in these states, such as RUNNING,WAITING",
        "virtual-cluster": "only jobs in this virtual cluster",
        "keyword": "only jobs with this in their name",
        "limit": "how many jobs to list (default: 100; all for --summary)",
        "fields": "only these fields, such as name,state; also those that only json has",
        "watch": "update the list until Ctrl-C; in a pipe, a line for each change",
        "summary": "a line for each user instead: jobs, GPUs and GPU-hours",
        "cluster-alias": ALIAS_HELP,
    },
)
def list_(
    c,
    user=None,
    state=None,
    virtual_cluster=None,
    keyword=None,
    limit=None,
    fields=None,
    watch=False,
    summary=False,
    absolute=False,
    cluster_alias=None,
    output=None,
):
    """List jobs, newest first."""
    wanted = sdk.jobs.parse_states(state) if state else None
    columns = SUMMARY if summary else COLUMNS if user is None else ("user", *COLUMNS)
    most = limit if limit is not None or summary else 100
    client = connect(c, cluster_alias)

    def ask():
        found = sdk.jobs.list_jobs(client, user, wanted, virtual_cluster, keyword, most)
        return sdk.jobs.summarise_users(found) if summary else found

    if watch:
        views.following.watch_list(sdk.jobs.watch_list(client, ask), columns, fields, output, not absolute)
    elif fields:
        show(c, *views.following.pick_fields(ask(), fields), output, ages=not absolute)
    else:
        show(c, ask(), columns, output, ages=not absolute)


@task(
    positional=["name"],
    iterable=["name"],
    help={"name": NAMES_HELP, "cluster-alias": ALIAS_HELP},
)
def status(c, name, absolute=False, cluster_alias=None, output=None):
    """Show jobs and their tasks."""
    client = connect(c, cluster_alias)
    found = [
        sdk.jobs.count_gpus(client, sdk.jobs.describe(client, one.name, one.job if one.is_whole else None))
        for one in sdk.sweeps.choose_jobs(client, name)
    ]
    if len(found) == 1:
        show(c, found[0], render.status, output, ages=not absolute)
    else:
        show(c, found, render.statuses, output, ages=not absolute)


@task(positional=["name"], help={"name": NAME_HELP, "cluster-alias": ALIAS_HELP})
def config(c, name, cluster_alias=None, output=None):
    """Show the document that a job was submitted with, secrets masked."""
    show(c, sdk.jobs.submitted_document(connect(c, cluster_alias), name), render.document, output or "yaml")


@task(
    positional=["name"],
    iterable=["name"],
    kinds={"attempt": int, "index": int, "lines": int},
    help={
        "name": NAMES_HELP,
        "follow": "follow the output until the jobs end, and exit with the exit code of the first failure",
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
    notify=False,
    cluster_alias=None,
    output=None,
):
    """Show the output of jobs, or the log records in it."""
    views.records.check_flags(structured, output, level=level, since=since, grep=grep)
    records = sdk.logs.parse_filter(level, since, grep)
    client = connect(c, cluster_alias)
    which = sdk.logs.LogChoice(role, index, sdk.logs.choose_stream(stdout, stderr), attempt)
    with views.submitting.job_continues(name, follow):
        names = views.following.choose(client, name) if follow else sdk.sweeps.choose_names(client, name)
        if structured:
            one = views.following.only_one(names, "--structured")
            how = (client, one, which, follow, lines, sdk.diagnosis.News(client, say), records)
            found = sdk.logs.read_structured(*how, sdk.files.mounts(settings(c)), output == "json")
            views.submitting.write_output(views.records.encode(found, output, follow))
        else:
            views.following.write_logs(client, names, which, follow, lines, plain)
    if follow:
        views.following.conclude(client, sdk.jobs.wait_all(client, names), notify)


@task(
    positional=["names"],
    iterable=["names"],
    help={"names": NAMES_HELP, "yes": "do not ask", "cluster-alias": ALIAS_HELP},
)
def stop(c, names, yes=False, cluster_alias=None, output=None):
    """Stop jobs, by name or pattern."""
    client = connect(c, cluster_alias)
    chosen = sdk.sweeps.choose_jobs(client, names, unfinished=True)
    views.following.confirm_stop(chosen, yes)
    if ended := [one.name for one in chosen if one.job.final]:
        say(f"already ended: {sdk.sweeps.name_some(ended)}")
    stopped = sdk.jobs.stop_all(client, [one.job for one in chosen])
    show(c, stopped, views.submitting.SUBMITTED, output)


@task(
    positional=["name"],
    iterable=["name"],
    kinds={"timeout": float},
    help={
        "name": NAMES_HELP,
        "timeout": "give up after this many seconds (exit code 124)",
        "cluster-alias": ALIAS_HELP,
    },
)
def wait(c, name, timeout=None, notify=False, absolute=False, cluster_alias=None, output=None):
    """Wait for jobs to end, and exit with the exit code of the first that failed."""
    client = connect(c, cluster_alias)
    with views.submitting.job_continues(name):
        names = views.following.choose(client, name, timeout)
        jobs = sdk.jobs.wait_all(client, names, timeout)
    show(c, jobs, COLUMNS, output, ages=not absolute)
    views.following.conclude(client, jobs, notify)


@task(
    name="connect",
    positional=["name"],
    help={
        "name": NAME_HELP,
        "cluster-alias": ALIAS_HELP,
    },
)
def connect_(c, name, notify=False, absolute=False, cluster_alias=None):
    """Watch a job's status until it ends."""
    client = connect(c, cluster_alias)
    with views.submitting.job_continues(name), LiveView(sys.stdout, ages=not absolute) as screen:
        one = views.following.only_one(views.following.choose(client, name), "job.connect")
        for job in sdk.jobs.watch(client, one):
            screen.show(render.status(job), render.progress(job))
    views.following.conclude(client, [job], notify)
