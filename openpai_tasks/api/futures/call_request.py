"""The cluster that runs the calls of an executor, and the request that its jobs share."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

from openpai_tasks.api.connection import say, settings_here
from openpai_tasks.api.futures.executor_record import ExecutorFacts
from openpai_tasks.api.options import Words, read_options, secret_reader, secret_values
from openpai_tasks.backends.base import Backend
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol import JobRequest
from openpai_tasks.sdk.clusters import known as clusters
from openpai_tasks.sdk.files import job_folders, storages
from openpai_tasks.sdk.files.job_folders import Home, Mounts
from openpai_tasks.sdk.jobs import options as job_options
from openpai_tasks.sdk.jobs import submission
from openpai_tasks.settings.config import BUILT_IN, Settings


class CallFlags(TypedDict, total=False):
    """The flags of `job.sub` that jobs of calls can have; settings are their defaults."""

    image: str
    sources: Words
    pip_installs: Words
    python: str
    cpu: int
    gpu: int
    memoryMB: int | str
    shm: int | str
    env: Mapping[str, Any]
    secret: Mapping[str, str] | Words
    retries: int
    max_time: int | str
    tag: Words
    update: Words
    workspace: str
    virtual_cluster: str
    priority: str


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
    """Connect to the cluster, and build the request from options and settings."""
    options = read_options(given, CallFlags.__annotations__)
    settings = settings_here(cluster_alias=cluster or None, **job_options.setting_overrides(options))
    request = job_options.build_request(options, settings, secret_reader(secret_values(given)))
    client = clusters.connect(settings, say=say)
    submission.check_tags(client, request.tags)
    mounts = storages.mounts(settings)
    home = job_folders.require_home(client, request.workspace, mounts)
    return CallTarget(client, home, request, mounts, Path.cwd(), _python(settings), _is_selected(client))


def reopen_target(facts: ExecutorFacts) -> CallTarget:
    """Connect to the cluster of an earlier executor."""
    settings = settings_here(cluster_alias=facts.cluster)
    client, mounts = clusters.connect(settings, say=say), storages.mounts(settings)
    home = job_folders.at(client, facts.storage, facts.workspace, facts.user, mounts)
    request = JobRequest(tags=tuple(facts.tags))
    return CallTarget(client, home, request, mounts, Path.cwd(), "", _is_selected(client))


def _is_selected(client: Backend) -> bool:
    return settings_here().cluster_alias == client.cluster.alias


def _python(settings: Settings) -> str:
    """Return the start of the job's command.

    The embedded cluster may run jobs without an image: calls then use this program's own Python, with its
    packages, unless the user chose another one.
    """
    chosen = shlex.quote(settings.python)
    is_default = settings.origins["python"] == BUILT_IN and not settings.pip_installs
    if not settings.is_embedded or not is_default or not sys.executable:
        return f"exec {chosen}"
    own = f"pai_python={shlex.quote(sys.executable)}"
    return f'{own}; [ -x "$pai_python" ] || pai_python={chosen}; exec "$pai_python"'
