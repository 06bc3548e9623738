"""Serve Jupyter in a job, and bring back what was changed there."""

from __future__ import annotations

from pathlib import Path

from openpai_tasks import sdk
from openpai_tasks.tasks import job as job_tasks
from openpai_tasks.tasks import views
from openpai_tasks.tasks.framework.base import connect, say, settings, show, task
from openpai_tasks.tasks.views.job_flags import RUN, job_request, job_settings, job_task


@job_task(
    *(name for name in RUN if name not in ("retries", "max_time")),
    positional=["file"],
    kinds={"port": int},
    help={
        "file": "the notebook to open; without it Jupyter shows the job's folder",
        "idle": "end the job after this time without activity (90s, 30m, 2h), or never; 2h if not given",
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
        "python": "the python of the image that runs Jupyter and installs packages",
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
    """Serve Jupyter in a job and open it in the browser, by a tunnel; Ctrl-C brings the changes back."""
    given = job_settings(c, flags)
    here, mounted = Path.cwd(), sdk.files.mounts(given)
    limit, way = sdk.amounts.seconds(wait, "--wait"), sdk.notebooks.LinkOptions(direct, port)
    chosen = views.serving.token_from(token, token_file)
    how = views.serving.Stay(given, limit, no_browser, stop, output, here, mounted)
    if reconnect:
        views.serving.refuse_for_new(file, {**flags, "idle": idle, "timeout": timeout})
        return _again(c, connect(c, cluster_alias), reconnect, views.serving.Door(way, chosen), how)
    options = sdk.notebooks.serve_options(
        chosen, sdk.notebooks.IDLE if idle is None else idle, timeout or "", direct
    )
    notebook = sdk.notebooks.read_notebook(file, here) if file else None
    request = job_request(flags, given)
    client = connect(c, cluster_alias)
    came_from = sdk.notebooks.source_origins(notebook, given.sources, here)
    key = "" if direct else sdk.ssh.public_key(given)
    made = sdk.notebooks.plan_server(client, notebook, options, request, key, here, mounted)
    sent = views.submitting.submitted(client, made, views.submitting.only_looks(c, flags))
    if sent:
        own = (notebook.name, str(notebook.path)) if notebook else ("", "")
        sdk.notebooks.save_session(client, sent, sdk.notebooks.SavedSession(options.token, *own, came_from))
        say(f"job {sent.name} is submitted to {client.cluster.alias}")
        sdk.notebooks.forget_all_ended(client)
        door = views.serving.Door(way, options.token, notebook.name if notebook else "")
        views.serving.stay(c, client, sent, door, how)


def _again(c, client, name, door, how):
    """Stay with a job that is there; of the way in, what was not given is as the job says."""
    job, document = sdk.jobs.job_document(client, name)
    mark = sdk.notebooks.check_reconnect(job, document, door.way.direct)
    token = sdk.notebooks.check_token(door.token) if door.token else sdk.notebooks.token_of(client, job)
    views.serving.stay(
        c,
        client,
        job,
        views.serving.Door(sdk.notebooks.LinkOptions(mark.direct, door.way.port), token, mark.file),
        how,
    )


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
    client, mounted = connect(c, cluster_alias), sdk.files.mounts(settings(c))
    pulled = views.serving.bring(client, name, Path.cwd(), mounted, Path(target) if target else None)
    show(c, pulled.files, views.serving.PULLED, output)
    sdk.notebooks.check_pulled(pulled)
