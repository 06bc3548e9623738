"""Why a job waits or how it ended, in plain words, and what to do next."""

from __future__ import annotations

import contextlib
import re
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from openpai_tasks import causes
from openpai_tasks.backends.base import Backend, VirtualCluster
from openpai_tasks.errors import ApiError, NotFound, PaiError, Unreachable
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol import exit_codes, states
from openpai_tasks.protocol.diagnostics import Diagnostics
from openpai_tasks.protocol.fields import count, mapping, rows, texts
from openpai_tasks.protocol.models import DependencyInfo, JobInfo, TaskInfo, first_failed
from openpai_tasks.sdk.containers import keepalive
from openpai_tasks.sdk.diagnosis import symptoms
from openpai_tasks.sdk.files.job_folders import Mounts
from openpai_tasks.sdk.jobs import documents, job_cache, lookup
from openpai_tasks.sdk.jobs.dependencies import MOST_DEPENDENTS, stopped_keys
from openpai_tasks.sdk.jobs.metrics import MetricReader, select_telling
from openpai_tasks.sdk.jobs.outputs import RUNTIME_FOLDER, list_outputs, output_folder, output_folder_of
from openpai_tasks.sdk.logs import output
from openpai_tasks.sdk.logs.json_lines import list_files
from openpai_tasks.storage.location import Location
from openpai_tasks.text.durations import duration_in_words
from openpai_tasks.text.hints import command, in_this_program
from openpai_tasks.text.plain import one_line
from openpai_tasks.text.plurals import counted, name_some

LINES = 20
"""The last lines of output to show."""
MOST_METRICS = 4
NOTES = 3
KEPT_LINE = "keep-failed: "
"""Begins the line that a task prints after its failure, if it is kept."""
WAITS_FOR_RETRY = re.compile(r"\bnext retry\b", re.IGNORECASE)
"""Matches advice that only applies while the job is retried, ours and that of real servers."""

NOT_YET = ("the cluster has not started it yet", "wait; `pai job.connect NAME` shows when it starts")
_AMOUNTS = r"(\d+) CPU, (\d+) MB, (\d+) GPU"
_NOTE = re.compile(
    rf"needs {_AMOUNTS}; free in (?:virtual cluster (\S+)|this machine) are {_AMOUNTS} of {_AMOUNTS}"
)
_KINDS = (("CPU", "CPUs", "--cpu"), (*["MB of memory"] * 2, "--memoryMB"), ("GPU", "GPUs", "--gpu"))
RESOURCES = {"gpu": "GPUs", "cpu": "CPUs", "memoryMB": "MB of memory"}
"""Resources in a job document, with their names for users."""
RUNS_ALONE = "run alone"  # in notes of the embedded cluster, which may let a job have more than there is
MOST_NAMES = 3  # of jobs to list
STARTING = "starting"
UNEXPLAINED = (NOT_YET[0], STARTING)
"""Reasons of a job that the cluster has not looked at yet."""
GPUS_IDLE, REQUEUED = "GpusIdle", "Requeued"
"""Reasons of the embedded cluster's events."""
NEWS_SECONDS = 1.5  # waits shorter than this are not reported


@dataclass(frozen=True)
class Explanation:
    """The reason in one sentence, other facts, the last output, what to do, and the platform's own words.

    ``kept_log`` is the output that the cluster keeps with a failure, if it is more than ``log``.
    """

    name: str
    state: str
    why: str
    facts: tuple[str, ...] = ()
    log_of: str = ""
    log: tuple[str, ...] = ()
    kept_log: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    platform: str = ""
    is_kept: bool = False  # whether it has failed, and runs only because its environment is kept

    @property
    def headline(self) -> str:
        return f"{self.name} {self._state}"

    @property
    def _state(self) -> str:
        if self.state == states.SUCCEEDED:
            return self.why
        has_failed = self.state == states.FAILED or self.is_kept
        return f"failed: {self.why}" if has_failed else f"is {self.state}: {self.why}"

    def __str__(self) -> str:
        lines = [f"job {self.name!r} {self._state}", *self.advice, *self.facts, self.platform]
        return "\n".join(filter(None, lines))


def why(client: Backend, name: str | JobInfo, mounts: Mounts = ()) -> Explanation:
    """Explain the state of the job from everything that the cluster knows about it."""
    job = lookup.describe(client, name)
    found = _succeeded(client, job, mounts) if job.state == states.SUCCEEDED else explain_job(client, job)
    missed = [event.message for event in job.events if event.reason == "NotNotified" and job.final]
    return replace(found, facts=(*found.facts, *missed)) if missed else found


def explain_job(client: Backend, job: JobInfo) -> Explanation:
    """Explain the state of a job that was described with its events."""
    return _BY_STATE.get(job.state, _other)(client, job)


# Jobs that are not over


def _waiting(client: Backend, job: JobInfo) -> Explanation:
    if others := [one for one in job.after if one.met is None]:
        return _depending(client, job, others)
    notes, asked = _notes(job), _asked(client, job)
    record = _virtual_cluster(client, job) if asked else VirtualCluster()
    reading = _never_fits(client, job, asked, record, notes) if asked else None
    reading = reading or _short(client, job, notes) or symptoms.in_events(notes)
    reading = reading or (_not_free(asked, record) if asked else None)
    meaning, advice = reading or NOT_YET
    advice = _with_name(client, job, advice)
    facts = [f"it waits in virtual cluster {job.virtual_cluster or 'default'}{_since(job.submitted)}"]
    facts += [job.place] if job.place else []
    facts += [f"it asks for {asked} in all"] if asked else []
    facts += _retry_facts(job)
    return Explanation(job.name, job.state, meaning, (*facts, *_event_facts(notes)), advice=(advice,))


def _depending(client: Backend, job: JobInfo, others: list[DependencyInfo]) -> Explanation:
    names = [one.job.removeprefix(f"{client.user}~") for one in others[:MOST_NAMES]]
    advice = f"wait; `{command('job.why', *names)}` says more about what it waits for"
    return Explanation(
        job.name, job.state, f"waits for {job.name_jobs(others, has_when=True)}", advice=(advice,)
    )


def _retrying(client: Backend, job: JobInfo) -> Explanation:
    reason, _ = _meaning(client, job)
    meaning = f"{attempt_number(job)} failed and is retried: {_end(job, first_failed(job.tasks), reason)}"
    facts = (*_retry_facts(job), *_event_facts(_notes(job, "Warning")))
    follow = f"wait; `{lookup.command_for(client, 'job.connect', job)}` shows when the next attempt starts"
    words = _platform_words(job, reason)
    return Explanation(job.name, job.state, meaning, facts, advice=(follow,), platform=words)


def _running(client: Backend, job: JobInfo) -> Explanation:
    if job.kept_until:
        return _kept_failure(client, job)
    notes = [event for event in _notes(job, "Warning") if not event.startswith(GPUS_IDLE)]
    facts = (*idle_facts(job), *_retry_facts(job), *_event_facts(notes))
    follow = f"`{lookup.command_for(client, 'job.logs', job, '--follow')}` shows its output"
    free = f"`{lookup.command_for(client, 'job.stop', job)}` frees the GPUs" if job.gpus_idle else ""
    advice = tuple(filter(None, (follow, free)))
    return Explanation(job.name, job.state, f"it runs{_since(job.launched)}", facts, advice=advice)


def idle_facts(job: JobInfo) -> list[str]:
    """Return that the GPUs of a running job are idle, and for how long."""
    return [f"its GPUs have been idle for {duration_in_words(job.gpus_idle)}"] if job.gpus_idle else []


def _kept_failure(client: Backend, job: JobInfo) -> Explanation:
    """Explain the failure of a job whose environment is kept."""
    task = next(task for task in job.tasks if task.kept_until)
    log = tuple(line for line in _last_lines(client, job, task) if not line.startswith(KEPT_LINE))
    found = causes.find_cause(log, job.exit_code) or causes.FoundCause("")
    return Explanation(
        job.name,
        job.state,
        job.cause or found.headline or _end(job, task, "it failed"),
        tuple(_retry_facts(job)),
        task.label if log else "",
        log[-LINES:],
        advice=(lookup.describe_kept(client, job), *_advise(client, job, found)),
        is_kept=True,
    )


def attempt_number(job: JobInfo) -> str:
    """Name the current attempt as the flag --attempt counts it: the first one is 0."""
    return f"attempt {job.attempt} (--attempt {job.attempt}, counted from 0)"


def _asked(client: Backend, job: JobInfo) -> RequestedResources | None:
    """Return what the job requests, from its document."""
    with contextlib.suppress(PaiError):
        return requested_resources(documents.job_document(client, job.key)[1])
    return None


def _short(client: Backend, job: JobInfo, notes: list[str]) -> tuple[str, str] | None:
    """Return which resources are short, if that is the latest event."""
    shortage = describe_shortage(client, notes[0], len(job.tasks) < 2) if notes else ""
    advice = f"wait, or ask for less; `{command('cluster.resources')}` shows what is free"
    return (shortage, advice) if shortage else None


# Whether a job fits


@dataclass(frozen=True)
class RequestedResources:
    """Resources of all tasks of a job, and the minimum to be free at once, by the keys of RESOURCES."""

    all: dict[str, int]
    at_once: dict[str, int]

    def __str__(self) -> str:
        gpus, cpus = counted(self.all["gpu"], "GPU"), counted(self.all["cpu"], "CPU")
        return f"{gpus}, {cpus} and {self.all['memoryMB']} MB of memory"


def requested_resources(document: Mapping[str, Any]) -> RequestedResources:
    """Return what the roles of a document request; without gang allocation, a job can start with one task."""
    roles = rows(list(mapping(document.get("taskRoles")).values()))
    tasks = [(count(role.get("instances", 1)), mapping(role.get("resourcePerInstance"))) for role in roles]
    every = {kind: sum(instances * count(one.get(kind)) for instances, one in tasks) for kind in RESOURCES}
    if mapping(document.get("extras")).get("gangAllocation") is False:
        largest = {kind: max((count(one.get(kind)) for _, one in tasks), default=0) for kind in RESOURCES}
        return RequestedResources(every, largest)
    return RequestedResources(every, every)


def _virtual_cluster(client: Backend, job: JobInfo) -> VirtualCluster:
    """Return the virtual cluster of the job; an empty one if the cluster does not describe it."""
    with contextlib.suppress(PaiError):
        return client.virtual_clusters().get(job.virtual_cluster or "default", VirtualCluster())
    return VirtualCluster()


def _never_fits(
    client: Backend, job: JobInfo, asked: RequestedResources, there: VirtualCluster, notes: list[str]
) -> tuple[str, str] | None:
    """Return why the job can never start, and what to do; None if it may start."""
    if client.cluster.is_embedded or any(RUNS_ALONE in note for note in notes):
        return None
    for kind in RESOURCES:
        have, wanted = there.capacity(kind), asked.at_once[kind]
        if have.usable is None or wanted <= have.usable:
            continue
        where = f"virtual cluster {job.virtual_cluster or 'default'}"
        flag = "--gpu N" if kind == "gpu" else f"-u taskRoles.ROLE.resourcePerInstance.{kind}=N"
        advice = f"ask for less: `{command('job.resubmit', job.name)} {flag}`"
        words = f"it asks for {wanted} {RESOURCES[kind]}, and {where} has"
        if have.total is None or wanted > have.total:
            return f"{words} {have.total or have.usable:g} in all: it can never start as it is", advice
        words += f" {have.usable:g} that can be used: {have.unavailable:g} of {have.total:g} are unavailable,"
        return f"{words} and it cannot start until they are back", f"{advice}, or ask the administrator"
    return None


def _not_free(asked: RequestedResources, there: VirtualCluster) -> tuple[str, str] | None:
    """Return that too few GPUs are free, and what to do; None if GPUs are not the reason."""
    have, wanted = there.capacity("gpu"), asked.at_once["gpu"]
    if have.usable is None or wanted <= (free := max(0, have.usable - (have.used or 0))):
        return None
    meaning = f"it asks for {counted(wanted, 'GPU')}, and {free:g} of {have.usable:g} are free"
    return meaning, f"wait, or ask for less; `{command('cluster.resources')}` shows what is free"


# Jobs that are over


def _failed(client: Backend, job: JobInfo) -> Explanation:
    task = first_failed(job.tasks)
    read = _last_lines(client, job, task)
    log = read[-LINES:]
    kept = _kept(job, log)
    reason, solutions = _meaning(client, job)
    lines = read or kept
    found = None if _is_ended_by_platform(job) else causes.find_cause(lines, job.exit_code)
    cause = found or causes.cause_of_code(job.platform_exit_code) or causes.FoundCause("")
    here = symptoms.explain_missing(client, job, cause) or symptoms.explain_mount(client, job, lines)
    look = f"`{lookup.command_for(client, 'job.logs', job)}` shows all of its output"
    headline = found.headline if found else job.cause or _end(job, task, reason)
    if found:
        job_cache.save_cause(client, job, headline)
    return Explanation(
        job.name,
        job.state,
        headline,
        (
            *([here[0]] if here and here[0] else []),
            *([f"task {task.label} failed first"] if task and len(job.tasks) > 1 else []),
            *_retry_facts(job),
        ),
        task.label if task and log else "",
        log,
        kept,
        (
            *([here[1]] if here else _advise(client, job, cause)),
            *(() if found else solutions),
            *([look] if log else []),
            f"`{lookup.command_for(client, 'job.resubmit', job)}` runs it again with the same files",
            *_dependents_advice(client, job),
        ),
        _platform_words(job, reason, _no_retry(job) if client.capabilities.retries else ""),
    )


def add_cause(client: Backend, job: JobInfo) -> JobInfo:
    """Return a job that has failed with the cause, which is read from its output unless it is known."""
    if job.state != states.FAILED or job.cause or _is_ended_by_platform(job):
        return job
    found = causes.find_cause((job.diagnostics or Diagnostics()).user_log)
    if found is None:
        found = causes.find_cause(_last_lines(client, job, first_failed(job.tasks)), job.exit_code)
    if found is None:
        return job
    job_cache.save_cause(client, job, found.headline)
    return replace(job, cause=found.headline)


def _advise(client: Backend, job: JobInfo, cause: causes.FoundCause) -> list[str]:
    """Return what to do about the cause."""
    if cause.row:
        return [_with_name(client, job, cause.advice)]
    return [f"correct {one_line(cause.file)}, and submit the job again"] if cause.file else []


def _with_name(client: Backend, job: JobInfo, advice: str) -> str:
    """Return advice with commands that can be pasted: of the running program, with the job's name."""
    return re.sub(r"\bNAME(?=[ `])", lookup.typed_name(client, job), in_this_program(advice))


def _platform_words(job: JobInfo, reason: str, retry_rule: str = "") -> str:
    """Return the platform's exit codes, message and trigger, and why it does not retry, in one line."""
    known = job.diagnostics or Diagnostics()
    phrase = f" ({known.phrase})" if known.phrase else ""
    code = job.platform_exit_code
    words = [f"exit code {job.exit_code}"] if job.exit_code is not None else []
    words += [f"the platform reports exit code {code}{phrase}: {reason}"] if code is not None else []
    words += [f"its message: {job.message}"] if known.text else []
    words += [f"this ended the job: {known.trigger}"] if known.trigger not in ("", known.text) else []
    words += [retry_rule] if retry_rule else []
    return one_line("; ".join(words))


def _kept(job: JobInfo, log: tuple[str, ...]) -> tuple[str, ...]:
    """Return the output or long message that the platform keeps with a failure; empty if the log has it.

    Its lines may have been cut.
    """
    known = job.diagnostics or Diagnostics()
    words = known.text.splitlines()
    lines = known.user_log or (tuple(words) if len(words) > 1 else ())
    is_there = all(any(one.startswith(line) or one.endswith(line) for one in log) for line in lines)
    return () if is_there else (*lines, *known.platform_log)


def _is_ended_by_platform(job: JobInfo) -> bool:
    """Whether the platform ended the job, as for too much memory, and not its command."""
    return (job.platform_exit_code or 0) < 0


def _end(job: JobInfo, task: TaskInfo | None, reason: str) -> str:
    who = f"the command of {task.label}" if task else "the command"
    code = job.exit_code
    if not code or _is_ended_by_platform(job):
        return reason
    with contextlib.suppress(ValueError):
        return f"{who} was killed by {signal.Signals(code - 128).name} (exit code {code})"
    return f"{who} ended with exit code {code}"


def _meaning(client: Backend, job: JobInfo) -> tuple[str, list[str]]:
    """Return what the exit code means, and what helps; the server's own table comes before ours."""
    code, known = job.platform_exit_code, job.diagnostics or Diagnostics()
    if code is None:
        return "the cluster gives no reason", []
    if meaning := client.explain_exit(code):
        return meaning.reason, [meaning.solution] if meaning.solution else []
    ours = exit_codes.exit_spec(code)
    theirs = "" if exit_codes.is_known(code) else known.reason
    solutions = [line for line in known.solutions or ours["solution"] if not WAITS_FOR_RETRY.search(line)]
    return theirs or str(ours.get("reason") or "it succeeded"), solutions


def _no_retry(job: JobInfo) -> str:
    """Return why the job is not retried."""
    if job.platform_exit_code is None:
        return ""
    if exit_codes.reaction(job.platform_exit_code) == exit_codes.NEVER_RETRY:
        return "not retried, because it would fail in the same way"
    return "not retried: no retries are left (`--retries` sets their number)"


def _last_lines(client: Backend, job: JobInfo, task: TaskInfo | None) -> tuple[str, ...]:
    if task is None:
        return ()
    which = output.LogChoice(task.role, task.index)
    try:
        data = b"".join(output.read_output(client, job, which, lines=causes.READ_LINES, plain=True))
    except (ApiError, Unreachable):
        return ()
    return tuple(data.decode().splitlines()[-causes.READ_LINES :])


def _stopped(client: Backend, job: JobInfo) -> Explanation:
    reason = job.stop_reason or _meaning(client, job)[0]
    again = f"`{lookup.command_for(client, 'job.resubmit', job)}` runs it again"
    advice = [again, *_dependents_advice(client, job)]
    if any(one.met is False for one in job.after):
        reason = job.message
        first = _first_ended(client, job)
        if first.key != job.key:
            name = first.key.removeprefix(f"{client.user}~")
            advice = [f"`{command('job.resubmit', name, '--with-dependents')}` runs it again with {name}"]
    return Explanation(job.name, job.state, reason, tuple(_retry_facts(job)), advice=tuple(advice))


def _first_ended(client: Backend, job: JobInfo) -> JobInfo:
    """Return the job that a chain of stopped jobs began with, or the first that the cluster still has."""
    with contextlib.suppress(NotFound):
        for _ in range(MOST_DEPENDENTS):
            unmet = next((one.job for one in job.after if one.met is False), None)
            if unmet is None:
                break
            job = client.job(unmet)
    return job


def _dependents_advice(client: Backend, job: JobInfo) -> list[str]:
    """Return how to run the job again with what was stopped with it."""
    if not (keys := stopped_keys(job)):
        return []
    again = lookup.command_for(client, "job.resubmit", job, "--with-dependents")
    names = [key.removeprefix(f"{client.user}~") for key in keys]
    return [f"`{again}` also runs what was stopped with it: {name_some(names, MOST_NAMES)}"]


def _succeeded(client: Backend, job: JobInfo, mounts: Mounts = ()) -> Explanation:
    look = (
        f"`{lookup.command_for(client, 'job.outputs', job)}` lists the files it wrote, "
        f"`{lookup.command_for(client, 'job.logs', job)}` shows its output"
    )
    parts = [_duration(job)]
    with contextlib.suppress(PaiError):
        _, document = documents.job_document(client, job)
        parts += _own_end(client, job, document)
        folder = output_folder_of(client, job, document, mounts)
        parts += _last_metrics(MetricReader(client, job, place=(job, folder)))
        parts += _output_count(job, folder)
    return Explanation(job.name, job.state, "; ".join(parts), tuple(_retry_facts(job)), advice=(look,))


def _own_end(client: Backend, job: JobInfo, document: Mapping[str, Any]) -> list[str]:
    """Return why a container of container.start has ended by itself."""
    roles = mapping(document.get("taskRoles")).values()
    lines = [line for role in rows(list(roles)) for line in texts(role.get("commands"))]
    if any(map(keepalive.is_keep_alive, lines)) and job.tasks:
        return list(filter(None, [keepalive.find_end(_last_lines(client, job, job.tasks[0]))]))
    return []


def success_line(client: Backend, job: JobInfo, mounts: Mounts = ()) -> tuple[str, str]:
    """Return how long a job that succeeded took, and the command that shows what it left; may be empty."""
    with contextlib.suppress(PaiError, OSError):
        _, folder = output_folder(client, job, mounts)
        if folder and any(list_files(folder, "metrics")):
            return _duration(job), lookup.command_for(client, "job.metrics", job)
        if folder and any(entry.name != RUNTIME_FOLDER for entry in folder.store.list(folder.path)):
            return _duration(job), lookup.command_for(client, "job.outputs", job)
    return _duration(job), ""


def _duration(job: JobInfo) -> str:
    seconds = job.duration
    return "succeeded" if seconds is None else f"succeeded in {duration_in_words(seconds)}"


def _last_metrics(reader: MetricReader) -> list[str]:
    """Return the last values of the most telling metrics."""
    with contextlib.suppress(PaiError):
        found = select_telling(reader.read(), MOST_METRICS)
        return [f"{one_line(metric.name)} {metric.last:.4g}" for metric in found]
    return []


def _output_count(job: JobInfo, folder: Location | None) -> list[str]:
    with contextlib.suppress(PaiError):
        files = list_outputs(job.name, folder).without_runtime_files.files if folder else ()
        return [counted(len(files), "output file")] if files else []
    return []


def _other(client: Backend, job: JobInfo) -> Explanation:
    if job.state == states.STOPPING:
        return Explanation(job.name, job.state, "it is being stopped", advice=("wait a moment",))
    notes = _event_facts(_notes(job))
    ask = "if this lasts, ask the cluster's administrator"
    return Explanation(job.name, job.state, "the cluster does not know its state", notes, advice=(ask,))


_BY_STATE: dict[str, Callable[[Backend, JobInfo], Explanation]] = {
    states.WAITING: _waiting,
    states.RUNNING: _running,
    states.RETRYING: _retrying,
    states.FAILED: _failed,
    states.STOPPED: _stopped,
    states.SUCCEEDED: _succeeded,
}


# Words


def _notes(job: JobInfo, kind: str | None = None) -> list[str]:
    """Return the platform's events, newest first, each once."""
    fitting = [event for event in job.events if kind in (None, event.type)]
    return list(dict.fromkeys(f"{event.reason}: {event.message}" for event in fitting))


def _event_facts(notes: list[str]) -> tuple[str, ...]:
    return tuple(f"the platform reports {note}" for note in notes[:NOTES])


def _retry_facts(job: JobInfo) -> list[str]:
    requeued = next((event.message for event in job.events if event.reason == REQUEUED), "")
    retries = job.retries - job.requeues
    found = [f"it was {requeued}"] if requeued and job.requeues else []
    words = "once" if retries == 1 else f"{retries} times"
    return [*found, f"it was retried {words}"] if retries > 0 else found


def _since(milliseconds: int | None) -> str:
    if not milliseconds:
        return ""
    seconds = max(0, int(time.time() - milliseconds / 1000))
    unit, size = ("h", 3600) if seconds >= 3600 else ("min", 60) if seconds >= 60 else ("s", 1)
    return f", for {seconds // size} {unit} now"


def describe_shortage(client: Backend, note: str, is_alone: bool) -> str:
    """Describe the shortage in one line; empty if the note is about something else.

    Sizes that would fit are known only for a job of one task, ``is_alone``.
    """
    found = _NOTE.search(note)
    if found is None:
        return ""
    needs, frees, totals = (list(map(int, found.group(*range(at, at + 3)))) for at in (1, 5, 8))
    lacking = [row for row in zip(needs, frees, totals, _KINDS, strict=True) if row[0] > row[1]]
    if not lacking:
        return ""
    flags = [f"{kind[2]} {free}" for _, free, _, kind in lacking if free]
    hint = f"; `{' '.join(flags)}` would fit" if is_alone and len(flags) == len(lacking) else ""
    short = [
        f"{need} {kind[need != 1]}, and {free} of {total} {'is' if free == 1 else 'are'} free"
        for need, free, total, kind in lacking
    ]
    return f"it asks for {'; '.join(short)}{_holders(client, found[4])}{hint}"


def _holders(client: Backend, virtual_cluster: str | None) -> str:
    """Return the jobs that run in the same virtual cluster, if the cluster can list them."""
    with contextlib.suppress(PaiError):
        running = client.jobs(state=states.RUNNING, limit=100)
        names = [job.name for job in running if virtual_cluster in (None, job.virtual_cluster)]
        return f" (running: {name_some(names, MOST_NAMES)})" if names else ""
    return ""


# While a job is followed


class JobReporter:
    """Reports changes since the last look at a job, each reason for a wait once."""

    def __init__(self, client: Backend, say: Callable[[str], object]) -> None:
        self._client, self._say = client, say
        self._attempt: int | None = None
        self._requeues = 0
        self._waits_since: float | None = None
        self._last = ""

    def __call__(self, job: JobInfo) -> None:
        if self._attempt is not None and job.attempt > self._attempt:
            how = "reached its time limit and runs again" if job.requeues > self._requeues else ""
            self._say(f"job {job.name} {how or 'failed and is retried'}: {attempt_number(job)}")
            self._waits_since, self._last = None, ""
        self._attempt, self._requeues = job.attempt, job.requeues
        if job.state != states.WAITING:
            self._waits_since = None
            return
        self._waits_since = self._waits_since or time.monotonic()
        if time.monotonic() - self._waits_since >= NEWS_SECONDS:
            line = f"job {job.name} is {job.state}: {wait_reason(self._client, job)}"
            if line != self._last:
                self._say(line)
            self._last = line


def wait_reason(client: Backend, job: JobInfo) -> str:
    """Return what the job waits for, unless it has started since."""
    with contextlib.suppress(PaiError):
        found = why(client, job.key)
        return found.why if found.state == job.state else STARTING
    return STARTING
