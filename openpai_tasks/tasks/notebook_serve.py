"""Serve Jupyter from a job, and pull what was changed there."""

from __future__ import annotations

from pathlib import Path

from openpai_tasks import sdk
from openpai_tasks.tasks import job as job_tasks
from openpai_tasks.tasks import views
from openpai_tasks.tasks.framework.base import connect, say, settings, show
from openpai_tasks.tasks.framework.task import task
from openpai_tasks.tasks.views.job_flags import RUN, job_request, job_settings, job_task


@job_task(
    *(name for name in RUN if name not in ("retries", "max_time")),
    positional=["file"],
    kinds={"port": int},
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
        "reconnect": "open this job of an earlier call instead of submitting a new one",
        "stop": "stop the job at the end without asking; without a terminal, jobs are left running otherwise",
        "job-name": "name of the job; each $ becomes random letters (default: made from the notebook's)",
        "python": "python in the image that runs Jupyter and installs packages",
    },
)
def serve(
    c,
    file=None,
    *,
    flags,
    idle=None,
    timeout=None,
    wait="30m",
    token=None,
    token_file=None,
    direct=False,
    port=0,
    no_browser=False,
    reconnect=None,
    stop=False,
    cluster_alias=None,
    output=None,
):
    """Serve Jupyter from a job and open it in the browser; Ctrl-C pulls your changes."""
    given = job_settings(c, flags)
    here, mounted = Path.cwd(), sdk.files.mounts(given)
    limit, way = sdk.amounts.parse_seconds(wait, "--wait"), sdk.notebooks.LinkOptions(direct, port)
    chosen = views.serving.token_from_flags(token, token_file)
    session = views.serving.ServeSession(given, limit, no_browser, stop, output, here, mounted)
    if reconnect:
        views.serving.refuse_new_job_flags(file, {**flags, "idle": idle, "timeout": timeout})
        return _reconnect(
            c, connect(c, cluster_alias), reconnect, views.serving.ServerAccess(way, chosen), session
        )
    options = sdk.notebooks.serve_options(
        chosen, sdk.notebooks.IDLE if idle is None else idle, timeout or "", direct
    )
    notebook = sdk.notebooks.read_notebook(file, here) if file else None
    request = job_request(flags, given)
    client = connect(c, cluster_alias)
    came_from = sdk.notebooks.source_origins(notebook, given.sources, here)
    key = "" if direct else sdk.ssh.public_key(given)
    made = sdk.notebooks.plan_server(client, notebook, options, request, key, here, mounted)
    sent = views.submitting.submit_or_preview(client, made, views.submitting.is_preview(c, flags))
    if sent:
        own = (notebook.name, str(notebook.path)) if notebook else ("", "")
        sdk.notebooks.save_session(client, sent, sdk.notebooks.SavedSession(options.token, *own, came_from))
        say(f"job {sent.name} submitted to {client.cluster.alias}")
        sdk.notebooks.forget_all_ended(client)
        access = views.serving.ServerAccess(way, options.token, notebook.name if notebook else "")
        views.serving.serve_until_done(c, client, sent, access, session)


def _reconnect(c, client, name, access, session):
    """Open the server of an existing job; what is not given is read from the job."""
    job, document = sdk.jobs.job_document(client, name)
    mark = sdk.notebooks.check_reconnect(job, document, access.way.direct)
    token = sdk.notebooks.check_token(access.token) if access.token else sdk.notebooks.token_of(client, job)
    views.serving.serve_until_done(
        c,
        client,
        job,
        views.serving.ServerAccess(sdk.notebooks.LinkOptions(mark.direct, access.way.port), token, mark.file),
        session,
    )


@task(
    positional=["name"],
    help={
        "name": job_tasks.NAME_HELP,
        "target": "folder for the files (default: where they came from)",
        "cluster-alias": job_tasks.ALIAS_HELP,
    },
)
def pull(c, name, target=None, cluster_alias=None, output=None):
    """Pull the notebooks that were changed in a served job, without overwriting changes made here."""
    client, mounted = connect(c, cluster_alias), sdk.files.mounts(settings(c))
    pulled = views.serving.pull_changes(client, name, Path.cwd(), mounted, Path(target) if target else None)
    show(c, pulled.files, views.serving.PULLED, output)
    sdk.notebooks.check_pulled(pulled)
