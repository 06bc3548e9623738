"""The engines of the embedded cluster: ours, one row each, and those of other packages.

The command line reads names, labels and options; only the server loads a factory. It is called with the
folder of all jobs and with the values of the engine's options by name.
"""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Callable, Mapping
from typing import NamedTuple

from openpai_tasks.errors import ConfigError
from openpai_tasks.settings.plugins import PluginTable

ENTRY_POINTS = "openpai_tasks.engines"
"""Entry point group of other packages; the value of each entry point is an ``EngineKind``."""


EngineOptions = Mapping[str, str]
"""The options of an engine by name; only the engine knows what they mean."""


class EngineOption(NamedTuple):
    """An option of an engine, which is the setting ``local.NAME``; its name begins with the engine's."""

    name: str
    default: str
    about: str
    among: tuple[str, ...] = ()  # allowed values; empty if they are not listed
    form: str = ""
    """Module that checks values: ``check(text, where)`` raises ConfigError, ``PATTERN`` is for editors."""


class EngineKind(NamedTuple):
    name: str
    label: str  # completes "jobs run …"
    factory: str  # MODULE:NAME
    program: str = ""  # program that must be installed
    check: str = ""  # command that succeeds if it can be used
    options: tuple[EngineOption, ...] = ()

    def read_options(self, given: Mapping[str, str]) -> EngineOptions:
        """Return the values of all options; raise ConfigError for an unknown or an invalid one."""
        known = {one.name: one for one in self.options}
        for name, value in given.items():
            if name not in known:
                raise ConfigError(f"the engine {self.name} has no option {name!r}")
            option = known[name]
            if option.among and value not in option.among:
                raise ConfigError(f"{name} must be one of {', '.join(option.among)}, got {value!r}")
            if option.form:
                importlib.import_module(option.form).check(value, name)
        return {name: given.get(name, one.default) for name, one in known.items()}


_SERVER = "openpai_tasks.server.engines"
_KINDS = (
    EngineKind("process", "as processes, without their image", f"{_SERVER}.process:ProcessEngine"),
    EngineKind(
        "docker", "in containers of docker", f"{_SERVER}.containers:DockerEngine", "docker", "docker info"
    ),
    EngineKind(
        "podman", "in containers of podman", f"{_SERVER}.containers:PodmanEngine", "podman", "podman info"
    ),
    EngineKind(
        "slurm",
        "as jobs of Slurm",
        f"{_SERVER}.slurm.engine:SlurmEngine",
        "sbatch",
        "sinfo",
        (
            EngineOption(
                "slurm-images",
                "none",
                "what runs the images of jobs on nodes of Slurm",
                among=("none", "auto", "apptainer", "pyxis", "podman"),
            ),
            EngineOption(
                "slurm-options",
                "",
                "options of sbatch for all jobs, such as --account=lab",
                form=f"{_SERVER}.slurm.site",
            ),
        ),
    ),
)


ENGINES = PluginTable({kind.name: kind for kind in _KINDS}, ENTRY_POINTS, EngineKind, "engine")
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


def check_engine(name: str, where: str = "") -> None:
    """Raise ConfigError if there is no engine with this name, which may also be ``auto``."""
    where = f"{where}: " if where else ""
    if name != AUTO and name not in ENGINES:
        raise ConfigError(f"{where}no engine named {name!r} {ENGINES.describe(AUTO)}")


def choose_engine(wanted: str) -> str:
    """Return the wanted engine; for ``auto``, the one that answers, which processes always do."""
    if wanted != AUTO:
        return wanted
    return next((name for name in PROGRAMS if shutil.which(name) and answers(name)), DEFAULT)
