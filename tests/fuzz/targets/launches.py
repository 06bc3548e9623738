"""Job documents as the embedded cluster starts them: plugins, mounts, and the files of each engine."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from openpai_tasks.errors import PaiError
from openpai_tasks.server.api import submission
from openpai_tasks.server.api.rates import API, LIST, SUBMIT
from openpai_tasks.server.cluster import ClusterOptions, EmbeddedCluster
from openpai_tasks.server.engines import container_files
from openpai_tasks.server.engines.base import Launch
from openpai_tasks.server.engines.container_program import PODMAN
from openpai_tasks.server.engines.kubernetes import pods
from openpai_tasks.server.engines.slurm import batches
from openpai_tasks.server.engines.slurm.partitions import parse_nodes
from openpai_tasks.server.engines.slurm.site import SlurmSite
from tests.fuzz.target import Target
from tests.fuzz.targets.kubernetes import SITE
from tests.fuzz.targets.slurm import NODES
from tests.server.workshop import document, role

OWNER = pods.PodOwner("home", "host:/home")
SETTINGS = container_files.ContainerSettings(
    cast(Any, SimpleNamespace(path="podman", dialect=PODMAN, environment={})), "/home", 4, 30.0
)


class Starter:
    """A cluster that starts jobs up to the point where their runners are requested."""

    def __init__(self) -> None:
        home = Path(tempfile.mkdtemp(prefix="fuzz-"))
        atexit.register(shutil.rmtree, home, ignore_errors=True)
        self._cluster = EmbeddedCluster(ClusterOptions(home, rates=dict.fromkeys((API, LIST, SUBMIT))))
        self._context = self._cluster.context
        user = self._context.accounts.user(self._context.owner.name)
        assert user
        self._user = user
        self._launches: list[Launch] = []
        engine: Any = self._context.engine
        self._start: Callable[..., None] = engine.start
        engine.start, engine._request = self._note, lambda folders: None

    def _note(self, *launches: Launch) -> None:
        self._launches += launches
        self._start(*launches)

    def start(self, text: str) -> Sequence[Launch]:
        """Submit a job, give the scheduler a turn, and return what it has started."""
        self._launches = []
        found = submission.read_document(text)
        job, _ = submission.accept(self._context, self._user, found, text)
        scheduler: Any = self._cluster._scheduler
        try:
            scheduler._turn(set())
        finally:
            self._context.state.database.write("UPDATE jobs SET state = 'FAILED' WHERE key = ?", [job.key])
            self._context.state.remove(job.key)
        return self._launches


@cache
def _starter() -> Starter:
    return Starter()


def _start(data: bytes) -> None:
    """Start a job, also with the engines for containers, Slurm and Kubernetes."""
    launches = _starter().start(data.decode("utf-8", "replace"))
    for launch in launches[:3]:
        for prepare in (_pod, _container):
            try:
                prepare(launch)
            except (PaiError, OSError) as err:  # as the engines do
                str(err).encode("utf-8", "surrogateescape")
    for batch in batches.make_batches(launches):
        batches.describe(batch, {})
        batches.script(batch, Path("/tasks"), ["python"], SlurmSite(""), parse_nodes(NODES.decode()))


def _container(launch: Launch) -> None:
    container_files.prepare(launch, SETTINGS)


def _pod(launch: Launch) -> None:
    files = pods.plan_files(launch, SITE)
    for mount in launch.mounts if files.target else ():
        if mount.name == launch.extras["openpaiTasks"]["storage"]:
            folder = Path(mount.address).resolve()
            assert files.target and files.target.resolve().is_relative_to(folder), "outputs lead elsewhere"
    pod = pods.build_pod(launch, OWNER, SITE, files, "pai-1", pods.GangMarks())
    pod["metadata"]["uid"] = "1"
    pods.build_secrets(launch, pod, files, is_alone=True)


PLUGINS = [
    {"plugin": "ssh", "parameters": {"jobssh": True, "sshbarrier": True, "userssh": {"type": "none"}}},
    {
        "plugin": "cmd",
        "parameters": {"callbacks": [{"event": "taskStarts", "commands": ["a <% $secrets.KEY %>"]}]},
    },
    {"plugin": "cmd", "taskroles": ["main"], "parameters": {"preCommands": ["b"], "postCommands": ["c"]}},
    {"plugin": "git", "parameters": {"repo_uri": "https://h/r", "options": ["--depth 1"], "clone_dir": "/r"}},
    {"plugin": "tensorboard"},
    {"plugin": "other", "failurePolicy": "ignore"},
]
EXTRAS = {
    "com.microsoft.pai.runtimeplugin": PLUGINS,
    "storages": [{"name": "home", "mountPath": "/mnt/home"}],
    "gangAllocation": False,
    "hivedScheduler": {
        "jobPriorityClass": "oppo",
        "taskRoles": {"main": {"skuType": "K80", "skuNum": 1}},
    },
    "openpaiPolicy": {"after": [], "keepFailedSeconds": 5, "requeues": 1, "graceSeconds": 3},
    "openpaiTasks": {"storage": "home", "workspace": "/w", "sourceArchive": "w/a.tar.gz"},
    "slurm": {"options": ["--account=lab"]},
}
JOB = document(
    "train", {"main": role("timeout 60 true", 2, ports={"http": 2})}, extras=EXTRAS, secrets={"KEY": "x"}
)
OLD = document("train", {"main": role("true", prerequisites=["image"], extraContainerOptions={"shmMB": 64})})
TEAM = document(
    "train",
    {"main": role("true")},
    extras={
        "com.microsoft.pai.runtimeplugin": [
            {"plugin": "teamwise_storage", "parameters": {"storageConfigNames": ["home"]}}
        ]
    },
)
TARGETS = (Target("job-start", _start, tuple(text.encode() for text in (JOB, OLD, TEAM))),)
