"""Install wheels from standard input into a new virtual environment; this script runs on the other machine.

It may use only the standard library. ``~/.openpai/venv`` is a symbolic link to the current environment. It
changes when the new one works, so a failure leaves the old one in use.
"""

from __future__ import annotations

import fcntl
import glob
import json
import os
import platform
import shutil
import socket
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

INDEX, SENT = "index", "sent"
"""Where requirements come from: the package index of this machine, or the wheels that were sent."""
PIP = "pip.zip"
NO_PIP, PIP_FAILED = 69, 70
_DESCRIBE = """\
import json
from pip._vendor.packaging import markers, tags
found = list(tags.sys_tags())
print(json.dumps({
    "environment": markers.default_environment(),
    "interpreter": found[0].interpreter,
    "abi": found[0].abi,
    "platforms": list(dict.fromkeys(tag.platform for tag in found if tag.platform != "any")),
}))
"""


def main(version: str, source: str) -> int:
    os.umask(0o077)
    home = Path.home() / ".openpai"
    folder = home / "venvs"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as lock:
        with suppress(OSError):  # some network file systems have no locks
            fcntl.flock(lock, fcntl.LOCK_EX)
        new = Path(tempfile.mkdtemp(prefix=f"{version}-", dir=folder))
        code = 1
        try:
            code = _build(new, source)
        finally:
            if code:
                shutil.rmtree(new, ignore_errors=True)
        if not code:
            _switch(home / "venv", new)
            remove_unused(folder, new)
    return code


def _build(new: Path, source: str) -> int:
    sent = new / "sent"
    sent.mkdir()
    with tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as archive:
        for member in archive:
            content = archive.extractfile(member)
            assert content
            (sent / os.path.basename(member.name)).write_bytes(content.read())
    venv.create(new, symlinks=True)
    python = str(new / "bin" / "python")
    if _run(python, "-m", "ensurepip").returncode and not _unpack(sent / PIP, new):
        return _refuse_pip()
    (ours,) = sent.glob("openpai_tasks-*.whl")
    # without many retries: there is another way
    choice = ("--retries=1",) if source == INDEX else ("--no-index", f"--find-links={sent}")
    done = _run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *choice, str(ours))
    if not done.returncode:
        shutil.rmtree(sent)
        done = _run(str(new / "bin" / "pai"), "--version")
        sys.stderr.write(done.stderr)
        return min(done.returncode, 1)
    sys.stderr.write(done.stderr)
    if _run(python, "-m", "pip", "list").returncode:
        return _refuse_pip()
    sys.stdout.write(_run(python, "-c", _DESCRIBE).stdout)
    return PIP_FAILED


def _unpack(pip: Path, new: Path) -> bool:
    """Install the pip that was sent, if one was."""
    if not pip.exists():
        return False
    (packages,) = new.glob("lib/*/site-packages")
    with zipfile.ZipFile(pip) as archive:
        archive.extractall(packages)  # noqa: S202 - it was made by us
    return True


def _refuse_pip() -> int:
    """Say that another pip is needed: none was sent, or one that is too old for this Python."""
    sys.stdout.write(f"{platform.python_version()}\n")
    return NO_PIP


def _run(*argv: str) -> subprocess.CompletedProcess[str]:
    """Run a program without settings that lead out of the new environment."""
    left_out = ("PYTHONHOME", "PYTHONPATH", "PIP_PREFIX", "PIP_TARGET")
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    return subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        env={**environment, "PIP_USER": "0"},
    )


def _switch(link: Path, new: Path) -> None:
    """Make the link lead to the new environment; earlier versions had a folder in its place."""
    fresh = new.with_name(".new")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(os.path.join(new.parent.name, new.name))
    if link.is_dir() and not link.is_symlink():
        link.rename(new.with_name(f"earlier-{new.name}"))
    fresh.replace(link)


def remove_unused(folder: Path, new: Path) -> None:
    """Remove other environments, unless servers or jobs may still load files from them."""
    if _has_unknown_users(folder.parent):
        return
    commands = _commands()
    for path in folder.iterdir():
        if path.is_dir() and path != new and commands and f"/{path.name}/" not in commands:
            shutil.rmtree(path, ignore_errors=True)


def _has_unknown_users(home: Path) -> bool:
    """Whether jobs wait or run, perhaps on other nodes, or the server runs on another machine."""
    state = Path(os.environ.get("OPENPAI_HOME") or home) / "local"
    try:
        facts: Any = json.loads((state / "server.json").read_text())
        if facts["host"] != socket.gethostname():
            return True
    except FileNotFoundError:
        pass
    except (OSError, ValueError, TypeError, KeyError):
        return True
    if not (state / "cluster.db").exists():
        return False
    try:
        with closing(sqlite3.connect(f"{(state / 'cluster.db').as_uri()}?mode=ro", uri=True)) as database:
            return bool(database.execute("SELECT 1 FROM jobs WHERE completed IS NULL LIMIT 1").fetchone())
    except sqlite3.Error:
        return True


def _commands() -> str:
    """Return the command lines of all processes of the user; empty if they are not known."""
    if not os.path.exists("/proc/self/cmdline"):
        return _run("/bin/ps", "-A", "-ww", "-o", "command=").stdout
    found = []
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended
            found.append(Path(path).read_bytes().decode(errors="replace"))
    return "\n".join(found)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
