"""A job's own folder on a storage: ``<workspace>/jobs/<job>/source``, complete or absent."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from openpai_tasks.errors import ConfigError, Conflict, PathError
from openpai_tasks.home import make_private
from openpai_tasks.storage.sources import Source


@dataclass(frozen=True)
class Storage:
    """A storage that this machine can write to, and the user's part of it."""

    name: str
    root: Path


def open_storage(detail: dict[str, Any], user: str) -> Storage:
    """What the cluster says of a storage, turned into a place to write to."""
    if detail.get("type") != "local":
        kind = detail.get("type")
        raise ConfigError(f"storage {detail['name']!r} is of type {kind!r}, which sources cannot be sent to")
    root = Path(detail["data"]["path"])
    return Storage(detail["name"], root if detail.get("share") else root / user)


def source_folder(workspace: str, job: str) -> str:
    """Where a job's sources lie, relative to the user's part of the storage."""
    return f"{jobs_folder(workspace)}/{_plain(job)}/source"


def output_folder(workspace: str, job: str) -> str:
    """Where a job writes what is to be kept, relative to the user's part of the storage."""
    return f"{jobs_folder(workspace)}/{_plain(job)}/output"


def jobs_folder(workspace: str) -> str:
    """What holds the folders of all jobs."""
    path = PurePosixPath(workspace.strip("/")) / "jobs"
    if os.pardir in path.parts:
        raise PathError(f"a workspace cannot hold '..': {workspace!r}")
    return str(path)


def _plain(job: str) -> str:
    if job in ("", os.curdir, os.pardir) or "/" in job:
        raise ConfigError(f"{job!r} cannot be the name of a job: letters, digits, _ and - only")
    return job


def inside(storage: Storage, folder: str) -> Path:
    """The folder on the storage, if no link and no ``..`` leads out of the user's part of it."""
    place = storage.root / folder.lstrip("/")
    if not place.resolve().is_relative_to(storage.root.resolve()):
        raise PathError(f"{folder!r} leads out of the storage {storage.name!r}, by a link or by '..'")
    return place


def publish(storage: Storage, folder: str, sources: Sequence[Source]) -> None:
    """Copy everything into a folder of another name, then give it its own: nobody sees a part."""
    target = storage.root / folder
    make_private(target.parent)
    staging = Path(tempfile.mkdtemp(prefix=".source-", dir=target.parent))
    try:
        for source in sources:
            copy = staging / source.name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source.path, copy)
        os.rename(staging, target)
    except FileExistsError as err:
        raise Conflict(f"the sources of another job are at {target}; choose another job name") from err
    except OSError as err:
        if target.exists():
            raise Conflict(f"the sources of another job are at {target}; choose another job name") from err
        raise PathError(f"cannot copy the sources to {target}: {err.strerror or err}") from err
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def withdraw(storage: Storage, folder: str) -> None:
    """Take back what was published for a job that the cluster then refused."""
    shutil.rmtree(storage.root / folder, ignore_errors=True)
