"""Validate v1 job configurations (JSON, OpenPAI 0.14) and fill in their defaults."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any

from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol.document.rules import path_text
from openpai_tasks.protocol.problems import Problem, closest, refusal
from openpai_tasks.protocol.yaml.reader import Path, Source
from openpai_tasks.protocol.yaml.values import SPACE

Data = dict[str, Any]
Problems = list[tuple[Path, str]]
Convert = Callable[[Any, Path, Data, Problems], Any]
"""Converts a value, given its path and siblings; adds what is wrong to the problems."""

_NOTHING = object()
_MOST = 2**53 - 1
_NUMBER = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_OTHER_BASES = re.compile(r"0(?:[xX][0-9a-fA-F]+|[oO][0-7]+|[bB][01]+)")


@dataclass(frozen=True)
class _Field:
    convert: Convert
    default: Any = _NOTHING
    required: bool = False
    about: str = ""


def validate_v1(document: Any, source: Source | None = None) -> Data:
    """Validate a configuration, fill in defaults and convert numbers given as text.

    With the ``source`` it was read from, problems have line numbers.
    """
    problems: Problems = []
    result: Data = _mapping(_JOB)(document, (), {}, problems)
    if problems:
        line = source.line if source else lambda path: None
        raise refusal(Problem(path_text(path), rule, line(path)) for path, rule in problems)
    return result


def _text(pattern: str = "", empty: bool = False) -> Convert:
    def convert(value: Any, path: Path, siblings: Data, problems: Problems) -> Any:
        if not isinstance(value, str):
            problems.append((path, "must be a string"))
        elif not value and not empty:
            problems.append((path, "must not be empty"))
        elif value and pattern and not re.fullmatch(pattern, value):
            problems.append((path, f"must match {pattern}, got {value[:40]!r}"))
        return value

    return convert


def _whole(least: int | None = None, null: bool = False, most: str = "") -> Convert:
    """Convert an integer, also from text; ``most`` names a sibling that it must not exceed."""

    def convert(value: Any, path: Path, siblings: Data, problems: Problems) -> Any:
        if null and value is None:
            return None
        number = _number(value)
        if number is None:
            problems.append((path, "must be a number"))
            return None
        if number != math.floor(number) or abs(number) > _MOST:
            problems.append((path, f"must be an integer, got {number}"))
            return None
        if least is not None and number < least:
            problems.append((path, f"must be >= {least}, got {int(number)}"))
        elif most and isinstance(siblings.get(most), int) and number > siblings[most]:
            problems.append((path, f"must be <= {most} ({siblings[most]}), got {int(number)}"))
        return int(number)

    return convert


def _number(value: Any) -> float | int | None:
    if isinstance(value, str):
        text = value.strip(SPACE)
        if _OTHER_BASES.fullmatch(text):
            return 0  # the server reads only the digits before the letter
        value = float(text) if _NUMBER.fullmatch(text) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if abs(value) <= sys.float_info.max else None  # an integer of JSON may be larger


def _parsed(value: Any, kind: type) -> Any:
    """Parse lists and mappings that are given as JSON text; None if it is another value."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, kind) else None


def _mapping(fields: Mapping[str, _Field]) -> Convert:
    def convert(value: Any, path: Path, siblings: Data, problems: Problems) -> Any:
        found = _parsed(value, dict)
        if found is None:
            problems.append((path, "must be an object"))
            return None
        result = dict(found)
        unknown = [name for name in found if name not in fields]
        problems += [((*path, name), f"unknown key{closest(name, fields)}") for name in unknown]
        for name, field in fields.items():
            if name in found:
                result[name] = field.convert(found[name], (*path, name), result, problems)
            elif field.required:
                problems.append(((*path, name), "is required but missing"))
            elif field.default is not _NOTHING:
                result[name] = field.default if field.default != [] else []
        return result

    return convert


def _list(convert_item: Convert, least: int = 0) -> Convert:
    def convert(value: Any, path: Path, siblings: Data, problems: Problems) -> Any:
        found = _parsed(value, list)
        if found is None:
            problems.append((path, "must be a list"))
            return None
        result = [convert_item(item, (*path, index), siblings, problems) for index, item in enumerate(found)]
        if len(found) < least:
            problems.append((path, f"must have at least {least} item"))
        return result

    return convert


def _free(pattern: str = "") -> Convert:
    """Accept a mapping of anything, optionally with a pattern for its keys."""

    def convert(value: Any, path: Path, siblings: Data, problems: Problems) -> Any:
        found = _parsed(value, dict)
        if found is None:
            problems.append((path, "must be an object"))
            return None
        wrong = [key for key in found if pattern and not re.search(pattern, key)]
        problems += [((*path, key), "unknown key") for key in wrong]
        return found

    return convert


_LABEL = r"[A-Za-z0-9._~]+"
_PORT = {
    "label": _Field(_text(_LABEL), required=True, about="the name of the ports, in variables of the tasks"),
    "beginAt": _Field(_whole(), 0, about="the first port; 0 for any"),
    "portNumber": _Field(_whole(), 1, about="how many ports"),
}
_ROLE = {
    "name": _Field(_text(_LABEL), required=True, about="the role's name"),
    "taskNumber": _Field(_whole(), 1, about="how many tasks run the command"),
    "cpuNumber": _Field(_whole(), 1, about="CPU cores of each task"),
    "memoryMB": _Field(_whole(), 100, about="memory of each task, in MB"),
    "shmMB": _Field(_whole(most="memoryMB"), 64, about="shared memory of each task, in MB"),
    "gpuNumber": _Field(_whole(), 0, about="GPUs of each task"),
    "portList": _Field(_list(_mapping(_PORT)), [], about="ports of each task"),
    "command": _Field(_text(), required=True, about="what each task runs"),
    "minFailedTaskCount": _Field(_whole(least=1, null=True), 1, about="how many failed tasks end the job"),
    "minSucceededTaskCount": _Field(
        _whole(least=1, null=True), None, about="how many tasks must succeed for the job to end; null for all"
    ),
}


def _optional(about: str) -> _Field:
    return _Field(_text(empty=True), "", about=about)


_JOB = {
    "jobName": _Field(
        _text(r"[A-Za-z0-9\-._]+"), required=True, about="the job's name, unique among your jobs"
    ),
    "image": _Field(_text(), required=True, about="the docker image that all tasks run in"),
    "authFile": _optional("a file with the login for a private registry"),
    "dataDir": _optional("the folder of the data, as $PAI_DATA_DIR"),
    "outputDir": _optional("the folder for results, as $PAI_OUTPUT_DIR"),
    "codeDir": _optional("the folder of the code, as $PAI_CODE_DIR"),
    "taskRoles": _Field(_list(_mapping(_ROLE), least=1), required=True, about="what the job runs"),
    "gpuType": _optional("the kind of GPU"),
    "killAllOnCompletedTaskNumber": _Field(_whole(), about="how many finished tasks end the job"),
    "virtualCluster": _Field(_text(empty=True), "default", about="the virtual cluster to run in"),
    "retryCount": _Field(_whole(least=-2), 0, about="how often the job is retried"),
    "jobEnvs": _Field(_free(), about="environment variables"),
    "extras": _Field(_free(r"^[A-Za-z0-9._]+\Z"), about="for extensions of the cluster"),
}


def schema_v1() -> Data:
    """Return the names of the fields with what they mean, as a JSON Schema without types, for editors."""
    role = _described(_ROLE, portList={"type": "array", "items": _described(_PORT)})
    return _described(_JOB, taskRoles={"type": "array", "items": role})


def _described(fields: Mapping[str, _Field], **more: Data) -> Data:
    known = {name: {"description": field.about, **more.get(name, {})} for name, field in fields.items()}
    return {"type": "object", "properties": known}
