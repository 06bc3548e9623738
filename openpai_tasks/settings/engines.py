"""The engines of the embedded cluster, one row each.

The command line reads the names and labels; only the server loads a factory, which is called with the folder
of all jobs and with the folders of storages by name.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import NamedTuple


class EngineKind(NamedTuple):
    name: str
    label: str  # completes "jobs run …"
    factory: str  # MODULE:NAME
    program: str = ""  # program that must be installed
    check: str = ""  # command that succeeds if it can be used


SLURM = "slurm"
_SERVER = "openpai_tasks.server.engines"
_KINDS = (
    EngineKind("process", "as processes, without their image", f"{_SERVER}.process:ProcessEngine"),
    EngineKind(
        "docker", "in containers of docker", f"{_SERVER}.containers:DockerEngine", "docker", "docker info"
    ),
    EngineKind(
        "podman", "in containers of podman", f"{_SERVER}.containers:PodmanEngine", "podman", "podman info"
    ),
    EngineKind(SLURM, "as jobs of Slurm", f"{_SERVER}.slurm.engine:SlurmEngine", "sbatch", "sinfo"),
)
ENGINES = {kind.name: kind for kind in _KINDS}
DEFAULT = _KINDS[0].name
AUTO = "auto"
DEFAULT_IMAGES = DEFAULT_IMAGE, DEFAULT_PADDLE_IMAGE = ("python:3", "paddlepaddle/paddle")
"""The images of jobs that name none, of our clients and of PaddleCloud's."""
TROUBLE = "trouble"
"""The file in the server's folder with the reason why its engine cannot start tasks now."""
UNUSABLE = 4
"""Exit code of a server whose engine cannot be used."""
ENFORCE = REFUSE_GPUS, REFUSE_LARGER, REFUSE_NOTHING = ("gpu", "true", "false")
"""Which jobs that ask for more than the machine has are refused: for GPUs if it has some, all, or none."""
PROGRAMS: tuple[str, ...] = ("docker", "podman")
"""The programs that run containers."""
ANSWER_SECONDS = 20.0  # a busy daemon needs a few


def answers(program: str) -> bool:
    """Whether docker or podman can be used: it is installed, its daemon runs, and the user has access."""
    import subprocess

    from openpai_tasks.settings.credentials import hidden_environment

    argv, quiet = [program, "ps", "--quiet"], subprocess.DEVNULL
    try:
        done = subprocess.run(
            argv, stdin=quiet, stdout=quiet, stderr=quiet, env=hidden_environment(), timeout=ANSWER_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def answering_program(
    find: Callable[[str], str | None] = shutil.which, is_usable: Callable[[str], bool] = answers
) -> str:
    """Return the first program that answers, else the first that is installed, else nothing."""
    installed = [name for name in PROGRAMS if find(name)]
    usable = (name for name in installed if len(installed) == 1 or is_usable(name))
    return next(usable, installed[0] if installed else "")


def choose_engine(wanted: str) -> str:
    """Return the wanted engine; for ``auto``, the one that answers, which processes always do."""
    if wanted != AUTO:
        return wanted
    return next((name for name in PROGRAMS if shutil.which(name) and answers(name)), DEFAULT)
