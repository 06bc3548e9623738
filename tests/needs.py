"""The programs that tests need, and the Debian packages that contain them.

A test without them is skipped: ``@needs("ssh")`` on it, or ``require("ssh")`` in a fixture.
``python3 tests/needs.py`` prints the packages that are missing here, for `.ci/run`.
"""

from __future__ import annotations

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
    "git": "git",
    "htpasswd": "apache2-utils",
    "java": "default-jre-headless",
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
_REASON = "missing packages: "
_ADMINISTRATION = "/usr/local/sbin:/usr/sbin:/sbin"  # not in the PATH of an ordinary user


def find(program: str) -> str:
    """Return the path of a program; empty if it is not installed."""
    return shutil.which(program) or shutil.which(program, path=_ADMINISTRATION) or ""


def missing(*programs: str) -> str:
    """Return the reason to skip a test that needs these programs; empty if all are installed."""
    packages = dict.fromkeys(PACKAGES[program] for program in programs if not find(program))
    return _REASON + " ".join(packages) if packages else ""


def needs(*programs: str) -> pytest.MarkDecorator:
    """Return the mark that skips a test unless these programs are installed."""
    import pytest

    reason = missing(*programs)
    return pytest.mark.skipif(bool(reason), reason=reason)


def require(*programs: str) -> None:
    """Skip the running test unless these programs are installed."""
    import pytest

    if reason := missing(*programs):
        pytest.skip(reason)


def summary(reasons: Iterable[str]) -> str:
    """Return one line about the tests that were skipped for missing packages; empty if there were none."""
    lists = [reason.partition(_REASON)[2].split() for reason in reasons if _REASON in reason]
    if not lists:
        return ""
    counts = Counter(package for packages in lists for package in packages).most_common()
    tests = f"{len(lists):,} test{'s' if len(lists) > 1 else ''} skipped for missing packages"
    line = f"{tests}: {', '.join(f'{package} ({count})' for package, count in counts)}"
    if not shutil.which("apt-get"):
        return line
    sudo = "" if os.geteuid() == 0 else "sudo "
    return (
        f"{line}; to install them: {sudo}apt-get install {' '.join(sorted(package for package, _ in counts))}"
    )


if __name__ == "__main__":
    for package in sorted({package for program, package in PACKAGES.items() if not find(program)}):
        print(package)
