"""Work with submitted jobs: resubmit, compare, fetch outputs, open, explain."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from openpai_tasks import render, sdk
from openpai_tasks.plain_text import counted
from openpai_tasks.tasks import job as job_tasks
from openpai_tasks.tasks import views
from openpai_tasks.tasks.framework import secrets
from openpai_tasks.tasks.framework.base import connect, say, settings, show
from openpai_tasks.tasks.framework.task import task

SECRET_HELP = "name of a secret of the job, to read from your environment; repeat for more"
OTHER = "a job's name, or cluster:name for a job on another cluster"


@task(
    positional=["name"],
    iterable=["update", "secret"],
    kinds={"gpu": int},
    help={
        "name": job_tasks.NAME_HELP,
        "job-name": "name of the new job; each $ becomes random letters (default: made from the old one)",
        "update": "change its document, path=value; repeat for more",
        "gpu": "GPUs of each task that uses any",
        "secret": SECRET_HELP,
        "to": "the cluster to run it on (default: the same)",
        "fresh": "start from the beginning, without the checkpoints of the job, which are kept",
        "resume": "continue at its last checkpoint, the default without --exact; fail if it has none",
        "exact": "repeat the recorded command, files and settings (./.openpai/jobs), or explain why not",
        "follow": "show the output until the job ends, and exit with its exit code",
        "plain": "with --follow: without colours and other terminal escapes",
        "preview": "show exactly what would be sent, and send nothing",
        "cluster-alias": "the cluster that has the job",
    },
)
def resubmit(
    c,
    name,
    job_name=None,
    update=None,
    gpu=None,
    secret=None,
    to=None,
    fresh=False,
    resume=False,
    exact=False,
    follow=False,
    plain=False,
    notify=False,
    preview=False,
    cluster_alias=None,
    output=None,
):
    """Submit a job again under a new name, with changes or exactly as it was."""
    start = sdk.jobs.choose_start(fresh, resume)
    flags = {"job_name": job_name, "update": update, "gpu": gpu, "secret": secret}
    request = sdk.jobs.build_changes(flags, secrets.job_secret)
    source = connect(c, cluster_alias)
    target = connect(c, to) if to else source
    mounted = sdk.files.mounts(settings(c))
    submission = sdk.jobs.repeat(
        source,
        target,
        name,
        request,
        Path.cwd(),
        exact,
        secrets.document_secret,
        say,
        mounted,
        resume=start,
    )
    views.submitting.send(c, target, submission, follow, preview, output, plain, notify)


@task(
    positional=["first", "second"],
    help={"first": OTHER, "second": OTHER, "cluster-alias": job_tasks.ALIAS_HELP},
)
def diff(c, first, second, cluster_alias=None, output=None):
    """Show how the documents of two jobs differ."""
    (left, a), (right, b) = sdk.jobs.parse_reference(first), sdk.jobs.parse_reference(second)
    found = sdk.jobs.compare_jobs(connect(c, left or cluster_alias), a, connect(c, right or cluster_alias), b)
    if found.same:
        say(f"{found.a} and {found.b} are the same")
    show(c, found, render.difference, output)


@task(
    positional=["name"],
    iterable=["name"],
    help={
        "name": job_tasks.NAMES_HELP,
        "to": "copy the files into this folder; into DIR/JOB for several jobs, or for `--to DIR/`",
        "all": "include checkpoints, metrics and log records of the runtime, in .pai",
        "cluster-alias": job_tasks.ALIAS_HELP,
    },
)
def outputs(c, name, to=None, all=False, cluster_alias=None, output=None):
    """List or download the files that jobs wrote to $PAI_OUTPUT_DIR."""
    client, mounted = connect(c, cluster_alias), sdk.files.mounts(settings(c))
    names = sdk.sweeps.choose_names(client, name)
    found = views.transfers.find_outputs(client, names, mounted)
    chosen = found if all else [one.of_program for one in found]
    if hidden := sum(len(one.files) for one in found) - sum(len(one.files) for one in chosen):
        say(f"{counted(hidden, 'file')} of the runtime left out; --all includes them")
    for one in chosen:
        views.listings.report_left_out(one)
        if to is not None and (one.files or len(names) == 1):
            is_inner = len(names) > 1 or to.endswith("/")
            views.transfers.download(one, Path(to) / one.job if is_inner else Path(to))
    columns = ("name", "size", "modified")
    if len(names) == 1:
        show(c, chosen[0].rows, columns, output)
    else:
        rows = [{"job": one.job, **dataclasses.asdict(row)} for one in chosen for row in one.rows]
        show(c, rows, ("job", *columns), output)


@task(
    name="open",
    positional=["name"],
    help={
        "name": job_tasks.NAME_HELP,
        "no-browser": "only print the address",
        "cluster-alias": job_tasks.ALIAS_HELP,
    },
)
def open_(c, name, no_browser=False, cluster_alias=None):
    """Open a job's page in the web portal, and print its address."""
    client = connect(c, cluster_alias)
    views.browsing.open_job(client, sdk.jobs.find(client, name), no_browser)


@task(
    positional=["name"],
    iterable=["name"],
    help={"name": job_tasks.NAMES_HELP, "cluster-alias": job_tasks.ALIAS_HELP},
)
def why(c, name, cluster_alias=None, output=None):
    """Explain why jobs are waiting or have failed, and what to do."""
    client = connect(c, cluster_alias)
    found = [sdk.diagnosis.why(client, one) for one in sdk.sweeps.choose_names(client, name)]
    if len(found) == 1:
        show(c, found[0], render.explanation, output)
    else:
        show(c, found, render.explanations, output)
