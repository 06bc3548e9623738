"""The engines of the embedded cluster, one row each.

The command line reads the names and labels; only the server loads a factory, which is called with the folder
of all jobs and with the folders of storages by name.
"""

from __future__ import annotations

from typing import NamedTuple


class EngineKind(NamedTuple):
    name: str
    label: str  # completes "jobs run …"
    factory: str  # MODULE:NAME
    program: str = ""  # program that must be installed


_SERVER = "openpai_tasks.server.engines"
_KINDS = (
    EngineKind("process", "as processes, without their image", f"{_SERVER}.process:ProcessEngine"),
    EngineKind("docker", "in containers of docker", f"{_SERVER}.containers:DockerEngine", "docker"),
    EngineKind("podman", "in containers of podman", f"{_SERVER}.containers:PodmanEngine", "podman"),
    EngineKind("slurm", "as jobs of Slurm", f"{_SERVER}.slurm.engine:SlurmEngine", "sbatch"),
)
ENGINES = {kind.name: kind for kind in _KINDS}
DEFAULT = _KINDS[0].name
