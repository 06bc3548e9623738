"""Submit commands and job files."""

from __future__ import annotations

import shlex
from pathlib import Path

from openpai_tasks.lazy import lazy
from openpai_tasks.tasks import _secrets
from openpai_tasks.tasks._base import connect, remainder, say, settings, task
from openpai_tasks.tasks._sending import only_looks, send
from openpai_tasks.tasks._sweeping import run_sweep

filling = lazy("openpai_tasks.sdk.filling")
keys = lazy("openpai_tasks.sdk.keys")
points = lazy("openpai_tasks.sdk.points")
mounts = lazy("openpai_tasks.storage.mounted")
submission = lazy("openpai_tasks.sdk.submission")
sweeps = lazy("openpai_tasks.sdk.sweeps")
wishes = lazy("openpai_tasks.sdk.wishes")

FOLLOW_HELP = "stay, show the output, end with the job's own exit code"
PREVIEW_HELP = "show exactly what would be sent (secrets masked), and send nothing"
UPDATE_HELP = "change the document first, path=value such as defaults.virtualCluster=lab; repeat for more"


@task(
    name="sub",
    positional=["command"],
    iterable=[
        *("sources", "pip_installs", "role", "ports", "env", "secret"),
        *("tag", "after", "parameter", "update", "sweep"),
    ],
    kinds={"cpu": int, "gpu": int, "instances": int, "max_parallel": int},
    help={
        "command": "what to run, in quotes; or everything behind --",
        "job-name": "its name; each $ becomes random letters; made from the command if not given",
        "image": "the docker image to run in",
        "sources": "file or folder to take along; repeat for more",
        "pip-installs": "package to install first; repeat for more",
        "python": "the python that installs packages",
        "instances": "how many tasks run the command",
        "role": "name:key=value,... (instances cpu gpu mem shm image ports command); repeat for more roles",
        "cpu": "CPU cores of each task",
        "gpu": "GPUs of each task",
        "memoryMB": "memory of each task: MB, or a size such as 16g",
        "shm": "shared memory of each task: MB, or a size such as 1g",
        "ports": "ports of each task, label=count; repeat for more",
        "env": "variable for the job, NAME=VALUE; repeat for more",
        "secret": "name of a secret variable; its value is in the environment here, or asked for",
        "retries": "how often the job is tried again after a failure",
        "max-time": "end each task after this time (90s, 30m, 2h), with exit code 124",
        "ssh": "open the containers to your key, for container.ssh and the like (docs/containers.md)",
        "tag": "tag to put on the job; repeat for more",
        "after": "submit only after this job has succeeded; repeat for more",
        "template": "take this template (see job.templates) in place of a plain job",
        "parameter": "parameter of the template, name=value; repeat for more",
        "update": UPDATE_HELP,
        "sweep": "name=value,value,...: a job for each value, {name} in the command; repeat for a grid",
        "sweep-file": "a job for each row of this CSV, JSON or YAML file",
        "max-parallel": "of a sweep, how many jobs may be unfinished at a time",
        "detach": "leave as soon as all jobs of a sweep are submitted",
        "workspace": "folder on the storage that the job's files are kept in",
        "virtual-cluster": "the part of the cluster to run in",
        "follow": FOLLOW_HELP,
        "preview": PREVIEW_HELP,
    },
)
def submit_command(
    c,
    command=None,
    job_name=None,
    image=None,
    sources=None,
    pip_installs=None,
    python=None,
    instances=None,
    role=None,
    cpu=None,
    gpu=None,
    memoryMB=None,
    shm=None,
    ports=None,
    env=None,
    secret=None,
    retries=0,
    max_time=None,
    ssh=False,
    tag=None,
    after=None,
    template=None,
    parameter=None,
    update=None,
    sweep=None,
    sweep_file=None,
    max_parallel=None,
    detach=False,
    workspace=None,
    virtual_cluster=None,
    follow=False,
    preview=False,
    cluster_alias=None,
    output=None,
):
    """Submit a command as a job, or as many."""
    memory = wishes.megabytes(memoryMB, "--memoryMB") if memoryMB is not None else None
    given = settings(
        c,
        image=image,
        sources=sources,
        pip_installs=pip_installs,
        python=python,
        cpu=cpu,
        gpu=gpu,
        memory_mb=memory,
        workspace=workspace,
        virtual_cluster=virtual_cluster,
    )
    wish = wishes.Wish(
        command=command if command is not None else shlex.join(remainder()),
        name=job_name or "",
        instances=1 if instances is None else instances,
        roles=tuple(role or ()),
        ports=tuple(ports or ()),
        shm=shm or "",
        variables=tuple(env or ()),
        secrets=wishes.secrets(secret or (), _secrets.for_job),
        retries=retries,
        max_time=max_time or "",
        template=template or "",
        ssh_key=keys.public_key(given) if ssh else "",
    )
    spec = wishes.spec(wish, given)
    flags = {"image": image, "instances": instances, "cpu": cpu, "gpu": gpu, "memoryMB": memory}
    base = filling.document(wish, Path.cwd(), flags, parameter or ())
    found = points.points(sweep or (), sweep_file)
    client = connect(c, cluster_alias)
    here, mounted = Path.cwd(), mounts.mount_map(given.storage_mounts)
    draft = submission.draft(client, spec, given.sources, given.workspace, here, base, mounted)
    if found:
        planned = sweeps.plan(draft, found, job_name, update or (), tag or ())
        run_sweep(c, client, planned, after or (), max_parallel, detach, only_looks(c, preview), output)
    else:
        only = only_looks(c, preview)
        send(c, client, draft.submission(update or ()), follow, only, output, after or (), tag or ())


@task(
    positional=["file"],
    iterable=["update", "tag", "after"],
    help={
        "file": "a job file: v2 YAML or v1 JSON",
        "update": UPDATE_HELP,
        "tag": "tag to put on the job; repeat for more",
        "after": "submit only after this job has succeeded; repeat for more",
        "follow": FOLLOW_HELP,
        "preview": PREVIEW_HELP,
    },
)
def submit(
    c,
    file,
    update=None,
    tag=None,
    after=None,
    follow=False,
    preview=False,
    cluster_alias=None,
    output=None,
):
    """Submit a job file."""
    submission.load(Path(file))  # most of what can be wrong with it needs no cluster to be told
    client = connect(c, cluster_alias)
    job = submission.read(Path(file), update or (), client.takes_v1)
    if job.converted:
        say(f"{file} is a v1 job; it is sent as v2")
    for change in job.renamed:
        say(f"version 2 does not allow a name: {change}")
    send(c, client, job, follow, only_looks(c, preview), output, after or (), tag or ())
