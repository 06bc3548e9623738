"""What tasks used over time, as their runners recorded it, and how busy the cluster was."""

from __future__ import annotations

from dataclasses import asdict

from openpai_tasks.server import api_errors
from openpai_tasks.server.api.context import Context
from openpai_tasks.server.api.handlers.jobs import task_attempts
from openpai_tasks.server.api.request import Reply, Request
from openpai_tasks.server.engines.runner import usage
from openpai_tasks.server.state.records import Task
from openpai_tasks.server.state.state import now
from openpai_tasks.server.state.usage_history import KEPT
from openpai_tasks.server.state.usage_report import GROUPS, last_removed_end, read_report
from openpai_tasks.text.durations import LONGEST_DAYS

MOST_POINTS = 1500
LONGEST_REPORT = LONGEST_DAYS * 86400  # seconds
MOST_PARTS = 100  # of a report, for each of its groups


def get_task_usage(context: Context, request: Request) -> Reply:
    """Return what a task attempt used, in at most ``points`` rows: mean and maximum of each value."""
    job = context.state.job(request.params["job"])
    if job is None:
        raise api_errors.no_job(request.params["job"])
    tries = {str(task.attempt): task for task in task_attempts(context, job, request)}
    task = tries.get(request.params["task_attempt"])
    if task is None:
        raise api_errors.no_log()
    text = _recorded(context, task)
    rows = usage.thin_out(usage.parse_rows(text), _number(request, "points", MOST_POINTS))
    why = "" if rows else usage.parse_note(text)
    if not context.engine.records_usage:
        why = f"the engine {context.engine.name} does not sample what tasks use"
    found = [{"time": row.time, "seconds": row.seconds, "values": row.values} for row in rows]
    return 200, {"unrecorded": why, "rows": found}


def get_cluster_usage(context: Context, request: Request) -> Reply:
    """Return how busy the cluster was in the last ``seconds``, in about ``points`` rows."""
    span = 1000 * _number(request, "seconds", KEPT // 1000)
    length = max(1, span // _number(request, "points", MOST_POINTS))
    return 200, {"span": length, "rows": [asdict(row) for row in context.history.read(now() - span, length)]}


def get_report(context: Context, request: Request) -> Reply:
    """Return what jobs had and used in the last ``seconds``, by ``by``, also in so many ``points``.

    Only administrators see the jobs of others; without ``username``, they see everyone's.
    """
    caller, by = request.caller, request.first("by", "user")
    user = request.first("username") or ("all" if caller.admin else caller.user)
    if user != caller.user and not caller.admin:
        raise api_errors.forbidden(f"User {caller.user} is not allowed to see what other users used.")
    if by not in GROUPS:
        raise api_errors.invalid(f"by must be one of {', '.join(GROUPS)}, got {by[:20]!r}")
    until, span = now(), 1000 * _number(request, "seconds", LONGEST_REPORT)
    parts = _number(request, "points", MOST_PARTS) if "points" in request.query else 0
    database = context.state.database
    whose, late = "" if user == "all" else user, context.engine.places_late
    rows = read_report(database, by, whose, until - span, until, parts, late)
    return 200, {"user": user, "until": until, "removed": last_removed_end(database), "rows": rows}


def _recorded(context: Context, task: Task) -> str:
    if not context.engine.records_usage:
        return ""
    try:
        with context.engine.open_log(task, usage.FILE) as file:
            return file.read(usage.MOST_BYTES).decode("ascii", "replace")
    except OSError:  # there is none yet, or the task has put something else there
        return ""


def _number(request: Request, name: str, most: int) -> int:
    """Return a positive number of the query, up to a limit, which is also the default."""
    text = request.first(name, str(most))
    if not text.isdecimal() or len(text) > 9 or int(text) == 0:
        raise api_errors.invalid(f"{name} must be a whole number from 1 to {most}, got {text[:20]!r}")
    return min(int(text), most)
