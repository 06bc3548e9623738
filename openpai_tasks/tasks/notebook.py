"""Run notebooks as jobs, and bring their results."""

from __future__ import annotations

from pathlib import Path

from openpai_tasks import sdk
from openpai_tasks.tasks import job as job_tasks
from openpai_tasks.tasks import views
from openpai_tasks.tasks.framework import secrets
from openpai_tasks.tasks.framework.alike import alike
from openpai_tasks.tasks.framework.base import connect, say, settings, task
from openpai_tasks.tasks.views.job_flags import RUN, job_request, job_settings, job_task

LOCAL = "local"
NO_BROWSER_HELP = "do not open the result in a browser"
DETACH_HELP = "leave as soon as the job is submitted; `notebook.fetch` brings its results later"


@job_task(
    *RUN,
    positional=["file"],
    iterable=["parameter", "to"],
    help={
        "file": "the notebook",
        "parameter": "name=value, set behind the cell that is tagged `parameters`; repeat for more",
        "to": "what to make of the executed notebook: html (if not given), pdf, script; or ipynb, it alone",
        "kernel": "the kernel to run it with, if not the one it names",
        "timeout-per-cell": "end the run when a cell takes longer than this (90s, 30m, 2h)",
        "allow-errors": "go on after a cell that fails",
        "no-browser": NO_BROWSER_HELP,
        "detach": DETACH_HELP,
        "job-name": "its name; each $ becomes random letters; made from the notebook's if not given",
        "python": "the python of the image that runs it and installs packages",
    },
)
def run(
    c,
    file,
    *,
    flags,
    parameter=None,
    to=None,
    kernel=None,
    timeout_per_cell=None,
    allow_errors=False,
    no_browser=False,
    detach=False,
    cluster_alias=None,
    output=None,
):
    """Run a notebook as a job, cell by cell, and bring the executed notebook and a web page of it."""
    given, here = job_settings(c, flags), Path.cwd()
    notebook = sdk.notebooks.read_notebook(file, here)
    values = sdk.notebooks.parse_parameters(parameter or ())
    options = sdk.notebooks.run_options(values, to or (), kernel or "", timeout_per_cell or "", allow_errors)
    views.notebooks.tell(sdk.notebooks.remarks(notebook, options))
    request = job_request(flags, given)
    client, mounted = connect(c, cluster_alias), sdk.files.mounts(given)
    submission = sdk.notebooks.plan_run(client, notebook, options, request, here, mounted)
    only = views.submitting.only_looks(c, flags)
    sent = views.notebooks.launch(c, client, submission, only, detach, output)
    if sent:
        views.notebooks.finish(c, client, sent.name, notebook.path.parent, no_browser, output, mounted)


@task(positional=["file"], iterable=run.iterable, kinds=run.kinds, help=run.help)
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
    client, mounted = connect(c, cluster_alias), sdk.files.mounts(settings(c))
    found = sdk.notebooks.find_results(client, name, mounted)
    where = Path(folder) if folder else sdk.notebooks.results_folder(Path.cwd(), client.cluster.alias, found)
    views.notebooks.finish(c, client, name, where, no_browser, output, mounted, follow)


@job_task(
    *("gpu", "cpu", "memoryMB", "image", "virtual_cluster", "job_name", "update", "preview"),
    positional=["what"],
    iterable=["parameter"],
    help={
        "what": "a notebook, as it is now, with all that its last run was given; or a job, as it was sent",
        "parameter": "name=value, in place of the value it had; the others stay; repeat for more",
        "job-name": "the new job's name; each $ becomes random letters; made from the old one if not given",
        "update": "path=value to change in its document; repeat for more",
        "source-cluster": "the cluster that has the job; else the one that it was submitted to from here",
        "no-browser": NO_BROWSER_HELP,
        "detach": DETACH_HELP,
        "cluster-alias": "the cluster to run it on; the selected one if not given",
    },
)
def resubmit(
    c,
    what,
    *,
    flags,
    parameter=None,
    source_cluster=None,
    no_browser=False,
    detach=False,
    cluster_alias=None,
    output=None,
):
    """Run a notebook again with other resources: same code, parameters kept."""
    memory = flags.get("memoryMB")
    request = sdk.jobs.JobRequest(
        name=flags.get("job_name", ""),
        updates=tuple(flags.get("update", ())),
        gpu=flags.get("gpu"),
        cpu=flags.get("cpu"),
        memory_mb=None if memory is None else sdk.amounts.megabytes(memory, "--memoryMB"),
        image=flags.get("image", ""),
        virtual_cluster=flags.get("virtual_cluster", ""),
    )
    parameters = sdk.notebooks.parse_parameters(parameter or ())
    here, mounted = Path.cwd(), sdk.files.mounts(settings(c))
    chosen = sdk.notebooks.choose_original(
        what, here, source_cluster or "", cluster_alias or settings(c).cluster_alias
    )
    if chosen.is_new:
        words = {**chosen.settings, **flags, **({"parameter": parameter} if parameter else {})}
        words |= {"no_browser": no_browser, "detach": detach, "output": output}
        return run.body(c, what, cluster_alias=cluster_alias, **words)
    target = connect(c, cluster_alias)
    source = target
    if chosen.cluster != target.cluster.alias:  # a record of the project may have named it, not the user
        source = sdk.clusters.connect(settings(c, cluster_alias=source_cluster or None), chosen.cluster, say)
    prepared = sdk.notebooks.prepare_rerun(
        chosen, source, target, request, parameters, here, secrets.for_document, mounted
    )
    say(f"runs again: {prepared.description}")
    views.notebooks.tell(prepared.remarks)
    sent = views.notebooks.launch(
        c, target, prepared.submission, views.submitting.only_looks(c, flags), detach, output
    )
    if sent:
        found = sdk.notebooks.find_results(target, sent.name, mounted)
        where = sdk.notebooks.results_folder(here, target.cluster.alias, found)
        views.notebooks.finish(c, target, sent.name, where, no_browser, output, mounted)
