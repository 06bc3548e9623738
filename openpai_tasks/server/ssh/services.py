"""The programs that can serve SSH: the system's sshd, or asyncssh.

Users log in as root, as in every container of OpenPAI. Without root privileges, sshd only accepts its own
user, so it is the first choice only if root runs the server; asyncssh accepts ``root`` as a name for its own
user.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from openpai_tasks.errors import ConfigError
from openpai_tasks.server.ssh import ROOT, Service

AUTO, SSHD, ASYNCSSH, OFF = "auto", "sshd", "asyncssh", "off"
IMAGE = "image"  # the only choice in containers
CHOICES = (AUTO, SSHD, ASYNCSSH, OFF)

_HERE = Path(__file__).parent
_SYSTEM = os.pathsep.join(("/usr/sbin", "/usr/local/sbin", "/sbin"))
_SFTP_SERVERS = (
    "/usr/lib/openssh/sftp-server",
    "/usr/libexec/openssh/sftp-server",
    "/usr/libexec/sftp-server",
    "/usr/lib/ssh/sftp-server",
    "/usr/local/libexec/sftp-server",
)
_PRIVILEGE_SEPARATION = Path("/run/sshd")  # required by Debian's sshd; others create their own
_NO_SHELLS = ("nologin", "false", "sync")


def choose(wanted: str) -> Service:
    """Return the service to use; ConfigError with the reasons if there is none."""
    if wanted == OFF:
        raise ConfigError("the setting local.ssh is off")
    order = (wanted,) if wanted in _FIND else (SSHD, ASYNCSSH) if os.geteuid() == 0 else (ASYNCSSH, SSHD)
    reasons = []
    for name in order:
        found = _FIND[name]()
        if isinstance(found, Service):
            return found
        reasons.append(f"{name}: {found}")
    raise ConfigError("; ".join(reasons))


def _sshd() -> Service | str:
    program = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}{os.pathsep}{_SYSTEM}")
    if program is None:
        return "it is not installed"
    problem = _sshd_problem()
    if problem:
        return problem
    sftp = next((path for path in _SFTP_SERVERS if os.access(path, os.X_OK)), None)
    if sftp is None:
        return "its sftp-server is not installed"
    command = (sys.executable, "-I", "-S", str(_HERE / "serve_sshd.py"), os.path.abspath(program))
    return Service(SSHD, _own_account()[0], command, sftp)


def _sshd_problem() -> str:
    """Return why sshd would refuse the user; create missing folders."""
    name, shell = _own_account()
    if os.path.basename(shell) in _NO_SHELLS:
        return f"the shell of {name} is {shell}"
    if os.geteuid() != 0:
        return ""
    if _is_locked(name):
        return f"the account of {name} is locked"
    try:
        if sys.platform == "linux":
            _PRIVILEGE_SEPARATION.mkdir(mode=0o755, exist_ok=True)
    except OSError as err:
        return f"cannot make {_PRIVILEGE_SEPARATION}: {err.strerror}"
    return ""


def _is_locked(user: str) -> bool:
    try:
        lines = Path("/etc/shadow").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    return any(line.startswith(f"{user}:!") for line in lines)


def _asyncssh() -> Service | str:
    if importlib.util.find_spec("asyncssh") is None:
        return "it is not installed (pip install asyncssh)"
    return Service(ASYNCSSH, ROOT, (sys.executable, "-I", str(_HERE / "serve_asyncssh.py")))


def _image() -> Service | str:
    """Return the sshd of the image, which the container starts."""
    return Service(IMAGE, ROOT, ())


def _own_account() -> tuple[str, str]:
    """Return the name and the shell of the current user."""
    try:
        entry = pwd.getpwuid(os.geteuid())
    except KeyError:
        return "a user without a name", "nologin"
    return entry.pw_name, entry.pw_shell


_FIND: dict[str, Callable[[], Service | str]] = {SSHD: _sshd, ASYNCSSH: _asyncssh, IMAGE: _image}
