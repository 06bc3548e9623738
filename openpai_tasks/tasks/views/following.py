"""Jobs on the screen while they run, and how commands that follow them end."""

from __future__ import annotations

import dataclasses
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from openpai_tasks import hooks as delivery
from openpai_tasks import render, sdk
from openpai_tasks.errors import ConfigError, NotFound, PaiError
from openpai_tasks.protocol import states
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.protocol.problems import closest
from openpai_tasks.settings.credentials import hidden_environment
from openpai_tasks.tasks.framework import terminal
from openpai_tasks.tasks.framework.prompts import confirm
from openpai_tasks.tasks.framework.screen import LiveView
from openpai_tasks.text.plurals import name_some

if TYPE_CHECKING:
    from openpai_tasks.backends.base import Backend
    from openpai_tasks.hooks.hook import Hook
    from openpai_tasks.render import TextTable
    from openpai_tasks.sdk.logs.output import LogChoice
    from openpai_tasks.sdk.logs.structured import StructuredLine
    from openpai_tasks.sdk.sweeps.choosing import ChosenJob
    from openpai_tasks.storage.store import Mounts

CHANGING = frozenset({"submitted", "duration", "gpu_hours", "gpus_idle"})
"""Columns that differ in each list."""
BATCH_BYTES = 1 << 16
"""Bytes of records that are written together."""


def choose(client: Backend, words: str | Sequence[str], timeout: float | None = None) -> list[ChosenJob]:
    """Return the jobs that the words stand for, waiting out an outage of the cluster."""
    limit = math.inf if timeout is None else time.monotonic() + timeout
    return sdk.jobs.retry_during_outage(client, lambda: sdk.sweeps.choose_jobs(client, words), limit)


def write_logs(
    client: Backend,
    jobs: Sequence[str | JobInfo],
    which: LogChoice,
    follow: bool = True,
    lines: int | None = None,
    plain: bool = False,
) -> None:
    """Write the output of jobs; lines of several tasks or jobs have labels, coloured on a terminal."""
    coloured = not plain and sys.stdout.isatty() and render.has_colours()
    steps = {
        job if isinstance(job, str) else sdk.jobs.typed_name(client, job): sdk.logs.output_steps(
            client, job, which, follow, lines, sdk.diagnosis.JobReporter(client, terminal.say), plain
        )
        for job in jobs
    }
    merged = sdk.logs.merge_jobs(steps) if len(steps) > 1 else next(iter(steps.values()))
    merged = sdk.logs.add_times(merged, terminal.say) if which.timed else merged
    terminal.write_bytes(sdk.logs.add_labels(sdk.logs.sleep_between(merged), coloured))


def parse_fields(items: Sequence[Any], text: str) -> list[str]:
    """Return the fields that a text names; raise for one that the items, or jobs, do not have."""
    kind = type(items[0]) if items else JobInfo
    known = [item.name for item in dataclasses.fields(kind)]
    known += [name for name, value in vars(kind).items() if isinstance(value, property)]
    names = [name.strip().replace("-", "_") for name in text.split(",") if name.strip()]
    for name in names:
        if name not in known:
            hint = f"(known: {', '.join(known)}){closest(name, known)}"
            raise ConfigError(f"--fields: no field named {name!r} {hint}")
    return names


def pick_fields(items: Sequence[Any], text: str) -> tuple[list[dict[str, Any]], Callable[[Any], TextTable]]:
    """Return rows with the fields that a text names, and the function that shows all of them in a table."""
    names = parse_fields(items, text)
    rows = [{name: getattr(item, name) for name in names} for item in items]
    return rows, lambda found: dataclasses.replace(
        render.rows(found, names), omitted=frozenset(), optional=None
    )


def watch_list(
    rounds: Iterable[Sequence[Any]],
    columns: Sequence[str],
    fields: str | None,
    output: str | None,
    ages: bool,
) -> None:
    """Show a list as it changes: redrawn on a terminal, elsewhere a line for each row that is new."""
    if output not in (None, "table"):
        raise ConfigError("--watch shows a table; leave out --output")
    seen: dict[str, Sequence[str]] = {}
    with LiveView(sys.stdout, ages=ages) as screen:
        for items in rounds:
            names = parse_fields(items, fields) if fields else columns
            if screen.is_drawn:
                screen.show(render.rows(items, names), "")
                continue
            steady = [name for name in names if name not in CHANGING]
            for item, cells in zip(items, render.rows(items, steady).rows, strict=True):
                key = getattr(item, "key", item.user)
                if seen.get(key) != cells:
                    terminal.put_line(sys.stdout, "  ".join(cells))
                seen[key] = cells


def conclude(
    client: Backend,
    jobs: Sequence[JobInfo],
    notify: str | None = None,
    mounts: Mounts | None = None,
    hooks: Sequence[Hook] = (),
) -> None:
    """Raise for the first job that did not succeed, with the cause and the command that says what to do.

    With ``mounts``, a job that was followed and has succeeded ends with a line that says so. ``hooks`` are
    those that the cluster does not keep.
    """
    failed = [job for job in jobs if job.exit_status]
    failed[:1] = [sdk.diagnosis.add_cause(client, job) for job in failed[:1]]
    if notify and not isinstance(notify, str):
        notify_end(jobs, failed)
    if hooks and len(jobs) == 1:
        sdk.jobs.notify_all(hooks, sdk.jobs.job_facts(client, (failed or jobs)[0]), terminal.say)
    elif hooks:
        names = name_some([job.name for job in jobs])
        found = sdk.jobs.summary_facts("jobs", names, [job.state for job in jobs])
        sdk.jobs.notify_all(hooks, found, terminal.say)
    if len(failed) > 1:
        names = name_some([job.name for job in failed])
        terminal.say(f"{len(failed)} of {len(jobs)} jobs did not succeed: {names}")
    for job in failed[:1]:
        why = sdk.jobs.describe_kept(client, job)
        why = why or f"`{sdk.jobs.command_for(client, 'job.why', job)}` says what to do"
        sdk.jobs.check_succeeded(job, why)
    if mounts is not None and len(jobs) == 1:
        words, command = sdk.diagnosis.success_line(client, jobs[0], mounts)
        terminal.say_success(" ".join((jobs[0].name, words)), command)


def notify_end(jobs: Sequence[JobInfo], failed: Sequence[JobInfo]) -> None:
    """Notify the user at a terminal that jobs have ended; of one that failed, with the cause."""
    if not sys.stderr.isatty():
        return
    title = f"job {jobs[0].name}" if len(jobs) == 1 else f"{len(jobs)} jobs"
    text = f"{len(jobs) - len(failed)} succeeded, {len(failed)} did not"
    if len(jobs) == 1:
        why = " ".join(job.cause or job.message for job in failed)
        text = f"failed: {why}" if why and jobs[0].state == states.FAILED else jobs[0].state
    is_shown = delivery.notify_desktop(title, text, hidden_environment())
    terminal.notify(title, text, by_bell_only=is_shown)


def confirm_stop(chosen: Sequence[ChosenJob], yes: bool) -> None:
    """Ask on a terminal before jobs are stopped that were not named one by one.

    Without a terminal, the beginning of a name is not enough: the job that was meant may be gone.
    """
    can_ask = all(stream.isatty() for stream in (sys.stdin, sys.stderr))
    guess = next((one for one in chosen if one.is_guess), None)
    are_many = len(chosen) > 1 and not all(one.is_whole for one in chosen)
    if yes or not (guess or (can_ask and are_many)):
        return
    if guess and not can_ask:
        raise NotFound(f"no job named {guess.word!r}, did you mean {guess.name!r}? --yes stops it", 404)
    names = name_some([one.name for one in chosen])
    what = f"stop {names}?" if len(chosen) == 1 else f"stop {len(chosen)} jobs: {names}?"
    confirm(what, "nothing was stopped")


def require_one(chosen: Sequence[ChosenJob], what: str) -> ChosenJob:
    """Return the job; raise for a command or a flag that works for one job only."""
    if len(chosen) > 1:
        raise ConfigError(f"{what} works for one job, and {len(chosen)} were named")
    return chosen[0]


def check_record_flags(structured: bool, timestamps: bool, output: str | None, **flags: str | None) -> None:
    """Raise for flags that need --structured, or cannot be combined with it, and for unknown formats."""
    if structured and timestamps:
        raise ConfigError("--timestamps cannot be combined with --structured: records have their own times")
    for name, value in {**flags, "output": output}.items():
        if value is not None and not structured:
            raise ConfigError(f"--{name} needs --structured: other output has no records")
    if output not in (None, "table", "json"):
        raise ConfigError(f"log records have no output format {output!r} (known: table, json)")


def encode_records(records: Iterable[StructuredLine], output: str | None, at_once: bool) -> Iterator[bytes]:
    """Yield the bytes to write: of each record ``at_once``, or of many together, which is much faster."""
    text = render.json_line if output == "json" else render.log_line
    held = bytearray()
    try:
        for record in records:
            held += f"{text(record)}\n".encode("utf-8", "backslashreplace")
            if at_once or len(held) >= BATCH_BYTES:
                yield bytes(held)
                held.clear()
    except PaiError:  # what was read before is shown
        yield bytes(held)
        raise
    yield bytes(held)
