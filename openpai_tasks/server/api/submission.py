"""Checks of submitted jobs, in OpenPAI's order."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from typing import Any

from openpai_tasks.errors import ApiError, ProtocolError
from openpai_tasks.protocol import JobDocument, dump, fit_names, to_v2, validate, validate_v1
from openpai_tasks.protocol.document import references
from openpai_tasks.protocol.document.job import check
from openpai_tasks.protocol.document.rules import Report
from openpai_tasks.protocol.document.schema import JOB
from openpai_tasks.protocol.environment import HEADER, decode, encode
from openpai_tasks.protocol.problems import Problem
from openpai_tasks.protocol.routes import OWN_FIELD, job_key
from openpai_tasks.protocol.yaml.reader import Source, read
from openpai_tasks.server import refusals
from openpai_tasks.server.accounts.users import User
from openpai_tasks.server.api.context import Context
from openpai_tasks.server.api.notices import missing_resources, notices
from openpai_tasks.server.api.request import Request
from openpai_tasks.server.state.records import Job
from openpai_tasks.settings.engines import REFUSE_GPUS, REFUSE_LARGER

Body = dict[str, Any]


def read_document(text: object) -> JobDocument:
    """Parse and validate the document; raise the same errors as OpenPAI."""
    if not isinstance(text, str):  # JSON or an unknown type: only text/* is a document
        raise refusals.invalid_protocol(_listing([Problem("", "should be object")]))
    try:
        source = read(text)
    except ProtocolError as err:
        raise ApiError(str(err), 500) from err
    try:
        return check(source)
    except ProtocolError as err:
        raise _refusal(source, err) from err


def read_v1(config: object) -> tuple[JobDocument, str]:
    """Convert a v1 configuration to a v2 document; return the document and its text."""
    try:
        if not isinstance(config, dict):
            raise ProtocolError("a job configuration must be an object")
        job = validate_v1(config)
        fitting, _ = fit_names(job)
        text = dump(to_v2({**fitting, "authFile": ""}))  # no image is pulled, so no registry needs it
        return dataclasses.replace(validate(text), name=job["jobName"]), text
    except ProtocolError as err:
        raise refusals.invalid(str(err)) from err


def read_environment(context: Context, request: Request) -> str:
    """Return the submitter's variables as JSON; empty if there are none, or tasks have those of an image."""
    given = request.headers.get(HEADER, "")
    if not given or context.engine.uses_images:
        return ""
    try:
        return encode(decode(given))
    except ProtocolError as err:
        raise refusals.invalid(str(err)) from err


def accept(
    context: Context, user: User, document: JobDocument, text: str, environment: str = ""
) -> tuple[Job, Body]:
    """Store a job that may run, with events for what will not be as it asks for.

    Return the job, and the addition to the answer that tells our clients the same.
    """
    _check_permissions(context, user, document)
    found = notices(context, document)
    with context.state.database.transaction():
        job = context.state.submit(user.name, document, text, environment)
        for kind, reason in dict.fromkeys((notice.type, notice.reason) for notice in found):
            same = [
                notice.message for notice in found if notice.reason == reason
            ]  # a job has one event of it
            context.state.add_event(job.key, kind, reason, "; ".join(same))
    lines = [notice.message for notice in found]
    return job, {OWN_FIELD: {"notices": lines}} if lines else {}


def _check_permissions(context: Context, user: User, document: JobDocument) -> None:
    """Raise for a name in use, a virtual cluster or a storage that the user may not use, and for a job that
    the engine can never run.
    """
    if context.state.has_job(job_key(user.name, document.name)):
        raise refusals.job_exists(document.name)
    if document.virtual_cluster not in user.virtual_clusters:
        raise refusals.forbidden(f"User {user.name} may not use virtual cluster {document.virtual_cluster}.")
    for mount in document.storages or ():
        if mount.name not in user.storages:
            raise refusals.no_storage(mount.name)
    problem = context.engine.problem(document)
    if problem:
        raise refusals.invalid(problem)
    _check_size(context, document)


def _check_size(context: Context, document: JobDocument) -> None:
    """Raise for a job that is larger than the machine, if that is not allowed."""
    found = missing_resources(context, document)
    if found and context.enforce == REFUSE_LARGER:
        raise refusals.invalid(f"{found[0].fact}; {found[0].wish}, and local.enforce is true")
    if context.enforce == REFUSE_GPUS and (few := [one for one in found if one.is_partial]):
        override = "to run it with what is there, restart the cluster with local.enforce set to false"
        raise refusals.invalid(f"{few[0].fact}; {few[0].wish}; {override}")


def _refusal(source: Source, err: ProtocolError) -> ApiError:
    """Return the error of the step that failed; invalid YAML and broken templates have no code."""
    report = Report(source)
    JOB(source.value, (), report)
    if report.problems:
        return refusals.invalid_protocol(_listing(report.problems))
    references.check(source.value, report)
    return refusals.invalid_protocol(str(err)) if report.problems else ApiError(str(err), 500)


def _listing(problems: Iterable[Problem]) -> str:
    """Return the problems as the JSON list that clients of OpenPAI parse."""
    return json.dumps(
        [
            {
                "dataPath": f".{one.path}" if one.path else "",
                "params": {"line": one.line},
                "message": one.rule,
            }
            for one in problems
        ]
    )
