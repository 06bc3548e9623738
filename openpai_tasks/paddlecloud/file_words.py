"""The paths of `file put` and `file get`, as the paths of a copy."""

from __future__ import annotations

import os

from openpai_tasks.paddlecloud.go_flags import WrongUsage


def put(source: str, target: str) -> list[str]:
    """Copy into the folder ``target``; of a folder with a slash at its end, the contents."""
    folder, name = target.rstrip("/"), os.path.basename(source.rstrip("/"))
    if not os.path.isdir(source):
        return [source, f"{folder}/"]
    inner = folder if source.endswith("/") or name in ("", ".", "..") else f"{folder}/{name}"
    return [f"{source.rstrip('/')}/.", f"{inner}/"]


def get(source: str, target: str) -> list[str]:
    """Copy to this machine, into a folder or under a new name; an existing file is not replaced."""
    name = os.path.basename(source.rstrip("/"))
    path = os.path.join(target, name) if os.path.isdir(target) or target.endswith("/") else target
    if os.path.lexists(path):
        raise WrongUsage(f"file get does not replace {path}, which exists already")
    return [source, path]
