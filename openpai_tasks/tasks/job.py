"""Submit jobs, follow them, stop them."""

from __future__ import annotations

import contextlib
import shlex
import sys
from pathlib import Path

from openpai_tasks.lazy import lazy
from openpai_tasks.tasks._base import connect, remainder, say, settings, show, task
from openpai_tasks.tasks._screen import Screen

jobs = lazy("openpai_tasks.sdk.jobs")
logs_ = lazy("openpai_tasks.sdk.logs")
protocol = lazy("openpai_tasks.protocol")
render = lazy("openpai_tasks.render")

COLUMNS = ("name", "state", "virtual_cluster", "submitted", "duration", "exit", "retries")
SUBMITTED = ("name", "state", "virtual_cluster")

ALIAS_HELP = "the cluster; `local` is the embedded one"
NAME_HELP = "the job's name, or user~name for somebody else's"


@task(
    name="sub",
    positional=["command"],
    iterable=["sources", "pip_installs"],
    kinds={"cpu": int, "gpu": int, "memoryMB": int},
    help={
        "command": "what to run, in quotes; or everything behind --",
        "job-name": "its name; each $ becomes random letters; made from the command if not given",
        "image": "the docker image to run in",
        "sources": "file or folder to take along; repeat for more",
        "pip-installs": "package to install first; repeat for more",
        "python": "the python that installs packages",
        "cpu": "CPU cores",
        "gpu": "GPUs",
        "memoryMB": "memory in MB",
        "workspace": "folder on the storage that the sources go to",
        "virtual-cluster": "the part of the cluster to run in",
        "follow": "stay, show the output, end with the job's own exit code",
        "preview": "show exactly what would be sent, and send nothing",
        "cluster-alias": ALIAS_HELP,
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
    cpu=None,
    gpu=None,
    memoryMB=None,
    workspace=None,
    virtual_cluster=None,
    follow=False,
    preview=False,
    cluster_alias=None,
    output=None,
):
    """Submit a command as a job."""
    given = settings(
        c,
        image=image,
        sources=sources,
        pip_installs=pip_installs,
        python=python,
        cpu=cpu,
        gpu=gpu,
        memory_mb=memoryMB,
        workspace=workspace,
        virtual_cluster=virtual_cluster,
    )
    spec = protocol.JobSpec(
        command=command if command is not None else shlex.join(remainder()),
        name=job_name or "",
        image=given.image,
        cpu=given.cpu,
        gpu=given.gpu,
        memory_mb=given.memory_mb,
        virtual_cluster=given.virtual_cluster or None,
        pip_installs=given.pip_installs,
        python=given.python,
    )
    client = connect(c, cluster_alias)
    _send(
        c,
        client,
        jobs.prepare(client, spec, given.sources, given.workspace, Path.cwd()),
        follow,
        preview,
        output,
    )


@task(
    positional=["file"],
    help={
        "file": "a job file: v2 YAML or v1 JSON",
        "follow": "stay, show the output, end with the job's own exit code",
        "preview": "show exactly what would be sent, and send nothing",
        "cluster-alias": ALIAS_HELP,
    },
)
def submit(c, file, follow=False, preview=False, cluster_alias=None, output=None):
    """Submit a job file."""
    submission, converted = jobs.read(Path(file))
    if converted:
        say(f"{file} is a v1 job; it is sent as v2")
    _send(c, connect(c, cluster_alias), submission, follow, preview, output)


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
    show(c, found, COLUMNS if user is None else ("user", *COLUMNS), output)


@task(positional=["name"], help={"name": NAME_HELP, "cluster-alias": ALIAS_HELP})
def status(c, name, cluster_alias=None, output=None):
    """Show one job and its tasks."""
    show(c, jobs.describe(connect(c, cluster_alias), name), render.status, output)


@task(positional=["name"], help={"name": NAME_HELP, "cluster-alias": ALIAS_HELP})
def config(c, name, cluster_alias=None, output=None):
    """Show the document a job was submitted as, secrets masked."""
    show(c, jobs.config(connect(c, cluster_alias), name), (), output or "yaml")


@task(
    positional=["name"],
    kinds={"index": int, "lines": int},
    help={
        "name": NAME_HELP,
        "follow": "go on until the job is over, and end with its exit code",
        "role": "only this task role",
        "index": "only this task",
        "stdout": "only what went to stdout",
        "stderr": "only what went to stderr",
        "lines": "only the last so many lines of each task",
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
    cluster_alias=None,
):
    """Show a job's output."""
    client = connect(c, cluster_alias)
    which = logs_.Which(role, index, logs_.stream(stdout, stderr))
    with _goes_on(name, follow):
        _write(logs_.output(client, name, which, follow=follow, lines=lines))
    if follow:
        jobs.check(jobs.find(client, name))


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
    with _goes_on(name):
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
    screen = Screen(sys.stdout)
    with _goes_on(name):
        for job in jobs.watch(connect(c, cluster_alias), name):
            screen.show(render.status(job), render.progress(job))
    jobs.check(job)


@task(positional=["files"], iterable=["files"], help={"files": "job files: v2 YAML or v1 JSON"})
def validate(c, files, output=None):
    """Check job files without a cluster."""
    verdicts = [jobs.verdict(Path(file)) for file in files]
    show(c, verdicts, ("file", "valid", "problem"), output)
    jobs.check_verdicts(verdicts)


def _send(c, client, submission, follow, preview, output):
    """Show what would be sent, or send it and stay or leave."""
    if submission.sources:
        total = f"{len(submission.sources)} files, {render.size(submission.size)}"
        say(f"sources: {total} to {submission.storage.name}:/{submission.folder}")
    if preview:
        for source in submission.sources:
            say(f"  {source.name}  {render.size(source.size)}")
        say(f"would POST to {client.submit_url}; nothing was sent")
        print(submission.text, end="")
        return
    job = jobs.submit(client, submission)
    if not follow:
        show(c, [job], SUBMITTED, output)
        return
    say(f"job {job.name} is submitted to {client.cluster.alias}")
    with _goes_on(job.name):
        _write(logs_.output(client, job.name, logs_.Which(), follow=True))
    jobs.check(jobs.find(client, job.name))


def _write(chunks):
    for data in chunks:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


@contextlib.contextmanager
def _goes_on(name, follows=True):
    """Ctrl-C ends the watching, never the job."""
    try:
        yield
    except KeyboardInterrupt:
        if follows:
            say(f"\njob {name} goes on; `job.logs {name} --follow` shows it again, `job.stop {name}` ends it")
        raise
