"""Submit commands and job files."""

from __future__ import annotations

from pathlib import Path

from openpai_tasks import sdk
from openpai_tasks.tasks import views
from openpai_tasks.tasks.framework import secrets
from openpai_tasks.tasks.framework.base import command_text, connect, say, settings
from openpai_tasks.tasks.views.job_flags import FLAGS, job_request, job_settings, job_task

FOLLOW_HELP = "show the output until the job ends, and exit with its exit code"
PLAIN_HELP = "with --follow: without colours and other terminal escapes"


@job_task(
    *FLAGS,
    name="sub",
    positional=["command"],
    iterable=["parameter", "sweep"],
    kinds={"max_parallel": int},
    help={
        "command": "what to run, in quotes; or everything after --",
        "ssh": "allow ssh logins with your key, for container.ssh and similar (docs/containers.md)",
        "template": "use this template (see job.templates) instead of a plain job",
        "parameter": "parameter of the template, name=value; repeat for more",
        "sweep": "name=value,value,...: a job per value, {name} in the command; repeat for a grid",
        "sweep-file": "a job per row of this CSV, JSON or YAML file",
        "max-parallel": "how many jobs of a sweep may be unfinished at a time",
        "detach": "return as soon as all jobs of a sweep are submitted",
        "follow": FOLLOW_HELP,
        "plain": PLAIN_HELP,
    },
)
def submit_command(
    c,
    command=None,
    *,
    flags,
    ssh=False,
    template=None,
    parameter=None,
    sweep=None,
    sweep_file=None,
    max_parallel=None,
    detach=False,
    follow=False,
    plain=False,
    notify=False,
    cluster_alias=None,
    output=None,
):
    """Submit a command as a job, or as a sweep of jobs."""
    given, here = job_settings(c, flags), Path.cwd()
    flags |= {"command": command_text(command), "template": template, "parameter": parameter, "ssh": ssh}
    request = sdk.templates.request_from_flags(flags, given, secrets.job_secret, here)
    found = sdk.sweeps.parse_points(sweep or (), sweep_file)
    client = connect(c, cluster_alias)
    packed, files = sdk.jobs.pack_files(client, request, here, sdk.files.mounts(given))
    only = views.submitting.is_preview(c, flags)
    if found:
        names = {"is_named": bool(request.name), "has_free_names": client.capabilities.free_names}
        planned = sdk.sweeps.plan_sweep(packed, files, found, **names)
        views.sweeps.run_sweep(c, client, planned, max_parallel, detach, only, output)
    else:
        views.submitting.send(c, client, sdk.jobs.build(packed, files), follow, only, output, plain, notify)


@job_task(
    *("update", "tag", "after", "preview"),
    positional=["file"],
    help={"file": "a job file: v2 YAML or v1 JSON", "follow": FOLLOW_HELP, "plain": PLAIN_HELP},
)
def submit(c, file, *, flags, follow=False, plain=False, notify=False, cluster_alias=None, output=None):
    """Submit a job file."""
    sdk.jobs.load_document(Path(file))  # report mistakes in the file before contacting the cluster
    client = connect(c, cluster_alias)
    takes_v1 = client.capabilities.v1_documents
    read = sdk.jobs.read_job_file(Path(file), job_request(flags, settings(c)), takes_v1)
    if read.converted:
        say(f"{file} is a v1 job; submitting it as v2")
    for change in read.renamed:
        say(f"renamed for protocol v2: {change}")
    only = views.submitting.is_preview(c, flags)
    views.submitting.send(c, client, read, follow, only, output, plain, notify)
