"""Checks of submitted jobs, in OpenPAI's order, and notices about what a job will not get."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Iterator
from typing import Any

from openpai_tasks.errors import ApiError, Conflict, ProtocolError
from openpai_tasks.hooks import hook
from openpai_tasks.hooks.hook import JobHooks
from openpai_tasks.protocol import JobDocument, dump, fit_names, to_v2, validate, validate_v1
from openpai_tasks.protocol.document import references
from openpai_tasks.protocol.document.job import check
from openpai_tasks.protocol.document.rules import Report
from openpai_tasks.protocol.document.schema import JOB
from openpai_tasks.protocol.document.scripts import MOUNTS
from openpai_tasks.protocol.environment import HEADER, decode, encode
from openpai_tasks.protocol.legacy.conversion import CODE_LINK
from openpai_tasks.protocol.problems import Problem
from openpai_tasks.protocol.routes import OWN_FIELD, job_key
from openpai_tasks.protocol.yaml.reader import Source, read
from openpai_tasks.server import api_errors
from openpai_tasks.server.accounts.users import User
from openpai_tasks.server.api.context import Context
from openpai_tasks.server.api.request import Request
from openpai_tasks.server.engines.base import LinksAtRoot, SchedulingEngine, image_not_used
from openpai_tasks.server.resources import NOTHING, Shortfall, shortfalls, start_demand
from openpai_tasks.server.state.records import Job, NewEvent
from openpai_tasks.server.storages import code_link, is_named
from openpai_tasks.settings.engines import DEFAULT_IMAGES, REFUSE_GPUS, REFUSE_LARGER

Body = dict[str, Any]

NO_HOOKS = JobHooks()
NOT_OWNER = "only hooks with the addresses of Slack, Teams and ntfy.sh are allowed to others than its owner"
IN_NAMESPACE = (
    f"the job runs in a user namespace, so that its codeDir is at {CODE_LINK}: files of other users are "
    "shown as nobody's, and programs such as sudo do not work"
)


def read_document(text: object) -> JobDocument:
    """Parse and validate the document; raise the same errors as OpenPAI."""
    if not isinstance(text, str):  # JSON or an unknown type: only text/* is a document
        raise api_errors.invalid_protocol(_listing([Problem("", "should be object")]))
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
        raise api_errors.invalid(str(err)) from err


def read_environment(context: Context, request: Request) -> str:
    """Return the submitter's variables as JSON; empty if there are none, or tasks have those of an image."""
    given = request.headers.get(HEADER, "")
    if not given or context.engine.uses_images:
        return ""
    try:
        return encode(decode(given))
    except ProtocolError as err:
        raise api_errors.invalid(str(err)) from err


def read_hooks(context: Context, request: Request) -> JobHooks:
    """Return the hooks of a job; raise if they are invalid, or may be used only by the server's owner."""
    given, user = request.headers.get(hook.HEADER, ""), request.caller.account
    if not given:
        return JobHooks()
    try:
        found = JobHooks.decode(given)
    except ValueError as err:
        raise api_errors.invalid(f"{hook.HEADER} {err}") from err
    for one in found.hooks if user.name != context.owner.name else ():
        if one.needs_owner:
            raise api_errors.forbidden(f"User {user.name} may not use a hook with {one.label}: {NOT_OWNER}.")
    return found


def accept(
    context: Context,
    user: User,
    document: JobDocument,
    text: str,
    environment: str = "",
    hooks: JobHooks = NO_HOOKS,
) -> tuple[Job, Body]:
    """Store a job that may run, with an event for each difference from what it asks for.

    Return the job, and the field of the answer in which our clients find the same notices.
    """
    _check_permissions(context, user, document)
    found = list(notices(context, document))
    with context.state.database.transaction():
        job = context.state.submit(user.name, document, text, environment)
        context.state.hooks.add(job, hooks)
        # A job has one event for each reason.
        for kind, reason in dict.fromkeys((notice.type, notice.reason) for notice in found):
            same = [notice.message for notice in found if notice.reason == reason]
            context.state.add_event(job.key, kind, reason, "; ".join(same))
    lines = [notice.message for notice in found]
    own: Body = {"notices": lines} if lines else {}
    own |= {"hooks": len(hooks.hooks)} if hooks.hooks else {}
    return job, {OWN_FIELD: own} if own else {}


def _check_permissions(context: Context, user: User, document: JobDocument) -> None:
    """Raise for a name in use, a virtual cluster or a storage that the user may not use, and for a job that
    the engine can never run.
    """
    if context.state.has_job(job_key(user.name, document.name)):
        raise Conflict(f"Job name {document.name} already exists.", 409, "ConflictJobError")
    if document.virtual_cluster not in user.virtual_clusters:
        raise api_errors.forbidden(
            f"User {user.name} may not use virtual cluster {document.virtual_cluster}."
        )
    for mount in document.storages or ():
        if mount.name not in user.storages:
            raise api_errors.no_storage(mount.name)
    problem = context.engine.problem(document)
    if problem:
        raise api_errors.invalid(problem)
    _check_size(context, document)


def _check_size(context: Context, document: JobDocument) -> None:
    """Raise for a job that is larger than the machine, if that is not allowed."""
    found = missing_resources(context, document)
    if found and context.enforce == REFUSE_LARGER:
        raise api_errors.invalid(f"{found[0].supply}; {found[0].demand}, and local.enforce is true")
    if context.enforce == REFUSE_GPUS and (few := [one for one in found if one.is_partial]):
        override = "to run it with what is there, restart the cluster with local.enforce set to false"
        raise api_errors.invalid(f"{few[0].supply}; {few[0].demand}; {override}")


def _refusal(source: Source, err: ProtocolError) -> ApiError:
    """Return the error of the step that failed; invalid YAML and broken templates have no code."""
    report = Report(source)
    JOB(source.value, (), report)
    if report.problems:
        return api_errors.invalid_protocol(_listing(report.problems))
    references.check(source.value, report)
    return api_errors.invalid_protocol(str(err)) if report.problems else ApiError(str(err), 500)


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


# Notices: for the submitter, and kept as events of the job


def notices(context: Context, document: JobDocument) -> Iterator[NewEvent]:
    """Yield the notices about a job, each with one line of text."""
    engine = context.engine
    for one in missing_resources(context, document):
        yield NewEvent("Warning", "ResourcesMissing", one.warning)
    if not engine.memory.enforced and any(role.memory_mb and role.is_memory_asked for role in document.roles):
        message = f"the memory limit is not enforced: {engine.memory.how}"
        yield NewEvent("Warning", "MemoryNotEnforced", message)
    chosen = [role.image for role in document.roles if role.image not in DEFAULT_IMAGES]
    if chosen and not engine.uses_images:  # nobody has chosen the default ones
        yield NewEvent("Warning", "ImageNotUsed", image_not_used(engine, chosen))
    if document.priority and isinstance(engine, SchedulingEngine) and (why := engine.priority_note(document)):
        yield NewEvent("Warning", "PriorityNotUsed", why)
    if not engine.mounts_at_root:
        yield from _mount_notices(context, document)


def missing_resources(context: Context, document: JobDocument) -> tuple[Shortfall, ...]:
    """Return what the machine has less of than the job asks for; engines that schedule refuse such jobs."""
    if context.engine.schedules:
        return ()
    cluster = document.virtual_cluster
    share = context.virtual_clusters.get(cluster, NOTHING)
    return shortfalls(start_demand(document), context.engine.capacity().total, cluster, share)


def _mount_notices(context: Context, document: JobDocument) -> Iterator[NewEvent]:
    """Name the storages, and the codeDir, that the commands look for where they are not mounted."""
    mounts = [(one.name, one.path) for one in document.storages or ()]
    if document.storages == ():
        mounts = [(name, MOUNTS + name) for name in context.storages]
    text = "\n".join(document.entrypoints().values())
    missing = [
        (f"storage {name}", path)
        for name, path in mounts
        if is_named(path, text)
        and not (os.path.exists(path) and os.path.samefile(path, context.storages[name].path))
    ]
    if any(code_link(document, role.name) for role in document.roles):
        if not (isinstance(context.engine, LinksAtRoot) and context.engine.can_link(CODE_LINK)):
            missing.append(("codeDir", CODE_LINK))
        elif os.geteuid():
            yield NewEvent("Warning", "UserNamespace", IN_NAMESPACE)
    for what, path in missing:
        message = (
            f"the {what} is not at {path} here: write ${{PAI_MOUNT_ROOT-}}{path}, which works everywhere"
        )
        yield NewEvent("Warning", "StorageNotMounted", message)
