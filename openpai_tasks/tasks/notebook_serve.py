"""Serve Jupyter in a job, and bring back what was changed there."""

from __future__ import annotations

from pathlib import Path

from openpai_tasks.errors import ConfigError
from openpai_tasks.lazy import lazy
from openpai_tasks.tasks import _secrets
from openpai_tasks.tasks import job as job_tasks
from openpai_tasks.tasks._base import connect, say, settings, show, task
from openpai_tasks.tasks._sending import only_looks, submitted
from openpai_tasks.tasks.job_submit import PREVIEW_HELP, UPDATE_HELP

session = lazy("openpai_tasks.tasks._serving")
documents = lazy("openpai_tasks.sdk.documents")
links = lazy("openpai_tasks.sdk.notebook_link")
mounts = lazy("openpai_tasks.storage.mounted")
notebooks = lazy("openpai_tasks.sdk.notebooks")
serving = lazy("openpai_tasks.sdk.notebook_serve")
wishes = lazy("openpai_tasks.sdk.wishes")


@task(
    positional=["file"],
    iterable=["sources", "pip_installs", "env", "secret", "tag", "after", "update"],
    kinds={"cpu": int, "gpu": int, "port": int},
    help={
        "file": "the notebook to open; without it Jupyter shows the job's folder",
        "idle": "end the job after this time without activity (90s, 30m, 2h), or never",
        "timeout": "end the job after this time in any case",
        "wait": "how long to wait until Jupyter answers",
        "token": "what opens the server; a random one if not given",
        "token-file": "the file with it; - is the standard input",
        "direct": "use the node's own address in place of an ssh tunnel",
        "port": "the port of this machine that leads to it; any that is free if not given",
        "no-browser": "print the address, with its token, and open no browser",
        "reconnect": "the job of an earlier call, in place of a new one",
        "stop": "stop the job at the end; else it is asked for, and without a terminal the job goes on",
        "job-name": "its name; each $ becomes random letters; made from the notebook's if not given",
        "image": "the docker image to run in",
        "sources": "file or folder to take along; repeat for more",
        "pip-installs": "package to install first; repeat for more",
        "python": "the python of the image that runs Jupyter and installs packages",
        "cpu": "CPU cores of the job",
        "gpu": "GPUs of the job",
        "memoryMB": "memory of the job: MB, or a size such as 16g",
        "shm": "shared memory of the job: MB, or a size such as 1g",
        "env": "variable for the job, NAME=VALUE; repeat for more",
        "secret": "name of a secret variable; its value is in the environment here, or asked for",
        "tag": "tag to put on the job; repeat for more",
        "after": "submit only after this job has succeeded; repeat for more",
        "update": UPDATE_HELP,
        "workspace": "folder on the storage that the job's files are kept in",
        "virtual-cluster": "the part of the cluster to run in",
        "preview": PREVIEW_HELP,
    },
)
def serve(
    c,
    file=None,
    idle="2h",
    timeout=None,
    wait="30m",
    token=None,
    token_file=None,
    direct=False,
    port=0,
    no_browser=False,
    reconnect=None,
    stop=False,
    job_name=None,
    image=None,
    sources=None,
    pip_installs=None,
    python=None,
    cpu=None,
    gpu=None,
    memoryMB=None,
    shm=None,
    env=None,
    secret=None,
    tag=None,
    after=None,
    update=None,
    workspace=None,
    virtual_cluster=None,
    preview=False,
    cluster_alias=None,
    output=None,
):
    """Serve Jupyter in a job and open it in the browser, by a tunnel; Ctrl-C brings the changes back."""
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
    here, mounted = Path.cwd(), mounts.mount_map(given.storage_mounts)
    limit = wishes.seconds(wait, "--wait")
    options = serving.options(session.token_from(token, token_file), idle, timeout or "", direct)
    way = links.Way(direct, port)
    how = session.Stay(given, limit, no_browser, stop, output, here, mounted)
    if reconnect:
        if file:
            raise ConfigError("--reconnect takes a job that is there: leave the notebook out")
        client = connect(c, cluster_alias)
        job, document = documents.of_job(client, reconnect)
        mark = serving.check_mark(job, document)
        chosen = options.token if token or token_file else serving.token_of(client, job)
        return session.stay(
            c, client, job, session.Door(links.Way(mark.direct, port), chosen, mark.file), how
        )
    notebook = notebooks.read(file, here) if file else None
    wish = wishes.Wish(
        name=job_name or "",
        shm=shm or "",
        variables=tuple(env or ()),
        secrets=wishes.secrets(secret or (), _secrets.for_job),
    )
    client = connect(c, cluster_alias)
    draft = serving.plan(client, notebook, options, wish, given, here, mounted)
    job = submitted(client, draft.submission(update or ()), only_looks(c, preview), after or (), tag or ())
    if job:
        serving.keep(client, job, options, notebook)
        say(f"job {job.name} is submitted to {client.cluster.alias}")
        serving.forget_all(client)
        session.stay(c, client, job, session.Door(way, options.token, notebook.name if notebook else ""), how)


@task(
    positional=["name"],
    help={
        "name": job_tasks.NAME_HELP,
        "target": "folder to put everything in; where it came from if not given",
        "cluster-alias": job_tasks.ALIAS_HELP,
    },
)
def pull(c, name, target=None, cluster_alias=None, output=None):
    """Bring back the notebooks that were changed in a served job; nothing changed here is written over."""
    client, mounted = connect(c, cluster_alias), mounts.mount_map(settings(c).storage_mounts)
    show(
        c,
        session.bring(client, name, Path.cwd(), mounted, Path(target) if target else None),
        session.PULLED,
        output,
    )
