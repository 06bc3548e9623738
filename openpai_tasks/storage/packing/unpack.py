"""Unpack a set: to this machine directly, to other stores by a copy.

The direct way writes new small files, folder by folder, in one thread. All it leaves, such as large files,
those that replace others and those that fail, is copied afterwards, so that errors are those of a copy.
"""

from __future__ import annotations

import contextlib
import errno
import os
import statistics
import time
from collections.abc import Generator, Iterator
from dataclasses import replace
from itertools import islice, pairwise

from openpai_tasks.errors import PaiError, PathError
from openpai_tasks.storage.copying import copy as copying
from openpai_tasks.storage.copying import plan
from openpai_tasks.storage.copying.claims import claiming, part_name
from openpai_tasks.storage.copying.compact_listing import CompactListing
from openpai_tasks.storage.copying.compare import looks_same
from openpai_tasks.storage.copying.copy import Copied, Rules
from openpai_tasks.storage.copying.direct import SMALL
from openpai_tasks.storage.copying.plan import CopyItem
from openpai_tasks.storage.copying.progress import Interrupted, Watch
from openpai_tasks.storage.copying.transfer import remove_stale
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.location import Location
from openpai_tasks.storage.packing.packed_set import PackedSet
from openpai_tasks.storage.packing.packed_store import PackedStore
from openpai_tasks.storage.parts import is_part
from openpai_tasks.storage.store import Entry, join

COPIED, SKIPPED = "copied", "skipped"
FIRST, QUICK = 32, 0.001
"""The number of files to try, and the seconds for each; a slower target gets the threads of a copy."""
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@claiming()
def unpack(packed: PackedSet, target: Location, rules: Rules, watch: Watch) -> Copied:
    """Unpack the files into the target folder, by the rules of a copy."""
    store = PackedStore(packed)
    items = plan.plan_sync(Location(store, "/", packed.url), target)
    if rules.preview or rules.checksum or type(target.store) is not LocalStore:
        return copying.copy(items, rules, watch)
    direct = _DirectUnpack(store, target, target.store, watch)
    try:
        if direct.is_quick():
            direct.run()
    except (KeyboardInterrupt, Interrupted):
        watch.interrupted(replace(direct.total(Copied()), interrupted=True))
        raise
    return direct.total(copying.copy(items if direct.is_stuck else direct.left, rules, watch))


class _DirectUnpack:
    """The new small files of a set on their way to a local folder."""

    def __init__(self, source: PackedStore, target: Location, store: LocalStore, watch: Watch) -> None:
        self._source, self._target, self._store, self._watch = source, target, store, watch
        self._began = time.monotonic()
        self._steps = self._unpack_files()
        self._first: list[tuple[int, str]] = []
        self._counts, self._bytes = {COPIED: 0, SKIPPED: 0}, 0
        self.left: list[CopyItem] = []
        self.is_stuck = False
        """Whether a copy has to look at the whole set."""

    def is_quick(self) -> bool:
        """Unpack the first files; return whether the target is fast enough for one thread."""
        times = [time.perf_counter()]
        for number, outcome in islice(self._steps, FIRST):
            times.append(time.perf_counter())
            self._first.append((number, outcome))
            self._count(number, outcome)
        seconds = [end - start for start, end in pairwise(times)]
        if not seconds or statistics.median(seconds) < QUICK:  # others may use the processor now and then
            return True
        self._steps.close()
        self.is_stuck = True
        return False

    def run(self) -> None:
        """Unpack the other files, too."""
        for size in self._source.index.size:
            self._watch.found(size)
        for number, outcome in self._first:
            self._report(number, outcome)
        for number, outcome in self._steps:
            self._count(number, outcome)
            self._report(number, outcome)

    def total(self, rest: Copied) -> Copied:
        """Return the result of both ways."""
        copied, skipped = self._counts[COPIED], self._counts[SKIPPED] + rest.skipped
        if self.is_stuck:  # then the copy has seen all these files again
            skipped = max(0, rest.skipped - copied)
        return replace(
            rest,
            files=rest.files + copied,
            bytes=rest.bytes + self._bytes,
            skipped=skipped,
            seconds=round(time.monotonic() - self._began, 3),
        )

    def _count(self, number: int, outcome: str) -> None:
        self._counts[outcome] += 1
        self._bytes += self._source.index.size[number] if outcome == COPIED else 0

    def _report(self, number: int, outcome: str) -> None:
        size = self._source.index.size[number]
        if outcome == COPIED:
            self._watch.moved(size)
        self._watch.ended(f"/{self._source.index.names[number]}", outcome, size)

    def _unpack_files(self) -> Generator[tuple[int, str], None, None]:
        """Write the new small files; yield the row of each file that is complete, and its outcome."""
        for folder in sorted(self._source.folders()):  # those above first
            try:
                there, handle = self._enter_folder(folder)
            except PaiError:
                self.is_stuck = True
                return
            cut = len(folder) + 1 if folder else 0
            with FolderWriter(handle) as writer:
                for number in self._source.numbers(folder):
                    self._watch.check()
                    name = self._source.index.names[number][cut:]
                    old = there.pop(name) if there else None
                    if old is not None and looks_same(self._source.entry(number), old):
                        yield number, SKIPPED
                    elif old is None and self._write(writer, number, name):
                        yield number, COPIED
                    else:
                        self._leave(number)

    def _enter_folder(self, folder: str) -> tuple[CompactListing, int]:
        """Return the entries of the target folder, and its handle; make it if it is missing."""
        path, store = join(self._target.path, folder).rstrip("/"), self._store
        there = store.stat(path)
        if there is None:
            store.make_folder(path)
            mode = self._source.mode(folder)
            if mode is not None:
                store.set_mode(path, store.allowed(mode) | 0o700)
        elif not there.is_folder or (there.is_link and folder):
            raise PathError(f"{path}: not a folder, or a link to one, which is not entered")
        return CompactListing(path, () if there is None else self._existing(path)), store.open_folder(path)

    def _existing(self, path: str) -> Iterator[Entry]:
        """Yield the entries of the folder; remove old parts of killed copies."""
        for entry in self._store.list(path):
            if is_part(entry):
                remove_stale(self._store, entry)
            else:
                yield entry

    def _write(self, writer: FolderWriter, number: int, name: str) -> bool:
        index = self._source.index
        if index.size[number] > SMALL:
            return False
        try:
            content = self._source.content(number)
            writer.write(name, content, index.mode[number], index.mtime[number])
        except (OSError, PaiError):  # the copy of this file finds out why
            return False
        return True

    def _leave(self, number: int) -> None:
        """Leave the file to a copy: of this file, or of the whole set if its name cannot be looked up."""
        entry = self._source.entry(number)
        source = Location(self._source, entry.path, entry.path)
        target = self._target.join(*entry.path.lstrip("/").split("/"))
        try:
            self._store.stat(target.path)
        except PaiError:
            self.is_stuck = True
        else:
            self.left.append(CopyItem(source, entry, target, is_inner=True))


class FolderWriter:
    """Writes files into an open folder, one after the other; each is complete or absent."""

    def __init__(self, handle: int) -> None:
        self._handle, self._part = handle, part_name()

    def __enter__(self) -> FolderWriter:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._handle)

    def write(self, name: str, content: bytes, mode: int, mtime_ms: int) -> None:
        """Write the file under a temporary name, then rename it; its mode is limited by the umask."""
        folder, part = self._handle, self._part
        file = os.open(part, NEW, mode, dir_fd=folder)
        try:
            try:
                if os.write(file, content) < len(content):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.utime(file, ns=(mtime_ms * 1_000_000, mtime_ms * 1_000_000))
            finally:
                os.close(file)
            os.rename(part, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(part, dir_fd=folder)
            raise
