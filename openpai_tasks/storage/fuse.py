"""Show a folder of any store as a folder of this machine, by FUSE.

Files are read in blocks, ahead of a program that reads in order. A file that is written is kept in a
temporary file, and sent whole when it is closed: on the storage, it is complete or absent.
"""

from __future__ import annotations

import bisect
import contextlib
import errno
import functools
import io
import itertools
import os
import signal
import stat
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

from mfusepy import FUSE, Operations, fuse_version_major  # type: ignore[import-untyped]

from openpai_tasks.errors import Denied, NotFound, PaiError, PathError
from openpai_tasks.storage.copying.transfer import put
from openpai_tasks.storage.fsspec.moves import move
from openpai_tasks.storage.location import Location
from openpai_tasks.storage.parts import is_part
from openpai_tasks.storage.store import PIECE, Entry, ReadsRanges, Store, is_below, join

SHORTEST, LONGEST = 1 << 20, 16 << 20
"""Bytes of a request: more and more, as long as a program reads in order."""
AHEAD = 3
"""Segments that are on their way beyond the one that a program reads in order."""
KEPT = AHEAD + 3
"""Segments that are kept of each file."""
MOST_MEMORY = 256 << 20
"""Bytes that are kept of all files."""
THREADS = 8
FRESH_SECONDS = 1.0
"""How long facts about a file are used without asking the storage again."""
MOST_ENTRIES = 10_000
LOOP_ENDED = 8  # libfuse's code for a mount that a signal has ended

P = ParamSpec("P")
R = TypeVar("R")


def mount(root: Location, folder: str, writable: bool, ready: Callable[[], object]) -> None:
    """Mount the location on an empty folder; return when it is unmounted or the process gets a signal."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)  # libfuse unmounts at these unless somebody else handles them
    threads = {"max_idle_threads": 10} if fuse_version_major >= 3 else {}  # else libfuse 3 prints a warning
    try:
        FUSE(
            MountedFolder(root, ready),
            folder,
            foreground=True,
            ro=not writable,
            fsname=root.url.replace(",", "\\,"),
            subtype="openpai-tasks",
            attr_timeout=FRESH_SECONDS,
            entry_timeout=FRESH_SECONDS,
            **threads,
        )
    except RuntimeError as err:
        if err.args != (LOOP_ENDED,):
            raise PathError(f"{folder} could not be mounted: FUSE ended with code {err}") from None


def mapping_errors(method: Callable[P, R]) -> Callable[P, R]:
    """Raise our errors as those of the system; a program sees a lost connection as an I/O error."""

    @functools.wraps(method)
    def wrapper(*args: P.args, **options: P.kwargs) -> R:
        try:
            return method(*args, **options)
        except NotFound as err:
            raise OSError(errno.ENOENT, str(err)) from err
        except Denied as err:
            raise OSError(errno.EACCES, str(err)) from err
        except PaiError as err:
            raise OSError(errno.EIO, str(err)) from err

    return wrapper


class MountedFolder(Operations):  # type: ignore[misc]
    """The calls of the kernel, as calls of a store."""

    use_ns = True

    def __init__(self, root: Location, ready: Callable[[], object]) -> None:
        self._root, self._store = root, root.store
        self._pool = ReadPool(self._store)
        self._entries: dict[str, tuple[float, Entry | None]] = {}
        self._files: dict[int, Reader | Upload] = {}
        self._numbers = itertools.count(1)
        self._ready = ready
        self._owner = {"st_uid": os.getuid(), "st_gid": os.getgid()}

    def init(self, path: str) -> None:
        self._ready()

    @mapping_errors
    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        upload = self._upload(path)
        entry = upload.entry() if upload else self._existing(path)
        kind, mode = (stat.S_IFDIR, 0o755) if entry.is_folder else (stat.S_IFREG, 0o644)
        mode = entry.mode if entry.mode is not None else mode | 0o111 * entry.is_executable
        when = entry.mtime_ms * 1_000_000
        times = {"st_mtime": when, "st_ctime": when, "st_atime": when}
        blocks = {"st_size": entry.size, "st_blocks": -(-entry.size // 512), "st_nlink": 1 + entry.is_folder}
        return {"st_mode": kind | mode, **times, **blocks, **self._owner}

    @mapping_errors
    def readdir(self, path: str, fh: int) -> list[str]:
        found = [entry for entry in self._store.list(self._path(path)) if not is_part(entry)]
        self._forget(path)
        for entry in found:
            self._keep(join(path, entry.name), entry)
        return [".", "..", *(entry.name for entry in found)]

    @mapping_errors
    def open(self, path: str, flags: int) -> int:
        if not flags & (os.O_WRONLY | os.O_RDWR):
            entry = self._existing(path, is_fresh=True)
            return self._add(Reader(self._pool, self._path(path), entry))
        found = self._upload(path)
        if found is None:
            is_empty = bool(flags & os.O_TRUNC)
            found = Upload(self._store, self._path(path), None if is_empty else self._existing(path))
        elif flags & os.O_TRUNC:
            found.truncate(0)
        found.users += 1
        return self._add(found)

    @mapping_errors
    def create(self, path: str, mode: int) -> int:
        upload = Upload(self._store, self._path(path), None)
        upload.users = 1
        upload.send()  # so that it is there, and refused now if it will be
        self._forget(path)
        return self._add(upload)

    @mapping_errors
    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        return self._files[fh].read(offset, size)

    @mapping_errors
    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        upload = self._files[fh]
        assert isinstance(upload, Upload)
        return upload.write(offset, data)

    @mapping_errors
    def truncate(self, path: str, length: int, fh: int | None = None) -> None:
        open_upload = self._upload(path)
        upload = open_upload or Upload(
            self._store, self._path(path), self._existing(path) if length else None
        )
        upload.truncate(length)
        if not open_upload:
            upload.send()
            upload.close()
        self._forget(path)

    @mapping_errors
    def flush(self, path: str, fh: int) -> None:
        """Send a written file: what this raises is the result of the program's close."""
        if isinstance(upload := self._files.get(fh), Upload):
            upload.send()
            self._forget(path)

    def fsync(self, path: str, datasync: int, fh: int) -> None:
        self.flush(path, fh)

    def release(self, path: str, fh: int) -> None:
        file = self._files.pop(fh)
        if isinstance(file, Upload):
            file.users -= 1
            if not file.users:
                file.close()
        else:
            self._pool.release(file)

    @mapping_errors
    def mkdir(self, path: str, mode: int) -> None:
        self._store.make_folder(self._path(path))
        self._forget(path)

    @mapping_errors
    def unlink(self, path: str) -> None:
        self._store.remove(self._path(path))
        self._forget(path)

    @mapping_errors
    def rmdir(self, path: str) -> None:
        if any(True for _ in self._store.list(self._path(path))):
            raise OSError(errno.ENOTEMPTY, path)
        self._store.remove(self._path(path))
        self._forget(path)

    @mapping_errors
    def rename(self, old: str, new: str) -> None:
        source, target = self._path(old), self._path(new)
        moved = [upload for upload in self._uploads() if is_below(upload.path, source)]
        for upload in moved:
            upload.send()
        self._forget(new)
        move(self._location(old), self._existing(old), self._location(new))
        for upload in moved:
            upload.path = target + upload.path.removeprefix(source)
        self._entries.clear()  # also what was below a folder

    @mapping_errors
    def utimens(self, path: str, times: tuple[int, int] | None = None) -> None:
        when = time.time_ns() if times is None else times[1]
        if upload := self._upload(path):
            upload.send()
            upload.mtime_ms = when // 1_000_000
        self._store.set_mtime(self._path(path), when // 1_000_000)
        self._forget(path)

    def chmod(self, path: str, mode: int) -> None:
        if stat.S_IMODE(mode) != stat.S_IMODE(self.getattr(path)["st_mode"]):
            raise OSError(errno.ENOTSUP, path)

    def chown(self, path: str, uid: int, gid: int) -> None:
        raise OSError(errno.ENOTSUP, path)

    def statfs(self, path: str) -> dict[str, int]:
        """Return sizes with which programs write, as storages do not say how much room they have."""
        return {
            "f_bsize": SHORTEST,
            "f_frsize": SHORTEST,
            "f_blocks": 1 << 30,
            "f_bfree": 1 << 30,
            "f_bavail": 1 << 30,
        }

    def destroy(self, path: str) -> None:
        self._pool.close()

    def _path(self, path: str) -> str:
        return join(self._root.path, path.strip("/")) if path != "/" else self._root.path

    def _location(self, path: str) -> Location:
        return self._root.join(*path.strip("/").split("/"))

    def _existing(self, path: str, is_fresh: bool = False) -> Entry:
        expires, entry = self._entries.get(path, (0.0, None))
        if is_fresh or time.monotonic() >= expires:
            entry = self._store.stat(self._path(path))
            self._keep(path, entry)
        if entry is None:
            raise OSError(errno.ENOENT, path)
        return entry

    def _keep(self, path: str, entry: Entry | None) -> None:
        if len(self._entries) >= MOST_ENTRIES:
            self._entries.clear()
        self._entries[path] = (time.monotonic() + FRESH_SECONDS, entry)

    def _forget(self, path: str) -> None:
        self._entries.pop(path, None)

    def _add(self, file: Reader | Upload) -> int:
        number = next(self._numbers)
        self._files[number] = file
        return number

    def _upload(self, path: str) -> Upload | None:
        own = self._path(path)
        return next((file for file in self._uploads() if file.path == own), None)

    def _uploads(self) -> list[Upload]:
        return [file for file in [*self._files.values()] if isinstance(file, Upload)]


class Segment:
    """A range of a file, which may still be on its way: its pieces, as the storage sends them."""

    def __init__(self, start: int, end: int, data: Future[list[bytes]]) -> None:
        self.start, self.end, self.data = start, end, data

    @functools.cached_property
    def _ends(self) -> list[int]:
        return list(itertools.accumulate(map(len, self.data.result()), initial=self.start))[1:]

    def cut(self, start: int, end: int) -> Iterator[bytes]:
        """Yield what the segment has of a range that begins in it."""
        pieces = self.data.result()
        for number in range(bisect.bisect_right(self._ends, start), len(pieces)):
            base = self._ends[number] - len(pieces[number])
            if base >= end:
                return
            yield pieces[number][max(0, start - base) : end - base]


class ReadPool:
    """The threads that read files, and what they have read; the oldest is dropped if it is too much."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.read = store.read_range if isinstance(store, ReadsRanges) else store.read
        self._threads = ThreadPoolExecutor(THREADS, "mount")
        self._segments: deque[tuple[Reader, Segment]] = deque()
        self._lock = threading.Lock()

    def start(self, reader: Reader, start: int, end: int) -> Segment:
        segment = Segment(start, end, self._threads.submit(reader.fetch, start, end))
        with self._lock:
            self._segments.append((reader, segment))
            while sum(each.end - each.start for _, each in self._segments) > MOST_MEMORY:
                owner, oldest = self._segments.popleft()
                owner.drop(oldest)
        return segment

    def release(self, reader: Reader) -> None:
        """Forget what was read of a closed file."""
        with self._lock:
            kept = [pair for pair in self._segments if pair[0] is not reader]
            self._segments = deque(kept)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


class Reader:
    """A file that is open for reading, as it was when it was opened."""

    def __init__(self, pool: ReadPool, path: str, entry: Entry) -> None:
        self._pool, self._path, self._entry = pool, path, entry
        self._checked = time.monotonic()
        self._segments: list[Segment] = []
        self._next = 0  # where a program goes on that reads in order
        self._length = SHORTEST  # of the next segment
        self._lock = threading.Lock()

    def read(self, offset: int, size: int) -> bytes:
        end, pieces = min(offset + size, self._entry.size), list[bytes]()
        while offset < end:
            segment = self._find(offset)
            try:
                segment.data.result()
            except BaseException:
                self.drop(segment)  # the next try asks the storage again
                raise
            pieces += segment.cut(offset, end)
            offset = min(end, segment.end)
        return b"".join(pieces)

    def _find(self, offset: int) -> Segment:
        """Return the segment with this byte; read on if the program reads in order."""
        with self._lock:
            found = next((each for each in self._segments if each.start <= offset < each.end), None)
            in_order = found is not None or offset == self._next
            if found is None:
                self._length = self._length if in_order else SHORTEST
                found = self._start(offset)
            behind = sum(each.start >= found.end for each in self._segments)
            while in_order and behind < AHEAD and self._next < self._entry.size:
                self._length = min(LONGEST, 2 * self._length)
                self._start(self._next)
                behind += 1
            return found

    def _start(self, offset: int) -> Segment:
        self._next = min(offset + self._length, self._entry.size)
        segment = self._pool.start(self, offset, self._next)
        self._segments = [*self._segments[1 - KEPT :], segment]
        return segment

    def drop(self, segment: Segment) -> None:
        self._segments = [each for each in self._segments if each is not segment]

    def fetch(self, start: int, end: int) -> list[bytes]:
        """Read a range from the storage; raise if the file is another one by now."""
        data = list(self._pool.read(self._path, start, end - start))
        is_short = sum(map(len, data)) != end - start
        if is_short or time.monotonic() > self._checked + FRESH_SECONDS:
            now, was = self._pool.store.stat(self._path), self._entry
            if now is None or (now.size, now.version or now.mtime_ms) != (
                was.size,
                was.version or was.mtime_ms,
            ):
                raise OSError(errno.ESTALE, f"{self._path}: it was changed while it was read")
            self._checked = time.monotonic()
        if is_short:
            raise OSError(errno.EIO, f"{self._path}: the storage sent too little")
        return data


class Upload:
    """A file that is open for writing."""

    def __init__(self, store: Store, path: str, entry: Entry | None) -> None:
        """``entry`` is the file whose content is kept."""
        self._store, self.path = store, path
        self.users = 0
        self._lock = threading.Lock()
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the last user)
        self._is_changed = entry is None
        self.mtime_ms = entry.mtime_ms if entry else time.time_ns() // 1_000_000
        if entry is not None:
            for piece in store.read(path):
                self._file.write(piece)

    def entry(self) -> Entry:
        with self._lock:
            size = self._file.seek(0, io.SEEK_END)
        return Entry("", self.path, False, size, self.mtime_ms)

    def read(self, offset: int, size: int) -> bytes:
        with self._lock:
            self._file.seek(offset)
            return self._file.read(size)

    def write(self, offset: int, data: bytes) -> int:
        with self._changing():
            self._file.seek(offset)
            return self._file.write(data)

    def truncate(self, size: int) -> None:
        with self._changing():
            self._file.truncate(size)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        with self._lock:
            self._is_changed, self.mtime_ms = True, time.time_ns() // 1_000_000
            yield

    def send(self) -> None:
        """Replace the file on the storage, if anything was written."""
        with self._lock:
            if self._is_changed:
                size = self._file.seek(0, io.SEEK_END)
                put(self._store, self.path, self._pieces, size)
                self._is_changed = False

    def _pieces(self) -> Iterator[bytes]:
        self._file.seek(0)
        return iter(lambda: self._file.read(PIECE), b"")

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()
