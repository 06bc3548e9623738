"""The programs that tests need, and the Debian packages that contain them; and large Python packages.

A test without them is skipped: ``@needs("ssh")`` on it, or ``require("ssh", "pandas")`` in a fixture.
``python3 tests/needs.py`` prints the packages that are missing here, for `.ci/run`.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

PACKAGES = {
    "bash": "bash",
    "busybox": "busybox-static",
    "chromium": "chromium",
    "chromium-headless-shell": "chromium-headless-shell",
    "curl": "curl",
    "docker-registry": "docker-registry",
    "dash": "dash",
    "docker": "docker.io",
    "dockerd": "docker.io",
    "fish": "fish",
    "fusermount3": "fuse3",
    "git": "git",
    "htpasswd": "apache2-utils",
    "java": "default-jre-headless",
    "kubectl": "kubernetes-client",
    "mariadbd": "mariadb-server-core",
    "munged": "munge",
    "newuidmap": "uidmap",
    "node": "nodejs",
    "npm": "npm",
    "openssl": "openssl",
    "pdbedit": "samba",
    "podman": "podman",
    "ps": "procps",
    "rsync": "rsync",
    "runc": "runc",
    "sbatch": "slurm-client",
    "shasum": "perl",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "slurmdbd": "slurmdbd",
    "smbd": "samba",
    "squeue": "slurm-client",
    "ssh": "openssh-client",
    "sshd": "openssh-server",
    "strace": "strace",
    "tar": "tar",
    "wget": "wget",
    "zsh": "zsh",
}
MODULES = {
    "adlfs": "adlfs",
    "jupyterlab": "jupyterlab",
    "matplotlib": "matplotlib",
    "mkdocs": "mkdocs",
    "pandas": "pandas",
    "tensorboard": "tensorboard",
    "playwright": "playwright",
    "pyarrow": "pyarrow",
    "schemathesis": "schemathesis",
    "tfrecord": "tfrecord",
    "typer": "typer",
    "websocket": "websocket-client",
}
"""The Python modules that the extra `test-all` of setup.py adds to `test`, and their packages."""
_REASON = "missing packages: "
_ADMINISTRATION = "/usr/local/sbin:/usr/sbin:/sbin"  # not in the PATH of an ordinary user


def find(program: str) -> str:
    """Return the path of a program; empty if it is not installed."""
    return shutil.which(program) or shutil.which(program, path=_ADMINISTRATION) or ""


def missing(*names: str) -> str:
    """Return the reason to skip a test that needs these programs and modules; empty if all are installed."""
    packages = dict.fromkeys(_package(name) for name in names if not _is_installed(name))
    return _REASON + " ".join(packages) if packages else ""


def _is_installed(name: str) -> bool:
    return bool(importlib.util.find_spec(name) if name in MODULES else find(name))


def _package(name: str) -> str:
    return MODULES.get(name) or PACKAGES[name]


def needs(*names: str) -> pytest.MarkDecorator:
    """Return the mark that skips a test unless these programs and modules are installed."""
    import pytest

    reason = missing(*names)
    return pytest.mark.skipif(bool(reason), reason=reason)


def require(*names: str) -> None:
    """Skip the running test, or a module of tests, unless these programs and modules are installed."""
    import pytest

    if reason := missing(*names):
        pytest.skip(reason, allow_module_level=True)


def summary(reasons: Iterable[str]) -> str:
    """Return one line about the tests that were skipped for missing packages; empty if there were none."""
    lists = [reason.partition(_REASON)[2].split() for reason in reasons if _REASON in reason]
    if not lists:
        return ""
    counts = Counter(package for packages in lists for package in packages).most_common()
    tests = f"{len(lists):,} test{'s' if len(lists) > 1 else ''} skipped for missing packages"
    line = f"{tests}: {', '.join(f'{package} ({count})' for package, count in counts)}"
    commands = []
    if debian := sorted(package for package, _ in counts if package not in MODULES.values()):
        sudo = "" if os.geteuid() == 0 else "sudo "
        commands += [f"{sudo}apt-get install {' '.join(debian)}"] if shutil.which("apt-get") else []
    if len(debian) < len(counts):
        commands.append("pip install -e '.[test-all]'")
    return f"{line}; to install them: {' && '.join(commands)}" if commands else line


if __name__ == "__main__":
    for package in sorted({package for program, package in PACKAGES.items() if not find(program)}):
        print(package)
