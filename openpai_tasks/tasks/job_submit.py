"""Submit commands and job files."""

from __future__ import annotations

from pathlib import Path

from openpai_tasks import sdk
from openpai_tasks.tasks import views
from openpai_tasks.tasks.framework.base import connect, say, the_command
from openpai_tasks.tasks.views.job_flags import FLAGS, job_task

FOLLOW_HELP = "stay, show the output, end with the job's own exit code"
PLAIN_HELP = "of --follow: without colours and all else that steers a terminal"


@job_task(
    *FLAGS,
    name="sub",
    positional=["command"],
    iterable=["parameter", "sweep"],
    kinds={"max_parallel": int},
    help={
        "command": "what to run, in quotes; or everything behind --",
        "ssh": "open the containers to your key, for container.ssh and the like (docs/containers.md)",
        "template": "take this template (see job.templates) in place of a plain job",
        "parameter": "parameter of the template, name=value; repeat for more",
        "sweep": "name=value,value,...: a job for each value, {name} in the command; repeat for a grid",
        "sweep-file": "a job for each row of this CSV, JSON or YAML file",
        "max-parallel": "of a sweep, how many jobs may be unfinished at a time",
        "detach": "leave as soon as all jobs of a sweep are submitted",
        "follow": FOLLOW_HELP,
        "plain": PLAIN_HELP,
    },
)
def submit_command(
    c,
    command=None,
    *,
    job,
    ssh=False,
    template=None,
    parameter=None,
    sweep=None,
    sweep_file=None,
    max_parallel=None,
    detach=False,
    follow=False,
    plain=False,
    cluster_alias=None,
    output=None,
):
    """Submit a command as a job, or as many."""
    given = job.settings(c)
    wish = job.wish(
        command=the_command(command),
        template=template or "",
        ssh_key=sdk.ssh.public_key(given) if ssh else "",
    )
    spec = sdk.jobs.spec(wish, given)
    sizes = {"instances": job.instances, "cpu": job.cpu, "gpu": job.gpu, "memoryMB": job.memory_mb}
    base = sdk.templates.fill_template(wish, Path.cwd(), {"image": job.image, **sizes}, parameter or ())
    found = sdk.sweeps.parse_points(sweep or (), sweep_file)
    client = connect(c, cluster_alias)
    here, mounted = Path.cwd(), sdk.files.mounts(given)
    draft = sdk.jobs.draft(client, spec, given.sources, given.workspace, here, base, mounted)
    only = views.submitting.only_looks(c, job.preview)
    if found:
        planned = sdk.sweeps.plan_sweep(draft, found, job.job_name, job.update, job.tag)
        views.sweeps.run_sweep(c, client, planned, job.after, max_parallel, detach, only, output)
    else:
        views.submitting.send(
            c, client, draft.submission(job.update), follow, only, output, job.after, job.tag, plain
        )


@job_task(
    *("update", "tag", "after", "preview"),
    positional=["file"],
    help={"file": "a job file: v2 YAML or v1 JSON", "follow": FOLLOW_HELP, "plain": PLAIN_HELP},
)
def submit(c, file, *, job, follow=False, plain=False, cluster_alias=None, output=None):
    """Submit a job file."""
    sdk.jobs.load_document(Path(file))  # most of what can be wrong with it needs no cluster to be told
    client = connect(c, cluster_alias)
    read = sdk.jobs.read_job_file(Path(file), job.update, client.capabilities.v1_documents)
    if read.converted:
        say(f"{file} is a v1 job; it is sent as v2")
    for change in read.renamed:
        say(f"version 2 does not allow a name: {change}")
    views.submitting.send(
        c,
        client,
        read,
        follow,
        views.submitting.only_looks(c, job.preview),
        output,
        job.after,
        job.tag,
        plain,
    )
