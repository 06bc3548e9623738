"""Run notebooks as jobs, and fetch their results."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from invoke.context import Context

from openpai_tasks import sdk
from openpai_tasks.tasks import views
from openpai_tasks.tasks.framework import secrets
from openpai_tasks.tasks.framework.base import connect, say, settings, show
from openpai_tasks.tasks.framework.task import flags_of, with_flags
from openpai_tasks.tasks.framework.task import typed_task as task
from openpai_tasks.tasks.job import RESUBMIT_HELP
from openpai_tasks.tasks.views.job_flags import (
    BATCH_ONLY,
    RUN,
    choose_cluster,
    job_options,
    job_request,
    job_settings,
    job_task,
)

if TYPE_CHECKING:
    from openpai_tasks.backends.base import Backend
    from openpai_tasks.tasks.views.serving import ServeSession

LOCAL = "local"
NO_BROWSER_HELP = "do not open the result in a browser"
DETACH_HELP = "return as soon as the job is submitted; notebook.fetch fetches its results later"


@job_task(
    *RUN,
    help={
        "file": "the notebook",
        "parameter": "parameter, name=value, set after the cell with the defaults; repeat for more",
        "to": "format to convert to: html, pdf, script, or ipynb for none (default: html); repeat for more",
        "kernel": "kernel to run it with (default: the one it names)",
        "timeout-per-cell": "fail if a cell takes longer than this (90s, 30m, 2h)",
        "allow-errors": "continue after a cell that fails",
        "no-browser": NO_BROWSER_HELP,
        "detach": DETACH_HELP,
        "job-name": "name of the job; each $ becomes random letters (default: made from the notebook's)",
        "python": "python in the image that runs it and installs packages",
    },
)
def run(
    c: Context,
    file: str,
    *,
    flags: dict[str, Any],
    parameter: list[str] | None = None,
    to: list[str] | None = None,
    kernel: str | None = None,
    timeout_per_cell: str | None = None,
    allow_errors: bool = False,
    no_browser: bool = False,
    detach: bool = False,
    cluster_alias: str | None = None,
    output: str | None = None,
) -> None:
    """Run a notebook as a job, and fetch the executed notebook and a web page of it."""
    wanted, here = job_options(flags), Path.cwd()
    notebook = sdk.notebooks.read_notebook(file, here)
    values = sdk.notebooks.parse_parameters(parameter or ())
    options = sdk.notebooks.run_options(values, to or (), kernel or "", timeout_per_cell or "", allow_errors)
    views.notebooks.show_notes(sdk.notebooks.remarks(notebook, options))
    cluster_alias = choose_cluster(c, cluster_alias, job_options(flags, command="true"), has_files=True)
    given = job_settings(c, wanted, cluster_alias)
    request = job_request(wanted, given)
    client, mounted = connect(c, cluster_alias), sdk.files.mounts(given)
    submission = sdk.notebooks.plan_run(client, notebook, options, request, here, mounted)
    only = views.submitting.is_preview(c, flags)
    sent = views.submitting.start(c, client, submission, not detach, only, output, "notebook.fetch")
    if sent:
        views.notebooks.finish(c, client, sent.name, notebook.path.parent, no_browser, output, mounted)


@task(help=run.help)
@with_flags(flags_of(run, without="cluster_alias"))
def local(c: Context, file: str, *, flags: dict[str, Any]) -> None:
    """Run a notebook on the embedded cluster; otherwise like notebook.run."""
    run.body(c, file, **flags, cluster_alias=LOCAL)


@task(
    help={
        "folder": "folder for the results (default: next to the notebook)",
        "follow": "wait until the job ends first, and show its progress",
        "no-browser": NO_BROWSER_HELP,
    },
)
def fetch(
    c: Context,
    name: str,
    folder: str | None = None,
    follow: bool = False,
    no_browser: bool = False,
    cluster_alias: str | None = None,
    output: str | None = None,
) -> None:
    """Fetch the results of a notebook job, or the cells that are done so far."""
    client, mounted = connect(c, cluster_alias), sdk.files.mounts(settings(c))
    found = sdk.notebooks.find_results(client, name, mounted)
    where = Path(folder) if folder else sdk.notebooks.results_folder(Path.cwd(), client.cluster.alias, found)
    views.notebooks.finish(c, client, name, where, no_browser, output, mounted, follow)


@job_task(
    *("gpu", "cpu", "memoryMB", "image", "virtual_cluster", "job_name", "secret", "update", "preview"),
    help={
        **RESUBMIT_HELP,
        "what": "a notebook, to run as it is now with the flags of its last run; or a job, to repeat",
        "parameter": "parameter to change, name=value; the others stay; repeat for more",
        "resume": "continue at its last checkpoint, as it does by default; fail if it has none",
        "source-cluster": "the cluster that has the job (default: the one it was submitted to from here)",
        "no-browser": NO_BROWSER_HELP,
        "detach": DETACH_HELP,
        "cluster-alias": "the cluster to run it on (default: the selected one)",
    },
)
def resubmit(
    c: Context,
    what: str,
    *,
    flags: dict[str, Any],
    parameter: list[str] | None = None,
    fresh: bool = False,
    resume: bool = False,
    source_cluster: str | None = None,
    no_browser: bool = False,
    detach: bool = False,
    cluster_alias: str | None = None,
    output: str | None = None,
) -> None:
    """Run a notebook again with other resources, keeping its code and parameters."""
    start = sdk.jobs.choose_start(fresh, resume)
    request = sdk.jobs.build_changes(job_options(flags), secrets.job_secret)
    parameters = sdk.notebooks.parse_parameters(parameter or ())
    here, mounted = Path.cwd(), sdk.files.mounts(settings(c))
    chosen = sdk.notebooks.choose_original(
        what, here, source_cluster or "", cluster_alias or settings(c).cluster_alias
    )
    if chosen.is_new:
        sdk.notebooks.check_first_run(chosen, start)
        words = {**chosen.settings, **flags, **({"parameter": parameter} if parameter else {})}
        words |= {"no_browser": no_browser, "detach": detach, "output": output}
        run.body(c, what, cluster_alias=cluster_alias, **words)
        return
    target = connect(c, cluster_alias)
    source = target
    if chosen.cluster != target.cluster.alias:  # a record of the project may have named it, not the user
        source = sdk.clusters.connect(settings(c, cluster_alias=source_cluster or None), chosen.cluster, say)
    prepared = sdk.notebooks.prepare_rerun(
        chosen, source, target, request, parameters, here, secrets.document_secret, mounted, start
    )
    say(f"running again: {prepared.description}")
    views.notebooks.show_notes(prepared.remarks)
    only, again = views.submitting.is_preview(c, flags), "notebook.fetch"
    sent = views.submitting.start(c, target, prepared.submission, not detach, only, output, again)
    if sent:
        found = sdk.notebooks.find_results(target, sent.name, mounted)
        where = sdk.notebooks.results_folder(here, target.cluster.alias, found)
        views.notebooks.finish(c, target, sent.name, where, no_browser, output, mounted)


@job_task(
    *(name for name in RUN if name not in BATCH_ONLY),
    positional=["file"],
    help={
        "file": "the notebook to open (default: Jupyter shows the job's folder)",
        "idle": "end the job after this time without activity: 90s, 30m, 2h or never (default: 2h)",
        "timeout": "end the job after this time in any case",
        "wait": "how long to wait for Jupyter to answer",
        "token": "token of the server (default: a random one)",
        "token-file": "file with the token; - for standard input",
        "direct": "use the node's own address instead of an ssh tunnel",
        "port": "local port of the tunnel (default: any free one)",
        "no-browser": "print the address, with its token, instead of opening a browser",
        "reconnect": "reconnect to this job instead of submitting a new one",
        "stop": "stop the job at the end without asking; without this flag and a terminal, it keeps running",
        "job-name": "name of the job; each $ becomes random letters (default: made from the notebook's)",
        "python": "python in the image that runs Jupyter and installs packages",
    },
)
def serve(
    c: Context,
    file: str | None = None,
    *,
    flags: dict[str, Any],
    idle: str | None = None,
    timeout: str | None = None,
    wait: str = "30m",
    token: str | None = None,
    token_file: str | None = None,
    direct: bool = False,
    port: int = 0,
    no_browser: bool = False,
    reconnect: str | None = None,
    stop: bool = False,
    cluster_alias: str | None = None,
    output: str | None = None,
) -> None:
    """Serve Jupyter from a job and open it in the browser; Ctrl-C pulls your changes."""
    wanted = job_options(flags)
    if not reconnect:
        described = job_options(flags, command="true")
        cluster_alias = choose_cluster(c, cluster_alias, described, has_files=True, ssh=not direct)
    given = job_settings(c, wanted, cluster_alias)
    here, mounted = Path.cwd(), sdk.files.mounts(given)
    limit, way = sdk.amounts.read("wait", sdk.amounts.seconds, wait), sdk.notebooks.LinkOptions(direct, port)
    chosen = views.serving.token_from_flags(token, token_file)
    session = views.serving.ServeSession(given, limit, no_browser, stop, output, mounted, way, chosen)
    if reconnect:
        views.serving.check_reconnect_flags(file, {**flags, "idle": idle, "timeout": timeout})
        return _reconnect(c, connect(c, cluster_alias), reconnect, session)
    options = sdk.notebooks.serve_options(
        chosen, sdk.amounts.IDLE if idle is None else idle, timeout or "", direct
    )
    notebook = sdk.notebooks.read_notebook(file, here) if file else None
    request = job_request(wanted, given)
    client = connect(c, cluster_alias)
    came_from = sdk.notebooks.source_origins(notebook, given.sources, here)
    key = "" if direct else sdk.ssh.public_key(given)
    made = sdk.notebooks.plan_server(client, notebook, options, request, key, here, mounted)
    sent = views.submitting.submit_or_preview(client, made, views.submitting.is_preview(c, flags), output)
    if sent:
        own = (notebook.name, str(notebook.path)) if notebook else ("", "")
        sdk.notebooks.save_session(client, sent, sdk.notebooks.SavedSession(options.token, *own, came_from))
        say(f"job {sent.name} submitted to {client.cluster.alias}")
        sdk.notebooks.forget_all_ended(client)
        session = dataclasses.replace(session, token=options.token, file=own[0])
        views.serving.serve_until_done(c, client, sent, session)


def _reconnect(c: Context, client: Backend, name: str, session: ServeSession) -> None:
    """Open the server of an existing job; what is not given is read from the job."""
    job, document = sdk.jobs.job_document(client, name)
    mark = sdk.notebooks.check_reconnect(job, document, session.way.direct)
    given = session.token
    token = sdk.notebooks.check_token(given) if given else sdk.notebooks.token_of(client, job)
    way = sdk.notebooks.LinkOptions(mark.direct, session.way.port)
    session = dataclasses.replace(session, way=way, token=token, file=mark.file)
    views.serving.serve_until_done(c, client, job, session)


@task(
    help={
        "target": "folder for the files (default: where they came from)",
    },
)
def pull(
    c: Context,
    name: str,
    target: str | None = None,
    cluster_alias: str | None = None,
    output: str | None = None,
) -> None:
    """Pull the notebooks that were changed in a served job, without overwriting changes made here."""
    client, mounted = connect(c, cluster_alias), sdk.files.mounts(settings(c))
    pulled = views.serving.pull_changes(client, name, Path.cwd(), mounted, Path(target) if target else None)
    show(c, pulled.files, views.serving.PULLED, output)
    sdk.notebooks.check_pulled(pulled)
