"""Mount a storage on a folder of this machine, and unmount it."""

from __future__ import annotations

import errno
import importlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from openpai_tasks.errors import ConfigError, PathError, TimedOut
from openpai_tasks.sdk.files.operations import existing
from openpai_tasks.settings.credentials import hidden_environment
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.location import ClusterStore, Location
from openpai_tasks.storage.store import is_below
from openpai_tasks.text import hints

KIND = "fuse.openpai-tasks"
MOUNTS = Path("/proc/self/mounts")
START_SECONDS = 30.0
POLL_SECONDS = 0.02


def mount(root: Location, target: str, write: bool, say: Callable[[str], None]) -> None:
    """Mount the folder, and return when it is unmounted: by Ctrl-C, or by another command."""
    folder = _prepare(root, target)
    _serve(root, folder, write, lambda: say(f"{_describe(root, target, write)}; Ctrl-C unmounts it"))


def mount_in_background(root: Location, target: str, write: bool, say: Callable[[str], None]) -> None:
    """Mount the folder, and leave a process behind that serves it until it is unmounted."""
    folder = _prepare(root, target)
    with tempfile.TemporaryFile("w+") as errors:
        child = os.fork()
        if not child:
            _serve_detached(root, folder, write, errors.fileno())
        limit = time.monotonic() + START_SECONDS
        while not os.path.ismount(folder):
            if os.waitpid(child, os.WNOHANG)[0]:
                errors.seek(0)
                lines = [line.removeprefix("error: ") for line in errors.read().splitlines()]
                raise PathError(f"{target} was not mounted: {'; '.join(lines) or 'its process ended'}")
            if time.monotonic() > limit:
                raise TimedOut(f"waited {START_SECONDS:.0f} s for {target} to be mounted")
            time.sleep(POLL_SECONDS)
    say(f"{_describe(root, target, write)}; unmount it with `{hints.command('storage.unmount', target)}`")


def unmount(target: str) -> None:
    folder = os.path.realpath(target)
    if _mounted().get(folder) != KIND:
        raise PathError(f"{target}: no storage is mounted there")
    _run_unmount(folder, target)


def _describe(root: Location, target: str, write: bool) -> str:
    return f"mounted {root.url} at {target}{'' if write else ', read-only'}"


def _prepare(root: Location, target: str) -> str:
    """Check that the mount is possible, and create the folder; return its path."""
    _load()
    if isinstance(root.store, ClusterStore):
        names = hints.command("storage.ls", root.url)
        raise PathError(f"{root.url} holds storages, not files; mount one of them (`{names}` lists them)")
    if not existing(root).is_folder:
        raise PathError(f"{root.url} is a file; only folders can be mounted")
    folder = Path(os.path.realpath(target))
    if is_below(LocalStore().address(str(folder)), root.store.address(root.path)):
        raise PathError(f"{root.url} cannot be mounted at {target}, which is in it")
    if _mounted().get(str(folder)) == KIND:
        if not _is_abandoned(folder):
            fix = hints.command("storage.unmount", target)
            raise PathError(f"a storage is mounted at {target} already; unmount it with `{fix}`")
        _run_unmount(str(folder), target, "-z")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        is_empty = not os.listdir(folder)
    except OSError as err:
        raise PathError(f"{target}: {err.strerror}") from err
    if not is_empty:
        raise PathError(f"{target} is not empty; mount on an empty or a new folder")
    return str(folder)


def _is_abandoned(folder: Path) -> bool:
    """Whether the process that served the folder was killed."""
    try:
        os.listdir(folder)
    except OSError as err:
        return err.errno == errno.ENOTCONN
    return False


def _load() -> None:
    """Raise unless this machine has what is needed."""
    try:
        importlib.import_module("mfusepy")
    except ModuleNotFoundError:
        raise ConfigError(
            "mounting needs the package 'mfusepy': pip install 'openpai-tasks[mount]'"
        ) from None
    except OSError:
        raise ConfigError("mounting needs FUSE, e.g. from `apt-get install fuse3`") from None
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        raise ConfigError("mounting needs access to /dev/fuse, which this machine or container does not give")
    if os.geteuid() and not shutil.which("fusermount3"):
        raise ConfigError("mounting needs fusermount3, e.g. from `apt-get install fuse3`")


def _serve(root: Location, folder: str, write: bool, ready: Callable[[], object]) -> None:
    from openpai_tasks.storage import fuse

    fuse.mount(root, folder, write, ready)


def _serve_detached(root: Location, folder: str, write: bool, errors: int) -> None:
    """Serve the folder in this process, a child of its own session; never returns."""
    try:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for number, handle in enumerate((nothing, nothing, errors)):
            os.dup2(handle, number)
        _serve(root, folder, write, partial(os.dup2, nothing, 2))
    except BaseException as err:
        os.write(errors, f"error: {err}\n".encode())
        os._exit(1)
    os._exit(0)


def _mounted() -> dict[str, str]:
    """Return the type of each mounted file system, by folder."""
    found = {}
    for line in MOUNTS.read_bytes().decode("utf-8", "surrogateescape").split("\n")[:-1]:
        _, folder, kind, *_ = line.split(" ")
        found[folder.encode("latin-1", "backslashreplace").decode("unicode_escape")] = kind
    return found


def _run_unmount(folder: str, target: str, *options: str) -> None:
    program = shutil.which("fusermount3")
    words = [program, "-u", *options] if program else ["umount", *(["-l"] if options else [])]
    done = subprocess.run(
        [*words, "--", folder], env=hidden_environment(), capture_output=True, errors="replace", check=False
    )
    if done.returncode:
        reason = done.stderr.strip().rpartition(": ")[2] or f"exit code {done.returncode}"
        raise PathError(f"{target} was not unmounted: {reason}")
