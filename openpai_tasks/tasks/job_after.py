"""After a job: run it again, compare it, fetch what it wrote, look at it, understand it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from openpai_tasks import render, sdk
from openpai_tasks.tasks import job as job_tasks
from openpai_tasks.tasks import views
from openpai_tasks.tasks.framework import secrets, terminal
from openpai_tasks.tasks.framework.base import connect, say, settings, show, task

OTHER = "a job's name, or cluster:name for one of another cluster"


@task(
    positional=["name"],
    iterable=["update"],
    kinds={"gpu": int},
    help={
        "name": job_tasks.NAME_HELP,
        "job-name": "the new job's name; each $ becomes random letters; made from the old one if not given",
        "update": "path=value to change in its document; repeat for more",
        "gpu": "GPUs of each task that has some",
        "to": "the cluster to run it on, if not the same",
        "exact": "repeat what ./.openpai/jobs has on record of it: command, files, settings; or say why not",
        "follow": "stay, show the output, end with the job's own exit code",
        "plain": "of --follow: without colours and all else that steers a terminal",
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
    to=None,
    exact=False,
    follow=False,
    plain=False,
    preview=False,
    cluster_alias=None,
    output=None,
):
    """Submit a job again under a new name, with changes or exactly as it was."""
    request = sdk.jobs.JobRequest(name=job_name or "", updates=tuple(update or ()), gpu=gpu)
    source = connect(c, cluster_alias)
    target = connect(c, to) if to else source
    mounted = sdk.files.mounts(settings(c))
    original = sdk.jobs.find_original(source, name, Path.cwd(), request, exact, say, mounted)
    request = dataclasses.replace(request, tags=sdk.jobs.original_tags(source, target, name))
    submission = sdk.jobs.prepare_resubmission(original, target, request, secrets.for_document, mounted)
    views.submitting.send(c, target, submission, follow, preview, output, plain)


@task(
    positional=["first", "second"],
    help={"first": OTHER, "second": OTHER, "cluster-alias": job_tasks.ALIAS_HELP},
)
def diff(c, first, second, cluster_alias=None, output=None):
    """Show how the documents of two jobs differ."""
    (left, a), (right, b) = sdk.jobs.parse_reference(first), sdk.jobs.parse_reference(second)
    found = sdk.jobs.compare_jobs(connect(c, left or cluster_alias), a, connect(c, right or cluster_alias), b)
    if found.same:
        say(f"{found.a} and {found.b} do not differ")
    show(c, found, render.difference, output)


@task(
    positional=["name"],
    help={
        "name": job_tasks.NAME_HELP,
        "to": "copy the files into this folder; without it they are listed",
        "cluster-alias": job_tasks.ALIAS_HELP,
    },
)
def outputs(c, name, to=None, cluster_alias=None, output=None):
    """List the files that a job wrote to $PAI_OUTPUT_DIR, or bring them."""
    found = sdk.jobs.find_outputs(connect(c, cluster_alias), name, sdk.files.mounts(settings(c)))
    if found.left_out:
        say(f"left out, as no files of the job's own: {', '.join(found.left_out)}")
    if to is not None:
        with views.transfers.metered() as meter:
            brought = sdk.jobs.download_outputs(found, Path(to), meter)
        say(*views.listings.summary(brought).split("\n") if brought.failed else [_brought(found, to)])
        sdk.files.check_copied(brought)
    show(c, found.rows, ("name", "size", "modified"), output)


def _brought(found, to):
    return f"{len(found.files)} files, {render.size(found.size)}, are in {to}"


@task(
    name="open",
    positional=["name"],
    help={
        "name": job_tasks.NAME_HELP,
        "no-browser": "print the address only",
        "cluster-alias": job_tasks.ALIAS_HELP,
    },
)
def open_(c, name, no_browser=False, cluster_alias=None):
    """Print the address of a job's page in the web portal, and open it."""
    client = connect(c, cluster_alias)
    url = sdk.clusters.job_page(client, sdk.jobs.find(client, name))
    terminal.put(url)
    terminal.flush()
    if not sdk.clusters.has_portal(client):
        say(f"the embedded cluster has no web portal; `job.status {name}` shows the job")
    elif not no_browser and not sdk.clusters.open_browser(url):
        say("no browser could be opened")


@task(positional=["name"], help={"name": job_tasks.NAME_HELP, "cluster-alias": job_tasks.ALIAS_HELP})
def why(c, name, cluster_alias=None, output=None):
    """Explain why a job waits or has failed, and what to do."""
    show(c, sdk.diagnosis.why(connect(c, cluster_alias), name), render.explanation, output)
