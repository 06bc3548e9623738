"""Choose jobs by the words of a command line: names, beginnings of names, patterns, sweeps, ``@last``."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import ConfigError, NotFound
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol import states
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk import known_names
from openpai_tasks.sdk.jobs import lookup, records
from openpai_tasks.sdk.sweeps import records as sweep_records
from openpai_tasks.text import wildcards
from openpai_tasks.text.plurals import name_some

LAST = "@last"
"""The job that was submitted last from this folder."""

MOST = 200  # jobs that a word may stand for
MOST_AHEAD = 8  # jobs that are asked for side by side


@dataclass(frozen=True)
class ChosenJob:
    """A job, and the word of the command line that chose it."""

    word: str
    name: str  # as commands take it
    job: JobInfo
    is_whole: bool = False  # described with its tasks, not only listed
    is_guess: bool = False  # the word is only the beginning of its name

    @property
    def found(self) -> str | JobInfo:
        """The job, if it was described with its tasks, or else its name."""
        return self.job if self.is_whole else self.name


def choose_jobs(
    client: Backend, words: str | Sequence[str], folder: Path | None = None, unfinished: bool = False
) -> list[ChosenJob]:
    """Return the jobs that the words stand for, each once; of several, only ``unfinished`` ones if asked.

    ``folder`` has the records of submissions, and is the current folder by default.
    """
    given = [words] if isinstance(words, str) else words
    if not given:
        raise ConfigError(f"name a job, a sweep, a pattern such as 'train-*', or {LAST}")
    chosen: dict[str, ChosenJob] = {}
    for word in given:
        for one in _choose(client, word, folder or Path.cwd(), states.UNFINISHED if unfinished else None):
            chosen.setdefault(one.job.key, one)
    return list(chosen.values())


def ahead(client: Backend, words: str | Sequence[str], *parts: str) -> AbstractContextManager[None]:
    """Ask for jobs and parts of them side by side, as far as the words are their names.

    The parts are ``events``, ``list``, ``document`` and ``log``, of which the likely place is asked for.
    """
    names = [words] if isinstance(words, str) else words
    here, calls = Path.cwd(), list[functools.partial[Any]]()
    for name in names[:MOST_AHEAD]:
        if not name.strip() or lookup.is_pattern(name) or _recorded(client, name, here):
            continue
        key = lookup.key_of(client, _last(client, here) if name == LAST else name)
        calls.append(functools.partial(client.job, key))
        if "events" in parts and client.capabilities.events:
            calls.append(functools.partial(client.job_events, key))
        if "list" in parts and client.capabilities.events:  # as count_gpus does
            calls.append(lookup.list_call(client, key))
        if "document" in parts:
            calls.append(functools.partial(client.job_document, key))
        if "log" in parts:
            calls.append(functools.partial(client.log_locations, key, *known_names.likely_task(client, key)))
    return client.ahead(*calls)


def describe_jobs(client: Backend, words: str | Sequence[str]) -> list[JobInfo]:
    """Return the jobs that the words stand for, with their events and numbers of GPUs."""
    with ahead(client, words, "events", "list"):
        return [
            lookup.count_gpus(client, lookup.describe(client, one.found))
            for one in choose_jobs(client, words)
        ]


def _choose(client: Backend, word: str, folder: Path, state: str | None) -> Iterator[ChosenJob]:
    if word == LAST:
        yield _one(client, word, lookup.find(client, _last(client, folder)))
    elif lookup.is_pattern(word):
        pattern = word.rpartition("~")[2]
        found = _listed(client, word, "", state)
        matching = [job for job in found if wildcards.matches(job.name, pattern)]
        yield from _several(client, word, matching, state)
    elif members := _recorded(client, word, folder):
        listed = _listed(client, word, word, state)
        yield from _several(client, word, [job for job in listed if job.name in members], state)
    else:
        yield from _named(client, word, state)


def _named(client: Backend, word: str, state: str | None) -> Iterator[ChosenJob]:
    """Yield the job with this name, the jobs of the sweep, or the only job with this prefix."""
    try:
        yield _one(client, word, lookup.find(client, word))
        return
    except NotFound as err:
        unknown = err
    prefix = word.rpartition("~")[2]
    begun = [job for job in _listed(client, word, prefix, None) if job.name.startswith(prefix)]
    if not begun:
        raise unknown
    if len(begun) == 1:
        yield ChosenJob(word, lookup.typed_name(client, begun[0]), begun[0], is_guess=True)
    elif sweep_of(client, begun[0]) == word:
        wanted = set((state or ",".join(states.ALL)).split(","))
        members = [job for job in begun[:MOST] if job.state in wanted and sweep_of(client, job) == word]
        yield from _several(client, word, members, state)
    else:
        names = name_some([lookup.typed_name(client, job) for job in begun])
        raise NotFound(f"no job named {word!r}, and {len(begun)} begin with it: {names}", 404)


def sweep_of(client: Backend, job: JobInfo) -> object:
    """Return the name of the job's sweep, which its document has."""
    from openpai_tasks.sdk.sweeps.sweep import read_sweep_mark  # loads much that most commands do not use

    return read_sweep_mark(client.job_document(job.key)).get("name")


def _one(client: Backend, word: str, job: JobInfo) -> ChosenJob:
    return ChosenJob(word, lookup.typed_name(client, job), job, is_whole=True)


def _several(client: Backend, word: str, jobs: Sequence[JobInfo], state: str | None) -> Iterator[ChosenJob]:
    """Yield listed jobs, oldest first."""
    kind = "unfinished job" if state else "job"
    if not jobs:
        raise NotFound(f"no {kind} matches {word!r}", 404)
    if len(jobs) > MOST:
        raise ConfigError(f"{len(jobs)} jobs match {word!r}, more than {MOST}; choose fewer")
    return (ChosenJob(word, lookup.typed_name(client, job), job) for job in reversed(jobs))


def _listed(client: Backend, word: str, keyword: str, state: str | None) -> list[JobInfo]:
    user, _, _ = word.rpartition("~")
    return client.jobs(username=user or client.user, keyword=keyword or None, state=state)


def _recorded(client: Backend, word: str, folder: Path) -> set[str]:
    """Return the jobs of the sweep with this name that was submitted from here."""
    if "/" in word or not (folder / ".openpai" / "sweeps").is_dir():
        return set()
    return set(sweep_records.load(folder, client.cluster.alias, word).points)


def _last(client: Backend, folder: Path) -> str:
    name = records.last_submitted(folder, client.cluster.alias)
    if name is None:
        raise NotFound(f"{LAST}: no job was submitted from here to cluster {client.cluster.alias!r}", 404)
    return name
