"""Jobs at the older paths: v1 configurations, removal, and the configuration as submitted."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import quote

from starlette.responses import JSONResponse, Response

from openpai_tasks.errors import NotFound
from openpai_tasks.protocol import dump, routes, states
from openpai_tasks.server import api_errors
from openpai_tasks.server.api import submission
from openpai_tasks.server.api.context import Context
from openpai_tasks.server.api.handlers import jobs
from openpai_tasks.server.api.request import Reply, Request
from openpai_tasks.server.state.state import STOP

OBSOLETE = "killAllOnCompletedTaskNumber"
END_SECONDS, PAUSE_SECONDS = 20.0, 0.02  # seconds to wait for the end of a job, and between checks


def submit(context: Context, request: Request) -> Reply:
    """Submit a v1 configuration in JSON or a form; a name in the path takes precedence."""
    user, config = request.caller.account, request.body
    if request.params.get("user", user.name) != user.name:
        raise api_errors.forbidden(f"User {user.name} is not allowed to submit jobs of others.")
    if isinstance(config, dict) and "job" in request.params:
        config = {**config, "jobName": request.params["job"]}
    document, text = submission.read_v1(config)
    if document.virtual_cluster not in context.virtual_clusters:
        raise api_errors.no_virtual_cluster(document.virtual_cluster)
    environment = submission.read_environment(context, request)
    hooks = submission.read_hooks(context, request)
    with context.state.database.transaction():
        job, more = submission.accept(context, user, document, text, environment, hooks)
        context.state.add_v1_config(job.key, request.body)
    headers = {"location": routes.USER_JOB_V1.format(user=quote(user.name), job=quote(job.name))}
    if OBSOLETE in config:
        headers["x-warning"] = f"{OBSOLETE} is obsolete"
    return JSONResponse({"message": f"update job {job.name} successfully", **more}, 202, headers)


def submit_either(context: Context, request: Request) -> Reply:
    """Submit text as a v2 document, anything else as a v1 configuration."""
    handler = jobs.submit if isinstance(request.body, str) else submit
    return handler(context, request)


def remove(context: Context, request: Request) -> Reply:
    """Stop the job if necessary, and remove it."""
    job = jobs.find_own_job(context, request)
    if job.state not in states.FINAL:
        context.state.set_execution(job.key, STOP)
    limit = time.monotonic() + END_SECONDS
    while not context.state.remove(job.key):
        if time.monotonic() > limit:
            raise api_errors.unknown(f"Job {job.key} does not end.")
        time.sleep(PAUSE_SECONDS)
    return 202, {"message": f"delete job {job.name} successfully"}


def get_config(context: Context, request: Request) -> Reply:
    """Return the configuration as submitted, without secrets."""
    job = jobs.find_job(context, request)
    return _config(request, context.state.v1_config(job.key) or jobs.document_of(job))


def get_document(context: Context, request: Request) -> Reply:
    """Return the v2 document, also of a v1 job."""
    job = context.state.job(jobs.key(request))
    if job is None:
        raise NotFound(f"Config of job {jobs.key(request)} is not found.", 404, "NoJobConfigError")
    return _config(request, jobs.document_of(job))


def _config(request: Request, config: Any) -> Reply:
    """Return the configuration as JSON, or as YAML if the caller accepts it."""
    if "yaml" in request.headers.get("accept", ""):
        return Response(dump(config), media_type="text/yaml")
    return Response(jobs.compact(config), media_type="application/json; charset=utf-8")
