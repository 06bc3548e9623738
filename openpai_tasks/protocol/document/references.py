"""References between the parts of a document: prerequisites, deployments and roles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from openpai_tasks.protocol.document.rules import Report, type_name
from openpai_tasks.protocol.problems import closest
from openpai_tasks.protocol.yaml.reader import Path
from openpai_tasks.protocol.yaml.values import text_of

Data = dict[str, Any]

FIELDS = {"script": "script", "output": "output", "data": "data", "dockerImage": "dockerimage"}
"""Keys of a role, and the types of the prerequisites they refer to."""

_LIMIT = 2**53


def roles(data: Data) -> Iterator[tuple[str, Data]]:
    """Yield each role with its name; in a list, roles are named 0, 1, 2, as on the server."""
    value = data["taskRoles"]
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, list):
        yield from ((str(index), role) for index, role in enumerate(value))


def prerequisite(data: Data, type_: str, name: Any) -> Data:
    """Return the prerequisite of that type and name; empty if there is none."""
    for item in data.get("prerequisites", ()):
        if item["type"] == type_ and item["name"] == name:
            found: Data = item
            return found
    return {}


def names(data: Data, role: str) -> Data:
    """Return the names that templates in a role's commands can use."""
    found: Data = {"$parameters": data.get("parameters")}
    chosen = dict(roles(data))[role]
    for field in ("script", "output", "data"):
        found[f"${field}"] = prerequisite(data, field, chosen.get(field)) or None
    return found


def commands(data: Data, role: str) -> list[str]:
    """Return a role's commands, with those that the default deployment adds before and after."""
    around = _deployed(data).get(role, {})
    own: list[str] = dict(roles(data))[role]["commands"]
    return [*around.get("preCommands", ()), *own, *around.get("postCommands", ())]


def credentials(data: Data) -> Iterator[tuple[Path, str]]:
    """Yield the path and text of each template in the credentials for image registries."""
    for index, item in enumerate(data.get("prerequisites", ())):
        if item["type"] == "dockerimage":
            for key, value in item.get("auth", {}).items():
                if isinstance(value, str):
                    yield ("prerequisites", index, "auth", key), value


def whole(value: Any) -> int:
    """Convert an integer that passed the schema, which allows infinity."""
    return int(max(-_LIMIT, min(_LIMIT, value)))


def check(data: Data, report: Report) -> None:
    """Report duplicate names, and references to missing parts."""
    _check_twice(data, report)
    _check_shapes(data, report)
    if report.sound:
        _check_roles(data, report)
        _check_deployment(data, report)


def _check_twice(data: Data, report: Report) -> None:
    seen: set[tuple[str, str]] = set()
    for part in ("prerequisites", "deployments"):
        for index, item in enumerate(data.get(part, ())):
            kind = f"{item['type']} prerequisite" if part == "prerequisites" else "deployment"
            key = (kind, item["name"])
            if key in seen:
                report.add((part, index, "name"), f"duplicate {kind} {item['name']!r}", sound=True)
            seen.add(key)


def _check_shapes(data: Data, report: Report) -> None:
    """Report values that pass the schema but fail later on the server."""
    given = data["taskRoles"]
    if given is None or (isinstance(given, str) and given):
        report.add(("taskRoles",), f"must be a mapping, got {type_name(given)}")
    for index, role in enumerate(given if isinstance(given, list) else ()):
        own = role.get("commands") if isinstance(role, dict) else None
        if not isinstance(own, list) or not all(isinstance(command, str) for command in own):
            report.add(("taskRoles", index), "a task role must be a mapping with a list of commands")
        elif not isinstance(role.get("prerequisites", []), (list, str)):
            report.add(("taskRoles", index, "prerequisites"), "must be a list")
    for index, item in enumerate(data.get("prerequisites", ())):
        for key, value in (item.get("auth", {}) if item["type"] == "dockerimage" else {}).items():
            # null, false, 0 and NaN render to nothing; of other values, only text can be rendered
            is_number = isinstance(value, (bool, int, float))
            is_nothing = value is None or (is_number and (not value or value != value))
            if not isinstance(value, str) and not is_nothing:
                report.add(("prerequisites", index, "auth", key), f"must be a string, got {type_name(value)}")


def _check_roles(data: Data, report: Report) -> None:
    given = data.get("prerequisites", ())
    known = {item["name"] for item in given}
    for name, role in roles(data):
        path = ("taskRoles", name if isinstance(data["taskRoles"], dict) else int(name))
        for index, wanted in enumerate(role.get("prerequisites", ())):
            if not isinstance(wanted, str) or wanted not in known:
                rule = _absent("prerequisite", wanted, known)
                report.add((*path, "prerequisites", index), rule, sound=True)
        for field, type_ in FIELDS.items():
            there = {item["name"] for item in given if item["type"] == type_}
            if field in role and text_of(role[field]) not in there:
                rule = _absent(f"{type_} prerequisite", role[field], there)
                report.add((*path, field), rule, sound=True)


def _check_deployment(data: Data, report: Report) -> None:
    defaults = data.get("defaults", {})
    if "deployment" not in defaults:
        return
    known = {item["name"]: item for item in data.get("deployments", ())}
    wanted = defaults["deployment"]
    if wanted not in known:
        report.add(("defaults", "deployment"), _absent("deployment", wanted, known), sound=True)
    elif not isinstance(known[wanted]["taskRoles"], (dict, list)) and any(roles(data)):
        report.add(("deployments",), f"taskRoles of {wanted!r} must be a mapping")


def _absent(what: str, wanted: Any, known: Any) -> str:
    names = ", ".join(sorted(known)) or "none"
    return f"no {what} named {text_of(wanted)!r} (known: {names}){closest(text_of(wanted), known)}"


def _deployed(data: Data) -> Data:
    wanted = data.get("defaults", {}).get("deployment")
    for item in data.get("deployments", ()):
        if item["name"] == wanted and isinstance(item["taskRoles"], dict):
            found: Data = item["taskRoles"]
            return found
    return {}
