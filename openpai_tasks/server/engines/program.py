"""The command line of docker or podman: check that it works, list containers, remove them.

Docker's socket is not used: podman has none, while the command lines are the same.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess

from openpai_tasks.errors import ConfigError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.server import variables
from openpai_tasks.server.engines.base import MemoryLimits
from openpai_tasks.server.engines.creation import FOLDER, HOME, ProgramDialect

log = logging.getLogger(__name__)

CALL_LIMIT = 20.0  # seconds; a busy daemon needs a few


@dataclass(frozen=True)
class ListedContainer:
    """A container of ours in the program's list."""

    name: str
    folder: str


class ContainerProgram:
    def __init__(self, dialect: ProgramDialect) -> None:
        self.dialect = dialect
        self.path = shutil.which(dialect.name) or dialect.name
        self.environment = variables.for_program(os.environ)
        if dialect.name == "docker":
            self._fix_host()

    def _fix_host(self) -> None:
        """Set the daemon's address, since a private DOCKER_CONFIG hides the current context."""
        if "DOCKER_HOST" not in self.environment:
            done = self._run("context", "inspect", "--format", "{{.Endpoints.docker.Host}}")
            if done.returncode == 0 and done.stdout.startswith("unix://"):
                self.environment["DOCKER_HOST"] = done.stdout.strip()

    def memory(self) -> MemoryLimits:
        """Return whether it limits memory; podman of an ordinary user needs a cgroup for that."""
        name = self.dialect.name
        if name == "podman" and os.geteuid():
            found = self._run("info", "--format", "{{.Host.CgroupControllers}}").stdout
            if "memory" not in found:
                return MemoryLimits(False, "podman may not use cgroups of this user")
        return MemoryLimits(True, name)

    def containers(self, home: str) -> list[ListedContainer]:
        """Return all containers of this home, running or not; raise if the program cannot be used."""
        row = f'{{{{.Names}}}}\t{{{{index .Labels "{FOLDER}"}}}}'
        if self.dialect.name == "docker":
            row = f'{{{{.Names}}}}\t{{{{.Label "{FOLDER}"}}}}'
        done = self._run("ps", "--all", "--filter", f"label={HOME}={home}", "--format", row)
        if done.returncode:
            raise ConfigError(self._problem(done.stderr))
        return [ListedContainer(*line.split("\t", 1)) for line in done.stdout.splitlines() if "\t" in line]

    def remove(self, *names: str) -> None:
        """Remove containers, running or not; ignore missing ones, and log those that remain."""
        if not names:
            return
        done = self._run(*self.dialect.removal, *names)
        errors = done.stderr.strip()
        if done.returncode and "no such container" not in errors.lower():
            log.warning("%s did not remove %s: %s", self.dialect.name, ", ".join(names), errors)

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        argv = [self.path, *arguments]
        try:
            return subprocess.run(
                argv,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=CALL_LIMIT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(argv, 1, "", f"no answer within {CALL_LIMIT:.0f} s")
        except OSError as err:
            return subprocess.CompletedProcess(argv, 1, "", f"{self.path}: {err.strerror}")

    def _problem(self, errors: str) -> str:
        """Return one line with the problem and what to do."""
        name, words = self.dialect.name, errors.lower()
        place = self.environment.get("DOCKER_HOST", "its socket")
        if name == "docker" and "permission denied" in words:
            return f"you may not use the docker daemon at {place}: join its group"
        if name == "docker" and ("cannot connect" in words or "daemon running" in words):
            return f"the docker daemon is not running at {place}: start it"
        lines = [line.strip() for line in errors.splitlines() if line.strip()]
        return f"{name}: {lines[-1] if lines else 'no reason given'}"
