"""SSH endpoints of a job's tasks, as in OpenPAI 0.14, and the job's private key for its owner."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from openpai_tasks.errors import Denied
from openpai_tasks.protocol import routes, states
from openpai_tasks.server import api_errors
from openpai_tasks.server.accounts.tokens import KEYS
from openpai_tasks.server.accounts.users import Identity
from openpai_tasks.server.api.context import Context
from openpai_tasks.server.api.handlers import jobs
from openpai_tasks.server.api.request import Reply, Request
from openpai_tasks.server.ssh.logins import JOB_KEY, key_folder
from openpai_tasks.server.state.records import Job
from openpai_tasks.settings.key_pairs import KeyPair, read_pair

HDFS_NODE = "127.0.0.1:5070"  # address of OpenPAI's name node; only a name here


def get_ssh(context: Context, request: Request) -> Reply:
    """Return the tasks that accept logins now, and the job's key pair, if there is one."""
    job = jobs.find_job(context, request)
    ready = [
        {"id": task.uid, "sshIp": context.engine.ssh_host or task.ip, "sshPort": str(task.ports["ssh"][0])}
        for task in context.state.tasks(job.key, job.attempt)
        if task.state == states.RUNNING and context.engine.is_ssh_ready(task)
    ]
    if not ready:
        raise api_errors.no_ssh(job.key)
    return 200, {"containers": ready, "keyPair": _key_pair(context, request, job)}


def refuse_ssh(context: Context, request: Request) -> Reply:
    """Refuse: with OpenPAI on Kubernetes, clients use the task's SSH port."""
    raise api_errors.no_ssh(request.params["job"])


def get_key(context: Context, request: Request) -> Reply:
    """Return a file of the job's key pair to its owner, by a token or by the ticket in a link."""
    job = context.state.job(request.params["job"])
    caller = _caller(context, request)
    claims = context.tokens.read_ticket(KEYS, request.first("ticket")) or {}
    if caller is None and claims.get("job") != request.params["job"]:
        raise api_errors.guest()
    if caller and not (caller.admin or (job is not None and job.user == caller.user)):
        raise api_errors.forbidden(f"User {caller.user} is not allowed to read keys of others.")
    pair = _pair(context, job) if job and job.user == request.params["user"] else None
    if job is None or pair is None:
        raise api_errors.no_ssh(request.params["job"])
    content = {job.key: pair.private, f"{job.key}.pub": f"{pair.public}\n"}.get(request.params["file"])
    if content is None:
        raise api_errors.no_ssh(job.key)
    return Response(content, media_type="application/octet-stream")


def _key_pair(context: Context, request: Request, job: Job) -> dict[str, Any] | None:
    if _pair(context, job) is None:
        return None
    path = {"user": quote(job.user), "job": quote(job.key)}
    link = routes.SSH_KEY.format(node=HDFS_NODE, file=quote(job.key), **path)
    caller = _caller(context, request)
    owns = caller is not None and caller.user == job.user
    ticket = f"&ticket={context.tokens.ticket(KEYS, {'job': job.key})}" if owns else ""
    return {
        "folderPath": routes.SSH_KEYS.format(**path),
        "publicKeyFileName": f"{job.key}.pub",
        "privateKeyFileName": job.key,
        "privateKeyDirectDownloadLink": f"{request.site}{link}?op=OPEN{ticket}",
    }


def _caller(context: Context, request: Request) -> Identity | None:
    """Return the caller of a route that needs no token, or None."""
    header = request.headers.get("authorization", "")
    if request.identity is not None or not header:
        return request.identity
    try:
        return context.tokens.identify(header)
    except Denied:
        return None


def _pair(context: Context, job: Job) -> KeyPair | None:
    return read_pair(key_folder(context.state.folder, job.key), JOB_KEY)
