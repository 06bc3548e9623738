"""The home folder ``~/.openpai`` (or ``$OPENPAI_HOME``), and safe writing into it.

Files are private (0600, folders 0700), replaced atomically and changed under a lock, so that concurrent
commands lose nothing and a crash leaves the old file.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from openpai_tasks.errors import ConfigError
from openpai_tasks.settings.digests import sha256

SOCKET_FOLDER = 72
"""The longest folder for Unix sockets: their paths have up to 104 bytes, and OpenSSH appends to names."""

OWNER = ".owner"
"""A link in a folder for sockets in /tmp to the folder that it stands for."""
STALE_SECONDS = 3600.0


def home() -> Path:
    """Return the user's folder for clusters, defaults, credentials and the embedded cluster."""
    return Path(os.path.abspath(os.environ.get("OPENPAI_HOME") or Path.home() / ".openpai"))


def make_private(folder: Path) -> Path:
    """Create the folder and its missing parents, accessible only to the user; git ignores a project's."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        for path in reversed(missing):
            path.mkdir(mode=0o700, exist_ok=True)
            if path.name == ".openpai" and path != home():
                (path / ".gitignore").write_text("*\n", encoding="ascii")
    except OSError as err:
        raise ConfigError(f"cannot create the folder {folder}: {err.strerror}") from err
    return folder


def socket_folder(folder: Path) -> Path:
    """Return a private folder for Unix sockets: this one, or one in /tmp if its path is too long."""
    if len(os.fsencode(folder)) <= SOCKET_FOLDER:
        return make_private(folder)
    short = _short_folder(folder)
    is_new = not short.exists()
    for path in (short.parent, short):
        try:
            with contextlib.suppress(FileExistsError):
                path.mkdir(mode=0o700)
            status = os.lstat(path)
        except OSError as err:
            raise ConfigError(f"cannot create the folder {path}: {err.strerror}") from err
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise ConfigError(
                f"{path} belongs to or is open to other users: set OPENPAI_HOME to a shorter path"
            )
    with contextlib.suppress(OSError):
        (short / OWNER).symlink_to(home() if folder.is_relative_to(home()) else folder)
    if is_new:
        _remove_stale(short.parent)
    return short


def _remove_stale(parent: Path) -> None:
    """Remove folders for sockets whose owner was deleted, unless they are new or a process listens there."""
    import shutil

    for path in parent.iterdir():
        with contextlib.suppress(OSError):
            is_old = time.time() - path.stat().st_mtime > STALE_SECONDS
            is_orphan = (path / OWNER).is_symlink() and not (path / OWNER).exists()
            if is_old and is_orphan and not any(one.is_socket() and connects(one) for one in path.iterdir()):
                shutil.rmtree(path)


def remove_socket_folder(folder: Path) -> None:
    """Remove the folder in /tmp that `socket_folder` made for this one, if there is one and it is empty."""
    short = _short_folder(folder)
    with contextlib.suppress(OSError):
        if os.listdir(short) == [OWNER]:
            (short / OWNER).unlink()
            short.rmdir()


def connects(path: Path) -> bool:
    """Whether a process listens at a Unix socket."""
    import socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stream, contextlib.suppress(OSError):
        stream.settimeout(1.0)
        stream.connect(str(path))
        return True
    return False


def _short_folder(folder: Path) -> Path:
    """Return a folder in one of the user's, which stays: nobody else can take the path of a removed one."""
    return Path(os.sep, "tmp", f"openpai-{os.geteuid()}", sha256(os.fsencode(folder))[:16])


def write_private(path: Path, text: str, mode: int = 0o600, sync: bool = True) -> None:
    """Replace the file atomically: readers see the old text or the new one, never a part.

    Without ``sync`` it may be empty after a power failure, which is fine for a cache.
    """
    make_private(path.parent)
    try:
        import tempfile  # loads much, and most commands write nothing

        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(text.encode("utf-8", "surrogateescape"))
                file.flush()
                os.fchmod(handle, mode)
                if sync:
                    os.fsync(handle)
            os.replace(name, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)
            raise
    except OSError as err:
        raise ConfigError(f"cannot write {path}: {err.strerror}") from err


def _wait_for_lock(handle: int) -> None:
    fcntl.flock(handle, fcntl.LOCK_EX)


@contextlib.contextmanager
def locked(path: Path, wait: Callable[[int], None] = _wait_for_lock) -> Iterator[None]:
    """Hold the lock for ``path`` (a file next to it) while the block runs; the block may remove that file."""
    lock = lock_file(path)
    while True:
        make_private(path.parent)
        try:
            handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except FileNotFoundError:  # its holder has removed the folder a moment ago
            continue
        except OSError as err:
            raise ConfigError(f"cannot write {lock}: {err.strerror}") from err
        try:
            wait(handle)
            if os.fstat(handle).st_nlink:  # else its last holder has removed it
                yield
                return
        finally:
            os.close(handle)


def lock_file(path: Path) -> Path:
    return path.with_name(f".{path.name}.lock")
