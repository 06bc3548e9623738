"""Run notebooks as jobs, and bring their results."""

from __future__ import annotations

from pathlib import Path

from openpai_tasks.lazy import lazy
from openpai_tasks.tasks import _secrets
from openpai_tasks.tasks import job as job_tasks
from openpai_tasks.tasks._alike import alike
from openpai_tasks.tasks._base import connect, say, settings, task
from openpai_tasks.tasks._sending import only_looks

running = lazy("openpai_tasks.tasks._notebooks")
mounts = lazy("openpai_tasks.storage.mounted")
notebooks = lazy("openpai_tasks.sdk.notebooks")
resubmit_ = lazy("openpai_tasks.sdk.notebook_resubmit")
results = lazy("openpai_tasks.sdk.notebook_results")
wishes = lazy("openpai_tasks.sdk.wishes")

LOCAL = "local"
NO_BROWSER_HELP = "do not open the result in a browser"
DETACH_HELP = "leave as soon as the job is submitted; `notebook.fetch` brings its results later"
PARAMETER_HELP = "name=value, set behind the cell that is tagged `parameters`; repeat for more"

LISTS = ["sources", "pip_installs", "env", "secret", "tag", "after", "parameter", "update", "to"]
KINDS = {"cpu": int, "gpu": int, "retries": int}
HELP = {
    "file": "the notebook",
    "parameter": PARAMETER_HELP,
    "to": "what to make of the executed notebook: html (if not given), pdf, script; or ipynb, it alone",
    "kernel": "the kernel to run it with, if not the one it names",
    "timeout-per-cell": "end the run when a cell takes longer than this (90s, 30m, 2h)",
    "allow-errors": "go on after a cell that fails",
    "no-browser": NO_BROWSER_HELP,
    "detach": DETACH_HELP,
    "job-name": "its name; each $ becomes random letters; made from the notebook's if not given",
    "image": "the docker image to run in",
    "sources": "file or folder to take along; repeat for more",
    "pip-installs": "package to install first; repeat for more",
    "python": "the python of the image that runs it and installs packages",
    "cpu": "CPU cores of the job",
    "gpu": "GPUs of the job",
    "memoryMB": "memory of the job: MB, or a size such as 16g",
    "shm": "shared memory of the job: MB, or a size such as 1g",
    "env": "variable for the job, NAME=VALUE; repeat for more",
    "secret": "name of a secret variable; its value is in the environment here, or asked for",
    "retries": "how often the job is tried again after a failure",
    "max-time": "end the job after this time (90s, 30m, 2h), with exit code 124",
    "tag": "tag to put on the job; repeat for more",
    "after": "submit only after this job has succeeded; repeat for more",
    "update": "change the document first, path=value such as defaults.virtualCluster=lab; repeat for more",
    "workspace": "folder on the storage that the job's files are kept in",
    "virtual-cluster": "the part of the cluster to run in",
    "preview": "show exactly what would be sent (secrets masked), and send nothing",
}


@task(positional=["file"], iterable=LISTS, kinds=KINDS, help=HELP)
def run(
    c,
    file,
    parameter=None,
    to=None,
    kernel=None,
    timeout_per_cell=None,
    allow_errors=False,
    no_browser=False,
    detach=False,
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
    retries=0,
    max_time=None,
    tag=None,
    after=None,
    update=None,
    workspace=None,
    virtual_cluster=None,
    preview=False,
    cluster_alias=None,
    output=None,
):
    """Run a notebook as a job, cell by cell, and bring the executed notebook and a web page of it."""
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
    here = Path.cwd()
    notebook = notebooks.read(file, here)
    options = notebooks.options(parameter or (), to or (), kernel or "", timeout_per_cell or "", allow_errors)
    running.tell(notebooks.remarks(notebook, options))
    wish = wishes.Wish(
        name=job_name or "",
        shm=shm or "",
        variables=tuple(env or ()),
        secrets=wishes.secrets(secret or (), _secrets.for_job),
        retries=retries,
        max_time=max_time or "",
    )
    client, mounted = connect(c, cluster_alias), mounts.mount_map(given.storage_mounts)
    draft = notebooks.plan(client, notebook, options, wish, given, here, mounted)
    job = running.launch(
        c, client, draft.submission(update or ()), only_looks(c, preview), detach, output, after, tag
    )
    if job:
        running.finish(c, client, job.name, notebook.path.parent, no_browser, output, mounted)


@task(positional=["file"], iterable=LISTS, kinds=KINDS, help=HELP)
@alike(run, cluster_alias=LOCAL)
def local(c, file, flags):
    """Run a notebook on the embedded cluster, whatever cluster is selected; else as notebook.run."""
    run.body(c, file, **flags)


@task(
    positional=["name"],
    help={
        "name": job_tasks.NAME_HELP,
        "folder": "where to put the results; next to the notebook if not given",
        "follow": "first wait until the job is over, and show how far it is",
        "no-browser": NO_BROWSER_HELP,
        "cluster-alias": job_tasks.ALIAS_HELP,
    },
)
def fetch(c, name, folder=None, follow=False, no_browser=False, cluster_alias=None, output=None):
    """Bring what a notebook job has written until now: whole, or the cells that are done."""
    client, mounted = connect(c, cluster_alias), mounts.mount_map(settings(c).storage_mounts)
    found = results.find(client, name, mounted)
    where = Path(folder) if folder else results.folder_of(Path.cwd(), client.cluster.alias, found)
    running.finish(c, client, name, where, no_browser, output, mounted, follow)


@task(
    positional=["what"],
    iterable=["parameter", "update"],
    kinds={"cpu": int, "gpu": int},
    help={
        "what": "a notebook, as it is now, with all that its last run was given; or a job, as it was sent",
        "gpu": "GPUs of the job",
        "cpu": "CPU cores of the job",
        "memoryMB": "memory of the job: MB, or a size such as 16g",
        "image": "the docker image to run in",
        "virtual-cluster": "the part of the cluster to run in",
        "parameter": "name=value, in place of the value it had; the others stay; repeat for more",
        "job-name": "the new job's name; each $ becomes random letters; made from the old one if not given",
        "update": "path=value to change in its document; repeat for more",
        "source-cluster": "the cluster that has the job; else the one that it was submitted to from here",
        "no-browser": NO_BROWSER_HELP,
        "detach": DETACH_HELP,
        "preview": HELP["preview"],
        "cluster-alias": "the cluster to run it on; the selected one if not given",
    },
)
def resubmit(
    c,
    what,
    gpu=None,
    cpu=None,
    memoryMB=None,
    image=None,
    virtual_cluster=None,
    parameter=None,
    job_name=None,
    update=None,
    source_cluster=None,
    no_browser=False,
    detach=False,
    preview=False,
    cluster_alias=None,
    output=None,
):
    """Run a notebook again with other resources: same code, parameters kept."""
    wanted = resubmit_.Wanted(
        name=job_name or "",
        updates=tuple(update or ()),
        gpu=gpu,
        cpu=cpu,
        memory_mb=wishes.megabytes(memoryMB, "--memoryMB") if memoryMB is not None else None,
        image=image or "",
        virtual_cluster=virtual_cluster or "",
        parameters=notebooks.parameters(parameter or ()),
    )
    here, mounted = Path.cwd(), mounts.mount_map(settings(c).storage_mounts)
    chosen = resubmit_.chosen(what, here, source_cluster or "", cluster_alias or settings(c).cluster_alias)
    if chosen.is_new:
        flags = {**chosen.settings, **_given(gpu=gpu, cpu=cpu, memoryMB=memoryMB, image=image)}
        flags |= _given(
            virtual_cluster=virtual_cluster, parameter=parameter, job_name=job_name, update=update
        )
        flags |= {"no_browser": no_browser, "detach": detach, "preview": preview, "output": output}
        return run.body(c, what, cluster_alias=cluster_alias, **flags)
    target = connect(c, cluster_alias)
    source = target if chosen.cluster == target.cluster.alias else connect(c, chosen.cluster)
    prepared = resubmit_.prepare(chosen, source, target, wanted, here, _secrets.for_job, mounted)
    say(f"runs again: {prepared.told}")
    running.tell(prepared.remarks)
    job = running.launch(c, target, prepared.submission, only_looks(c, preview), detach, output)
    if job:
        found = results.find(target, job.name, mounted)
        where = results.folder_of(here, target.cluster.alias, found)
        running.finish(c, target, job.name, where, no_browser, output, mounted)


def _given(**flags):
    """Those that were given."""
    return {name: value for name, value in flags.items() if value not in (None, [], ())}
