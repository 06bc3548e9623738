"""The program that makes containers, docker or podman: is it usable, what runs, remove it.

The command lines are used, not docker's socket: podman has none, and they are the same for both.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
from dataclasses import dataclass

from openpai_tasks.errors import ConfigError
from openpai_tasks.server import variables
from openpai_tasks.server.engines.creation import FOLDER, HOME, Dialect

log = logging.getLogger(__name__)

CALL_LIMIT = 20.0  # seconds; a daemon that is asked while it is busy needs a few


@dataclass(frozen=True)
class Found:
    """A container of ours, as the program lists it."""

    name: str
    folder: str


class Program:
    def __init__(self, dialect: Dialect) -> None:
        path = shutil.which(dialect.name)
        if path is None:
            raise ConfigError(f"there is no {dialect.name} on this machine: install it{_OR_PROCESS}")
        self.dialect, self.path = dialect, path
        self.environment = variables.for_engine(os.environ)
        if dialect.name == "docker":
            self._fix_host()

    def _fix_host(self) -> None:
        """Name the daemon's address, which a private DOCKER_CONFIG would hide with the context in use."""
        if "DOCKER_HOST" not in self.environment:
            done = self._run("context", "inspect", "--format", "{{.Endpoints.docker.Host}}")
            if done.returncode == 0 and done.stdout.startswith("unix://"):
                self.environment["DOCKER_HOST"] = done.stdout.strip()

    def containers(self, home: str) -> list[Found]:
        """All containers that belong to the home, running or not; fails where the engine is not usable."""
        row = f'{{{{.Names}}}}\t{{{{index .Labels "{FOLDER}"}}}}'
        if self.dialect.name == "docker":
            row = f'{{{{.Names}}}}\t{{{{.Label "{FOLDER}"}}}}'
        done = self._run("ps", "--all", "--filter", f"label={HOME}={home}", "--format", row)
        if done.returncode:
            raise ConfigError(self._complaint(done.stderr))
        return [Found(*line.split("\t", 1)) for line in done.stdout.splitlines() if "\t" in line]

    def remove(self, *names: str) -> None:
        """Whether they run or not; one that is not there is no trouble, one that stays is logged."""
        if not names:
            return
        done = self._run(*self.dialect.removal, *names)
        said = done.stderr.strip()
        if done.returncode and "no such container" not in said.lower():
            log.warning("%s did not remove %s: %s", self.dialect.name, ", ".join(names), said)

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

    def _complaint(self, said: str) -> str:
        """One line that says what is wrong with the engine, and what to do."""
        name, words = self.dialect.name, said.lower()
        place = self.environment.get("DOCKER_HOST", "its socket")
        if name == "docker" and "permission denied" in words:
            return f"you may not use the docker daemon at {place}: join its group{_OR_PROCESS}"
        if name == "docker" and ("cannot connect" in words or "daemon running" in words):
            return f"the docker daemon is not running at {place}: start it{_OR_PROCESS}"
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        return f"{name} cannot be used: {lines[-1] if lines else 'it did not say why'}{_OR_PROCESS}"


_OR_PROCESS = ", or set local.engine to process"
