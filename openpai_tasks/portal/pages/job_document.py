"""The document of a job, and where it comes from: commit, sources, command."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from openpai_tasks import protocol, sdk
from openpai_tasks.errors import PaiError
from openpai_tasks.portal.pages.job_frame import find_job, job_page
from openpai_tasks.portal.request import PortalRequest
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk.jobs.documents import sort_keys
from openpai_tasks.sdk.jobs.provenance import read_stamp
from openpai_tasks.sdk.jobs.records import Record, find_record, mask_secrets


def page(request: PortalRequest) -> Response:
    job, document = _find(request)
    text, kind = as_text(document)
    return job_page(request, "job_document.html", "document", job, text=text, kind=kind)


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
        scripts=_own_commands(document),
        record=find_own_record(request, job),
    )


def find_own_record(request: PortalRequest, job: JobInfo) -> Record | None:
    """Return what this project's folder recorded about the submission."""
    try:
        return find_record(request.records, job.name, request.alias)
    except PaiError:
        return None


def _own_commands(document: dict[str, Any]) -> dict[str, str]:
    """Return the commands of each role."""
    roles = document.get("taskRoles")
    if isinstance(roles, dict):
        found = {name: role.get("commands") for name, role in roles.items() if isinstance(role, dict)}
    else:
        rows = [role for role in roles or () if isinstance(role, dict)]
        found = {str(role.get("name")): role.get("command") for role in rows}
    return {
        str(name): "\n".join(map(str, lines)) if isinstance(lines, list) else str(lines or "")
        for name, lines in found.items()
    }
