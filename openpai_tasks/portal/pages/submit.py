"""Submit a job file: the editor with its templates, validation, conversion and preview."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.responses import JSONResponse, Response

from openpai_tasks import sdk
from openpai_tasks.errors import ApiError, Conflict, Denied, PaiError, ProtocolError, Unreachable
from openpai_tasks.portal.pages.job import submit_now
from openpai_tasks.portal.request import PortalRequest, once, redirect
from openpai_tasks.protocol.legacy.v1 import schema_v1
from openpai_tasks.protocol.problems import refusal
from openpai_tasks.render import plan_rows
from openpai_tasks.sdk.jobs.provenance import Origin
from openpai_tasks.sdk.jobs.submission import Submission
from openpai_tasks.sdk.templates.catalog import Template

HELLO = "hello"
PARAMETER = "p."
"""Before the names of a template's parameters in an address."""


@dataclass(frozen=True)
class Refusal:
    """Why a job was not submitted, and the job that has its name."""

    message: str
    status: int = 400
    taken: str = ""


def page(request: PortalRequest) -> Response:
    """Show the editor with a template in it, or with a job that is ready to be sent."""
    _takes_v1(request)  # connect first: an unknown cluster has no editor
    templates = _templates(request)
    name = request.query.get("template", "")
    chosen = next((one for one in templates if one.name == name), None)
    values = {
        key.removeprefix(PARAMETER): value
        for key, value in request.query.items()
        if key.startswith(PARAMETER) and value
    }
    trouble = None
    if name and chosen is None:
        trouble = Refusal(f"there is no template named {name!r}", 404)
    try:
        text = _fill(chosen, values) if chosen else _hello(templates)
    except PaiError as err:
        text, trouble = _fill(chosen, {}) if chosen else "", Refusal(str(err))
    return _page(request, text, trouble, templates, chosen, values)


def send(request: PortalRequest) -> Response:
    """Submit the text; show it again with the reason if it is refused."""
    text = _text(request)
    answer = submit(request, lambda: _record(request, _read(request, text)))
    return _page(request, text, answer, _templates(request)) if isinstance(answer, Refusal) else answer


def submit(request: PortalRequest, prepare: Callable[[], Submission]) -> Response | Refusal:
    """Submit a job once and redirect to its page; or return why it is refused."""
    name = ""

    def act() -> str:
        nonlocal name
        made = prepare()
        name = made.name
        return submit_now(request.client, made).key

    try:
        return redirect("c", request.alias, "jobs", once(request, act))
    except PaiError as err:
        if isinstance(err, (Denied, Unreachable)):  # the cluster may have changed: connect again
            request.session.forget(request.alias)
        if isinstance(err, Conflict):
            return Refusal(str(err), 409, f"{request.client.user}~{name}")
        if isinstance(err, ApiError) and 400 <= err.status < 600:
            return Refusal(str(err), err.status)
        return Refusal(str(err))


def check(request: PortalRequest) -> Response:
    """Return the problems of the text with their lines, and what would be changed for this cluster."""
    text = _text(request)
    verdict = sdk.jobs.validate_text(text)
    problems: list[dict[str, Any]] = [
        {"line": one.line, "path": one.path, "rule": one.rule} for one in verdict.problems
    ]
    notes: list[str] = []
    if verdict.valid:
        try:
            notes = _notes(sdk.jobs.read_document(text, _takes_v1(request)))
        except ProtocolError as err:
            problems = [{"line": None, "path": "", "rule": str(err)}]
    return JSONResponse({"version": verdict.version, "problems": problems, "notes": notes})


def preview(request: PortalRequest) -> Response:
    """Return the plan of the job, and exactly what would be sent, with its secrets masked."""
    return JSONResponse(preview_of(request, _read(request, _text(request))))


def preview_of(request: PortalRequest, made: Submission) -> dict[str, Any]:
    """Return the plan of a submission, and what it would send; nothing is sent."""
    plan = sdk.jobs.make_plan(request.client, made)
    return {
        "plan": [[name.capitalize(), line] for name, line in plan_rows(plan)],
        "text": made.shown,
        "folded": made.folded,
        "is_masked": made.shown != made.text,
        "notes": _notes(made),
        "files": [[one.name, one.size] for one in made.archive.members] if made.archive else [],
    }


def convert(request: PortalRequest) -> Response:
    """Return a v1 job as v2."""
    made = sdk.jobs.read_document(_text(request), takes_v1=False)
    return JSONResponse({"text": made.text, "notes": list(made.renamed)})


def schema(request: PortalRequest) -> Response:
    """Return the JSON Schemas of job files, from which the editor completes."""
    return JSONResponse({"v1": schema_v1(), "v2": sdk.templates.job_schema()})


def _page(
    request: PortalRequest,
    text: str,
    trouble: Refusal | None,
    templates: list[Template],
    chosen: Template | None = None,
    values: Mapping[str, str] | None = None,
) -> Response:
    return request.page(
        "submit.html",
        trouble.status if trouble else 200,
        text=text,
        trouble=trouble,
        templates=templates,
        chosen=chosen,
        job=None,
        values=values or {},
        draft=secrets.token_urlsafe(16),
    )


def _templates(request: PortalRequest) -> list[Template]:
    """Return the templates that can be used; other users do not see those of the owner's project."""
    folder = sdk.templates.packaged_folder() if request.session.only else request.project
    return [one for one in sdk.templates.list_templates(folder) if not one.problem]


def _hello(templates: list[Template]) -> str:
    return next((_fill(one, {}) for one in templates if one.name == HELLO), "")


def _fill(template: Template, values: Mapping[str, str]) -> str:
    return sdk.templates.fill(template, values, sdk.jobs.new_name("", template.name))


def _text(request: PortalRequest) -> str:
    """Return the text of the editor; browsers send other line ends than were typed."""
    return request.form.get("text", "").replace("\r\n", "\n")


def _read(request: PortalRequest, text: str) -> Submission:
    verdict = sdk.jobs.validate_text(text)
    if not verdict.valid:
        raise refusal(verdict.problems)
    return sdk.jobs.read_document(text, _takes_v1(request))


def _record(request: PortalRequest, made: Submission) -> Submission:
    """Let the submission be recorded in the project; those of other users are not."""
    return made if request.session.only else dataclasses.replace(made, origin=Origin(request.project))


def _takes_v1(request: PortalRequest) -> bool:
    return request.client.capabilities.v1_documents


def _notes(made: Submission) -> list[str]:
    if not made.converted:
        return []
    renamed = [f"Renamed for protocol v2: {change}." for change in made.renamed]
    return ["This is a v1 job; this cluster gets it as v2.", *renamed]
