"""Check the outer structure of a job document from a server before it is traversed."""

from __future__ import annotations

from typing import Any

Shape = type | dict[str, Any] | list[Any] | tuple[Any, ...]
"""A type; {key: shape}, {"*": shape} for every key; [shape of each item]; () around optional parts."""

ROLE: Shape = {
    "commands": [str],
    "resourcePerInstance": (dict,),
    "prerequisites": ([str],),
    "extraContainerOptions": (dict,),
}
DOCUMENT: Shape = {
    "taskRoles": {"*": ROLE},
    "prerequisites": ([{"name": str}],),
    "deployments": ([{"taskRoles": {"*": ({"preCommands": ([str],), "postCommands": ([str],)},)}}],),
    "extras": ({"storages": ([dict],), "hivedScheduler": (dict,)},),
    "defaults": (dict,),
    "parameters": (dict,),
}


def first_mismatch(value: Any, shape: Shape = DOCUMENT, path: str = "") -> str:
    """Return the path of the first part with the wrong type; empty if there is none."""
    if isinstance(shape, tuple):
        return first_mismatch(value, shape[0], path) if value is not None else ""
    if isinstance(shape, type):
        return "" if isinstance(value, shape) else path
    if isinstance(shape, list) and isinstance(value, list):
        parts = [(str(number), item, shape[0]) for number, item in enumerate(value)]
    elif isinstance(shape, dict) and isinstance(value, dict):
        keys = value if "*" in shape else shape
        parts = [(key, value.get(key), shape.get(key) or shape["*"]) for key in keys]
    else:
        return path or "the document"
    found = (first_mismatch(item, inner, f"{path}.{key}" if path else key) for key, item, inner in parts)
    return next(filter(None, found), "")
