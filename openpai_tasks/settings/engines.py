"""The engines of the embedded cluster: ours, one row each, and those of other packages.

The command line reads names, labels and options; only the server loads a factory. It is called with the
folder of all jobs and with the values of the engine's options by name.
"""

from __future__ import annotations

import importlib
import shutil
import subprocess
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from openpai_tasks.errors import ConfigError
from openpai_tasks.settings.credentials import hidden_environment
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
    """What checks values, MODULE or MODULE:OBJECT; see ``load_form``."""
    is_path: bool = False  # of a file of the user


def load_form(form: str) -> Any:
    """Return what checks values: ``check(text, where)`` raises ConfigError, ``PATTERN`` is for editors."""
    module, _, name = form.partition(":")
    found = importlib.import_module(module)
    return getattr(found, name) if name else found


class EngineKind(NamedTuple):
    name: str
    label: str  # completes "jobs run …"
    factory: str  # MODULE:NAME
    program: str = ""  # program that must be installed
    check: str = ""  # command that succeeds if it can be used
    options: tuple[EngineOption, ...] = ()
    is_on_login_nodes: bool = False  # jobs should not run as processes where its program is
    runs_here: bool = False  # on the server's own machine

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
                load_form(option.form).check(value, name)
        return {name: given.get(name, one.default) for name, one in known.items()}


_SERVER = "openpai_tasks.server.engines"


def _kubernetes(name: str, about: str, form: str = "", default: str = "") -> EngineOption:
    """Return an option of Kubernetes; ``form`` is an object in the module of its site."""
    form = f"{_SERVER}.kubernetes.site:{form}" if form else ""
    return EngineOption(f"kubernetes-{name}", default, about, form=form)


_KINDS = (
    EngineKind(
        "process", "as processes, without their image", f"{_SERVER}.process:ProcessEngine", runs_here=True
    ),
    EngineKind(
        *("docker", "in containers of docker", f"{_SERVER}.containers:DockerEngine", "docker", "docker info"),
        runs_here=True,
    ),
    EngineKind(
        *("podman", "in containers of podman", f"{_SERVER}.containers:PodmanEngine", "podman", "podman info"),
        runs_here=True,
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
            EngineOption(
                "slurm-high-qos",
                "",
                "QOS of jobs with a high priority, as Slurm lets users only lower it",
                form=f"{_SERVER}.slurm.site:Qos",
            ),
        ),
        is_on_login_nodes=True,
    ),
    EngineKind(
        "kubernetes",
        "as pods of Kubernetes",
        f"{_SERVER}.kubernetes.engine:KubernetesEngine",
        "kubectl",
        "kubectl get pods",
        (
            EngineOption(
                "kubernetes-kubeconfig",
                "",
                "kubeconfig file, if not the one that kubectl uses",
                is_path=True,
            ),
            _kubernetes("context", "context in the kubeconfig, if not the current one"),
            _kubernetes(
                "namespace",
                "namespace of the pods, if not that of the context; several are virtual clusters",
                "NAMESPACE",
            ),
            _kubernetes("node-selector", "labels of the nodes to use, LABEL=VALUE", "NODE_SELECTOR"),
            _kubernetes(
                "tolerations", "taints that pods tolerate, such as gpu=yes:NoSchedule", "TOLERATIONS"
            ),
            _kubernetes("service-account", "service account of the pods", "NAME"),
            _kubernetes("pull-secrets", "secrets to pull images with", "NAMES"),
            _kubernetes("gpu-resource", "name of the GPUs of the nodes", "RESOURCE", "nvidia.com/gpu"),
            _kubernetes(
                "gpu-type-label", "label with the type of a node's GPUs", default="nvidia.com/gpu.product"
            ),
            _kubernetes("priority-class", "priority class of the pods", "NAME"),
            _kubernetes(
                "gang",
                "what starts the tasks of a job together: own, or a scheduler of the cluster, kueue:QUEUE, "
                "volcano or coscheduling[:SCHEDULER] (written from their documentation, not tested with "
                "them)",
                "GANG",
                "own",
            ),
            _kubernetes(
                "storages",
                "volumes of storages: data=pvc:CLAIM, data=nfs:SERVER:/PATH or data=host:/PATH",
                "STORAGES",
            ),
            _kubernetes(
                "priority-classes",
                "priority classes of jobs with a priority, such as low=batch,high=urgent",
                "PRIORITY_CLASSES",
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


def find_engine(name: str) -> EngineKind:
    """Return the engine with this name; raise ConfigError if there is none."""
    if name not in ENGINES:
        raise ConfigError(f"no engine named {name!r} {ENGINES.describe()}")
    return ENGINES[name]


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
