"""How the cluster treats a job: what the job waits for, when it is ended, what is kept after a failure.

A policy is part of the document, in its extras. OpenPAI ignores it; the embedded cluster acts on it with any
engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol.fields import count, mapping, rows, text
from openpai_tasks.protocol.states import FAILED, FINAL, SUCCEEDED

KEY = "jobPolicy"
"""The policy's key in a job's extras."""
_ENDS = {
    "succeeded": ({SUCCEEDED}, "succeed"),
    "ended": (FINAL, "end"),
    "failed": ({FAILED}, "fail"),
}
WHEN = tuple(_ENDS)
"""What a job can wait for."""
BUSY_PERCENT = 5
"""Utilisation from which a GPU counts as busy."""
LOOK_SECONDS = 60
"""Seconds between two looks at the GPUs of a job or container, at most."""
WARN_SECONDS = 1800
"""Seconds after which idle GPUs are warned about, by default."""


@dataclass(frozen=True)
class Dependency:
    """A job that must have ended in a given way before another one starts."""

    job: str  # NAME, of the same user, or USER~NAME
    when: str = WHEN[0]

    def is_met_by(self, state: str) -> bool:
        """Return whether a job in this state has ended as it had to."""
        return state in _ENDS[self.when][0]

    def describe(self, state: str) -> str:
        """Say that the job in this state has not ended as it had to."""
        return f"job {self.job!r} had to {_ENDS[self.when][1]} first, and is {state}"


@dataclass(frozen=True)
class JobPolicy:
    """What the cluster does with a job by itself; 0 means never."""

    after: tuple[Dependency, ...] = ()
    idle_stop: int = 0  # seconds without use of its GPUs, after which the job is stopped
    keep_failed: int = 0  # seconds for which the environment of a failed task is kept
    requeues: int = 0  # how often a task that reaches its time limit runs again
    grace: int = 0  # seconds before that limit at which the task gets TERM; 0 is the default


_NUMBERS = {"idleStopSeconds": "idle_stop", "keepFailedSeconds": "keep_failed", "requeues": "requeues"}
_NUMBERS |= {"graceSeconds": "grace"}


def policy_extras(policy: JobPolicy) -> dict[str, Any]:
    """Return the policy as extras of a document; empty if it asks for nothing."""
    after = [{"job": one.job, "when": one.when} for one in policy.after]
    numbers = {key: getattr(policy, name) for key, name in _NUMBERS.items()}
    found = {key: value for key, value in {"after": after, **numbers}.items() if value}
    return {KEY: found} if found else {}


def read_policy(extras: Mapping[str, Any]) -> JobPolicy:
    """Return the policy in a document's extras, without what is wrong in a document that was not checked."""
    given = mapping(extras.get(KEY))
    after = ((text(one.get("job")), one.get("when", WHEN[0])) for one in rows(given.get("after")))
    numbers = {name: count(given.get(key)) for key, name in _NUMBERS.items()}
    return JobPolicy(tuple(Dependency(*one) for one in after if one[0] and one[1] in WHEN), **numbers)


def add_policy(document: dict[str, Any], policy: JobPolicy) -> dict[str, Any]:
    """Return the document with what the policy asks for; dependencies are added to those that it has."""
    given = policy_extras(policy)
    if not given:
        return document
    extras = mapping(document.get("extras"))
    known = mapping(extras.get(KEY))
    after = [*rows(known.get("after")), *given[KEY].get("after", ())]
    found = {**known, **given[KEY], **({"after": after} if after else {})}
    return {**document, "extras": {**extras, KEY: found}}


def change_dependencies(
    document: dict[str, Any], change: Callable[[Dependency], Dependency | None]
) -> dict[str, Any]:
    """Return the document with each dependency changed, or left out for None."""
    extras = mapping(document.get("extras"))
    policy = read_policy(extras)
    if not policy.after:
        return document
    changed = tuple(filter(None, map(change, policy.after)))
    others = {key: value for key, value in extras.items() if key != KEY}
    return {**document, "extras": {**others, **policy_extras(replace(policy, after=changed))}}


# Priority, which a document has where OpenPAI's scheduler looks for it

SCHEDULER, PRIORITY = "hivedScheduler", "jobPriorityClass"
PRIORITIES = {"low": "oppo", "normal": "test", "high": "prod", "crit": "crit"}
"""The words for a priority, lowest first, with OpenPAI's classes; some clusters refuse ``crit``."""
_CLASSES = tuple(PRIORITIES.values())
NORMAL, HIGHEST = _CLASSES.index("test"), len(_CLASSES) - 1


def priority_class(word: str) -> str:
    """Return OpenPAI's class for a priority, which may also be the class itself."""
    if word not in PRIORITIES and word not in _CLASSES:
        raise ValueError(f"needs low, normal or high, got {word!r}")
    return PRIORITIES.get(word, word)


def priority_word(name: str | None) -> str:
    """Return the word for a class of OpenPAI; an unknown class is its own word."""
    return next((word for word, known in PRIORITIES.items() if known == name), name or "")


def priority_rank(name: str | None) -> int:
    """Return a number that is larger for a higher priority; that of normal without a known one."""
    return _CLASSES.index(name) if name in _CLASSES else NORMAL


def read_priority(extras: Mapping[str, Any]) -> str | None:
    """Return the class of a job's priority, if its document has one."""
    return text(mapping(extras.get(SCHEDULER)).get(PRIORITY)) or None


def without_priority(extras: Mapping[str, Any]) -> dict[str, Any]:
    """Return the extras without the priority."""
    rest = {key: value for key, value in mapping(extras.get(SCHEDULER)).items() if key != PRIORITY}
    return {
        key: rest if key == SCHEDULER else value for key, value in extras.items() if key != SCHEDULER or rest
    }


def with_priority(extras: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the extras with this class of priority, or unchanged if it is empty."""
    return {**extras, SCHEDULER: {**mapping(extras.get(SCHEDULER)), PRIORITY: name}} if name else {**extras}
