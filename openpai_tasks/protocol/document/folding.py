"""Job documents without the shell that we generate around the user's own commands.

A generated step begins with a comment that names it, and is folded to that comment. The subshell around
a role's commands is left out, and a time limit becomes a comment. ``unfold`` undoes this after an edit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from openpai_tasks.errors import ProtocolError
from openpai_tasks.protocol.document import job_storage, scripts
from openpai_tasks.protocol.document.build import BRACKET
from openpai_tasks.protocol.document.template import OPEN, escape_brackets
from openpai_tasks.protocol.fields import mapping, texts

_NUMBER = "([1-9][0-9]{0,8})"
_TIME_LIMIT = re.compile(
    rf"{scripts.MARK}time limit of {_NUMBER} s(?:, requeued up to {_NUMBER} times, {_NUMBER} s grace)?\n"
)

Document = dict[str, Any]
ChangeCommands = Callable[[list[str]], list[str]]


def own_commands(document: Mapping[str, Any]) -> dict[str, str]:
    """Return what the user wants each role to run, without the shell that we generate around it."""
    return {
        str(name): "\n".join(map(_own_command, job_storage.unwrap(texts(mapping(role).get("commands")))))
        for name, role in mapping(document.get("taskRoles")).items()
    }


def _own_command(command: str) -> str:
    return scripts.unlimited(command).replace(escape_brackets(OPEN, BRACKET), OPEN)


def fold(document: Document) -> Document:
    """Return the document to show: generated steps are comments, and commands are the user's own."""
    return _change(document, lambda own: [_fold_command(one) for one in job_storage.unwrap(own)], _fold_step)


def generated_steps(document: Document) -> list[str]:
    """Return the steps that we have generated, each once."""
    found: list[str] = []

    def collect(step: str) -> str:
        found.extend([step] if step.startswith(scripts.MARK) else ())
        return step

    _change(document, list, collect)
    return list(dict.fromkeys(found))


def unfold(edited: Document, original: Document) -> Document:
    """Return the document that is meant by an edited result of ``fold(original)``."""
    steps: dict[str, str] = {}
    is_wrapped = False

    def collect_step(step: str) -> str:
        return steps.setdefault(_fold_step(step), step)

    def collect_commands(commands: list[str]) -> list[str]:
        nonlocal is_wrapped
        is_wrapped = is_wrapped or job_storage.unwrap(commands) != commands
        return commands

    _change(original, collect_commands, collect_step)

    def commands(own: list[str]) -> list[str]:
        found = [_unfold_command(one) for one in own]
        return job_storage.wrap(found) if is_wrapped and found else found

    return _change(edited, commands, lambda step: _unfold_step(step, steps))


def limit_time(document: Document, seconds: int | None, requeues: int = 0, grace: int = 0) -> Document:
    """Return the document with another time limit of its tasks, or another number of requeues at it.

    Raise ValueError for commands with other template holes than ours, whose values could break the quotes.
    """

    def limit(commands: list[str]) -> list[str]:
        inside = job_storage.unwrap(commands)
        own = "\n".join(map(scripts.unlimited, inside))
        if OPEN in own.replace(escape_brackets(OPEN, BRACKET), ""):
            raise ValueError(f"cannot limit commands that contain {OPEN}")
        limited = [scripts.limit_time(own, seconds or scripts.time_limit(inside[0]) or 0, requeues, grace)]
        return job_storage.wrap(limited) if inside != commands else limited

    return _change(document, limit, lambda step: step)


def _fold_command(command: str) -> str:
    seconds = scripts.time_limit(command)
    own = scripts.unlimited(command)
    requeues, grace = scripts.requeueing(command)
    again = f", requeued up to {requeues} times, {grace} s grace" if requeues else ""
    return command if own == command else f"{scripts.MARK}time limit of {seconds} s{again}\n{own}"


def _unfold_command(command: str) -> str:
    found = _TIME_LIMIT.match(command)
    if found is None:
        return command
    return scripts.limit_time(command[found.end() :], *(int(number or 0) for number in found.groups()))


def _fold_step(step: str) -> str:
    if not step.startswith(scripts.MARK):
        return step
    lines = step.splitlines()
    end = next((at for at, line in enumerate(lines) if not line.startswith("# ")), len(lines))
    return "\n".join(lines[:end])


def _unfold_step(step: str, known: Mapping[str, str]) -> str:
    found = known.get(step.rstrip("\n"), step)
    if found == step and _fold_step(step) == step and step.startswith(scripts.MARK):
        raise ProtocolError(f"{step.splitlines()[0]!r} can be removed, but not changed or added")
    return found


def _change(document: Document, own: ChangeCommands, step: Callable[[str], str]) -> Document:
    """Change the commands of every role and the steps before them; other shapes stay as they are."""

    def role(value: Any) -> Any:
        return _replace(value, "commands", own)

    def deployed(value: Any) -> Any:
        return _replace(value, "preCommands", lambda steps: list(map(step, steps)))

    result = dict(document)
    if isinstance(roles := document.get("taskRoles"), dict):
        result["taskRoles"] = {name: role(value) for name, value in roles.items()}
    if isinstance(given := document.get("deployments"), list):
        result["deployments"] = [_in_roles(one, deployed) for one in given]
    return result


def _in_roles(deployment: Any, change: Callable[[Any], Any]) -> Any:
    roles = mapping(deployment).get("taskRoles")
    if not isinstance(roles, dict):
        return deployment
    return {**deployment, "taskRoles": {name: change(value) for name, value in roles.items()}}


def _replace(value: Any, key: str, change: Callable[[list[str]], Sequence[str]]) -> Any:
    given = mapping(value).get(key)
    if not isinstance(given, list) or not given or not all(isinstance(one, str) for one in given):
        return value
    return {**value, key: list(change(given))}
