"""The home folder ``~/.openpai`` (or ``$OPENPAI_HOME``), and safe writing into it.

Files are private (0600, folders 0700), replaced atomically and changed under a lock, so that concurrent
commands lose nothing and a crash leaves the old file.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from openpai_tasks.errors import ConfigError
from openpai_tasks.settings.digests import sha256

SOCKET_FOLDER = 72
"""The longest folder for Unix sockets: their paths have up to 104 bytes, and OpenSSH appends to names."""


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
    short = Path(os.sep, "tmp") / f"openpai-{os.geteuid()}-{sha256(os.fsencode(folder))[:16]}"
    with contextlib.suppress(FileExistsError):
        short.mkdir(mode=0o700)
    status = os.lstat(short)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise ConfigError(
            f"{short} is not a private folder of yours: remove it, or set a shorter OPENPAI_HOME"
        )
    return short


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
