"""The environment variables for the server, the programs that it starts, and its tasks.

All others may contain secrets, and a task can read the variables with which a process was started.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence

from openpai_tasks.protocol.environment import is_submitted
from openpai_tasks.settings.engines import DEFAULT, ENGINES

TASKS = frozenset(
    """
    CONDA_DEFAULT_ENV CONDA_PREFIX CUDA_HOME CUDA_PATH DYLD_LIBRARY_PATH HOME LANG LANGUAGE
    LD_LIBRARY_PATH LOGNAME OPENPAI_HOME PATH REQUESTS_CA_BUNDLE SHELL SSL_CERT_DIR SSL_CERT_FILE TMPDIR TZ
    USER VIRTUAL_ENV
    """.split()  # noqa: SIM905
)
"""For tasks, their runners and sidecars; also ``LC_*``."""

PROGRAMS = frozenset(
    """
    ALL_PROXY CONTAINERS_CONF CONTAINERS_REGISTRIES_CONF CONTAINERS_STORAGE_CONF
    DBUS_SESSION_BUS_ADDRESS DOCKER_CERT_PATH DOCKER_CONFIG DOCKER_CONTEXT DOCKER_HOST DOCKER_TLS_VERIFY
    HOME HTTPS_PROXY HTTP_PROXY KUBECONFIG LANG LOGNAME NO_PROXY PATH REGISTRY_AUTH_FILE SLURM_CONF
    SSL_CERT_DIR SSL_CERT_FILE TMPDIR USER XDG_CONFIG_HOME XDG_DATA_HOME XDG_RUNTIME_DIR all_proxy http_proxy
    https_proxy no_proxy
    """.split()  # noqa: SIM905
)
"""For docker, podman, Slurm or kubectl, if one of them runs the tasks: these cannot see processes outside."""

SERVER = frozenset({"CUDA_VISIBLE_DEVICES", "PYTHONHOME", "PYTHONPATH"})
"""Only for the server: its GPUs, and where Python finds it."""

PROXIES = frozenset(name for name in PROGRAMS if name.lower().endswith("_proxy"))
"""Only for the server, which posts to the hooks of jobs; without those that have a password."""

CONDA_NAME = "CONDA_DEFAULT_ENV"  # of the environment in the server's CONDA_PREFIX

CLEANED = "OPENPAI_SERVER_VARIABLES"  # set after the restart


def for_tasks(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that tasks may see."""
    return {name: value for name, value in environment.items() if name in TASKS or name.startswith("LC_")}


def for_job(environment: Mapping[str, str], submitted: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that tasks may see, those of the submitter instead of the server's."""
    own = for_tasks(environment)
    if not submitted:
        return own
    kept = {name: value for name, value in own.items() if not is_submitted(name) and name != CONDA_NAME}
    return {**kept, **submitted}


def for_program(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that the program of an engine may need."""
    return {name: value for name, value in environment.items() if name in PROGRAMS}


def for_server(environment: Mapping[str, str], engine: str) -> dict[str, str]:
    """Return the variables of the server."""
    own = {name: value for name, value in environment.items() if name in SERVER}
    has_program = engine in ENGINES and ENGINES[engine].program
    program = for_program(environment) if has_program else {}
    proxies = {name: environment[name] for name in PROXIES if "@" not in environment.get(name, "@")}
    return {**for_tasks(environment), **program, **proxies, **own, CLEANED: "1"}


def drop_others(arguments: Sequence[str]) -> None:
    """Restart this process without the other variables: the system shows those it was started with."""
    if CLEANED not in os.environ and sys.executable:
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], for_start(arguments))


def for_start(arguments: Sequence[str]) -> dict[str, str]:
    """Return the variables of a server that is started with these command-line arguments."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--engine", default=DEFAULT)
    return for_server(os.environ, parser.parse_known_args(arguments)[0].engine)
