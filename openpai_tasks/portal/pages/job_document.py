"""The document of a job: shown, explained, and submitted again with changes."""

from __future__ import annotations

import contextlib
import json
import secrets
from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from openpai_tasks import protocol, sdk
from openpai_tasks.errors import ConfigError, PaiError, ProtocolError
from openpai_tasks.portal.pages.job import check_files, find_job, find_own_record, job_page, submit_now
from openpai_tasks.portal.request import PortalRequest, once, redirect
from openpai_tasks.protocol.document.folding import fold, generated_steps, unfold
from openpai_tasks.protocol.document.reading import read_request
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk.jobs.documents import sort_keys
from openpai_tasks.sdk.jobs.outputs import SavedCheckpoint
from openpai_tasks.sdk.jobs.provenance import read_stamp
from openpai_tasks.sdk.jobs.records import mask_secrets
from openpai_tasks.sdk.jobs.submission import Submission
from openpai_tasks.sdk.jobs.unmasking import asked_secrets

FRESH = "fresh"
"""The choice to start without the checkpoints of the job."""
DEPENDENTS = "with_dependents"
"""The choice to submit what was stopped with the job, too."""


def page(request: PortalRequest) -> Response:
    job, document = _find(request)
    text, kind = as_text(document)
    folded = as_text(fold(document))[0]
    return job_page(request, "job_document.html", "document", job, text=text, kind=kind, folded=folded)


def download(request: PortalRequest) -> Response:
    """Return the document as a job file."""
    job, document = _find(request)
    text, kind = as_text(document)
    name = quote(f"{job.name}.{kind.lower()}", safe="")
    disposition = f"attachment; filename*=UTF-8''{name}"
    return Response(text, media_type="text/plain", headers={"content-disposition": disposition})


def as_text(document: dict[str, Any]) -> tuple[str, str]:
    """Return a document as people edit it, without secrets: YAML, or JSON for version 1; and its kind."""
    hidden = mask_secrets(document)
    if "jobName" in hidden and "protocolVersion" not in hidden:
        return json.dumps(hidden, indent=2, ensure_ascii=False) + "\n", "JSON"
    return protocol.dump(sort_keys(hidden)), "YAML"


def _find(request: PortalRequest) -> tuple[JobInfo, dict[str, Any]]:
    job = find_job(request)
    return job, sdk.jobs.submitted_document(request.client, job.key)


def provenance(request: PortalRequest) -> Response:
    job, document = _find(request)
    return job_page(
        request,
        "provenance.html",
        "provenance",
        job,
        stamp=read_stamp(document),
        mark=sdk.sweeps.read_sweep_mark(document),
        roles=sdk.jobs.describe_roles(document),
        steps=generated_steps(document),
        record=find_own_record(request, job),
    )


# Submit again


def resubmit(request: PortalRequest, problem: str = "", preview: Submission | None = None) -> Response:
    """Show the document of the job, to change it and submit it again."""
    job, document = sdk.jobs.job_document(request.client, request.params["key"])
    record = find_own_record(request, job)
    hidden = mask_secrets(document) | {"prerequisites": document.get("prerequisites")}
    return request.page(
        "resubmit.html",
        400 if problem else 200,
        text=request.form.get("document") or as_text(fold(document))[0],
        name=request.form.get("name", ""),
        secrets=asked_secrets(hidden, record.secrets if record else ()),
        left=read_request(document)[1],
        trouble=None,
        problem=problem,
        preview=preview,
        draft=secrets.token_urlsafe(16),
        **_resubmission_values(request, job, document),
    )


def resubmission_values(request: PortalRequest) -> dict[str, Any]:
    """Return what the pages of a resubmission share; for a new job, nothing."""
    if "key" not in request.params:
        return {"job": None, "key": ""}
    return _resubmission_values(request, *sdk.jobs.job_document(request.client, request.params["key"]))


def _resubmission_values(request: PortalRequest, job: JobInfo, document: dict[str, Any]) -> dict[str, Any]:
    return {
        "job": job,
        "key": request.params["key"],
        "checkpoint": _checkpoint(request, job, document),
        "is_fresh": request.form.get("start") == FRESH,
        "has_sources": bool(read_stamp(document).source_folder),
        "dependents": sdk.jobs.stopped_dependents(request.client, job),
        "with_dependents": DEPENDENTS in request.form,
    }


def wants_resume(request: PortalRequest) -> bool | None:
    """Return False to start from the beginning, or None for the usual way."""
    return False if request.form.get("start") == FRESH else None


def with_dependents(request: PortalRequest, made: Submission) -> Submission:
    """Add the jobs that were stopped with the job to its resubmission, if the user has chosen it."""
    if DEPENDENTS not in request.form:
        return made
    client, key = request.client, request.params["key"]
    how = (request.records, _refuse_secret, client.say, request.mounts)
    return sdk.jobs.add_dependents(client, client, key, made, *how)


def _refuse_secret(name: str, is_chosen: bool = True) -> str:
    raise ConfigError(f"a job that was stopped with it has the secret {name!r}: submit it again by itself")


def _checkpoint(request: PortalRequest, job: JobInfo, document: dict[str, Any]) -> SavedCheckpoint | None:
    if job.user != request.client.user:  # it cannot read the files of another user
        return None
    with contextlib.suppress(PaiError):
        return sdk.jobs.find_checkpoint(request.client, job.user, job.name, document, request.mounts)
    return None


def send(request: PortalRequest) -> Response:
    """Submit the job again, or show what would be sent."""

    def submit() -> str:
        client = request.client
        return submit_now(client, _submission(request)).key

    try:
        if "preview" in request.form:
            return resubmit(request, preview=_submission(request))
        return redirect("c", request.alias, "jobs", once(request, submit))
    except ProtocolError as err:
        return resubmit(request, "\n".join(map(str, err.problems)) or str(err))
    except PaiError as err:
        return resubmit(request, str(err))


def _submission(request: PortalRequest) -> Submission:
    check_files(request, find_job(request).user)
    edited = protocol.read(request.form.get("document", "").replace("\r\n", "\n")).value
    if not isinstance(edited, dict):
        raise ConfigError("the document must be a mapping of YAML")
    edited = unfold(edited, sdk.jobs.job_document(request.client, request.params["key"])[1])

    def secret(name: str, is_chosen: bool = True) -> str:
        value = request.form.get(f"secret.{name}", "")
        if not value:
            raise ConfigError(f"type the secret {name!r}: clusters never show it")
        return value

    client = request.client
    options = sdk.jobs.read_options({"job_name": request.form.get("name", "").strip()})
    changes = sdk.jobs.build_changes(options, secret)
    made = sdk.jobs.repeat(
        client,
        client,
        request.params["key"],
        changes,
        request.records,
        False,
        secret,
        client.say,
        request.mounts,
        edited,
        resume=wants_resume(request),
    )
    return with_dependents(request, made)
