"""The cluster that runs the calls of an executor, and the request that its jobs share."""

from __future__ import annotations

import difflib
import logging
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from openpai_tasks.api.executor_record import ExecutorFacts
from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import ConfigError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol import JobRequest
from openpai_tasks.sdk.clusters import known as clusters
from openpai_tasks.sdk.files import job_folders, storages
from openpai_tasks.sdk.files.job_folders import Home, Mounts
from openpai_tasks.sdk.jobs import flags as job_flags
from openpai_tasks.sdk.jobs import submission
from openpai_tasks.settings.config import BUILT_IN, Settings
from openpai_tasks.settings.registry import LOCAL

log = logging.getLogger("openpai_tasks")

Several = str | Sequence[str]


class CallFlags(TypedDict, total=False):
    """The flags of `job.sub` that jobs of calls can have; settings are their defaults."""

    image: str
    sources: Several
    pip_installs: Several
    python: str
    cpu: int
    gpu: int
    memory: int | str
    memoryMB: int | str
    shm: int | str
    env: Mapping[str, str]
    secret: Several
    retries: int
    max_time: int | str
    tag: Several
    update: Several
    workspace: str
    virtual_cluster: str


SEVERAL = ("sources", "pip_installs", "secret", "tag", "update")


@dataclass(frozen=True)
class CallTarget:
    """Where and how calls run: a cluster, its storage, and what their jobs share."""

    client: Backend
    home: Home
    request: JobRequest
    mounts: Mounts
    here: Path
    python: str  # shell words that start it
    is_selected: bool  # commands use this cluster unless they name another one


def open_target(cluster: str, given: Mapping[str, Any]) -> CallTarget:
    """Connect to the cluster, and build the request from flags and settings."""
    check_flags(given)
    flags = _as_typed(given)
    settings = _settings(cluster, job_flags.setting_overrides(flags))
    request = job_flags.build_request(flags, settings, _secret)
    client = connect(settings)
    submission.check_tags(client, request.tags)
    mounts = storages.mounts(settings)
    home = job_folders.require_home(client, request.workspace, mounts)
    return CallTarget(client, home, request, mounts, Path.cwd(), _python(settings), _is_selected(client))


def reopen_target(facts: ExecutorFacts) -> CallTarget:
    """Connect to the cluster of an earlier executor."""
    settings = _settings(facts.cluster, {})
    client, mounts = connect(settings), storages.mounts(settings)
    home = job_folders.at(client, facts.storage, facts.workspace, facts.user, mounts)
    request = JobRequest(tags=tuple(facts.tags))
    return CallTarget(client, home, request, mounts, Path.cwd(), "", _is_selected(client))


def connect(settings: Settings) -> Backend:
    return clusters.connect(settings, say=lambda line: log.warning("%s", line))


def check_flags(given: Mapping[str, Any]) -> None:
    """Refuse a flag that does not exist."""
    for name in given:
        if name not in CallFlags.__annotations__:
            near = difflib.get_close_matches(name, CallFlags.__annotations__, 1)
            hint = f", did you mean {near[0]}?" if near else f" ({', '.join(CallFlags.__annotations__)})"
            raise ConfigError(f"jobs of calls have no flag {name!r}{hint}")


def _settings(cluster: str, overrides: Mapping[str, Any]) -> Settings:
    return Settings.load(None, {**overrides, "cluster_alias": cluster or None})


def _is_selected(client: Backend) -> bool:
    return Settings.load(None, {}, withhold=True).cluster_alias == client.cluster.alias


def _as_typed(given: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the arguments to flags of a command line: lists as tuples, variables as NAME=VALUE."""
    flags = dict(given)
    for name in SEVERAL:
        value = flags.get(name) or ()
        flags[name] = (value,) if isinstance(value, str) else tuple(value)
    memory = flags.pop("memory", None)
    flags["memoryMB"] = flags.get("memoryMB", memory)
    flags["env"] = tuple(f"{name}={value}" for name, value in (flags.get("env") or {}).items())
    flags["max_time"] = str(flags.get("max_time") or "")
    return flags


def _secret(name: str) -> str:
    if name not in os.environ:
        raise ConfigError(f"secret {name!r} is not in the environment; set it in os.environ first")
    return os.environ[name]


def _python(settings: Settings) -> str:
    """Return the start of the job's command.

    The embedded cluster may run jobs without an image: calls then use this program's own Python, with its
    packages, unless the user chose another one.
    """
    chosen = shlex.quote(settings.python)
    is_default = settings.origins["python"] == BUILT_IN and not settings.pip_installs
    if settings.cluster_alias != LOCAL or not is_default or not sys.executable:
        return f"exec {chosen}"
    own = f"pai_python={shlex.quote(sys.executable)}"
    return f'{own}; [ -x "$pai_python" ] || pai_python={chosen}; exec "$pai_python"'
