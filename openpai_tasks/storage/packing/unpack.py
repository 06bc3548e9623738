"""Unpack a set: by a copy, or directly where the target is a new folder on this machine.

The direct way writes small files, folder by folder, in one thread. All it leaves, such as large files and
those that fail, is copied afterwards, so that retries and errors are those of a copy.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, islice, pairwise

from openpai_tasks.errors import PaiError
from openpai_tasks.storage.copying import copy as copying
from openpai_tasks.storage.copying import plan
from openpai_tasks.storage.copying.copy import Copied, Rules
from openpai_tasks.storage.copying.direct import SMALL
from openpai_tasks.storage.copying.plan import Errand
from openpai_tasks.storage.copying.progress import Interrupted, Watch
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.location import Location
from openpai_tasks.storage.packing.folder_writer import FolderWriter
from openpai_tasks.storage.packing.opened import PackedSet
from openpai_tasks.storage.packing.packed_store import PackedStore
from openpai_tasks.storage.store import join

FIRST, QUICK = 32, 0.001
"""The number of files to try, and the seconds for each; a slower target gets the threads of a copy."""


def unpack(packed: PackedSet, target: Location, rules: Rules, watch: Watch) -> Copied:
    """Unpack the files into the target folder, by the rules of a copy."""
    store = PackedStore(packed)
    errands = plan.synced(Location(store, "/", packed.url), target)
    if rules.preview or not _is_new(target, store):
        return copying.copy(errands, rules, watch)
    direct = _DirectUnpack(store, target, watch)
    if direct.is_quick():
        errands = direct.run(errands)
    return direct.total(copying.copy(errands, rules, watch))


def _is_new(target: Location, source: PackedStore) -> bool:
    """Whether the target is a folder on this machine that is missing or empty."""
    store = target.store
    if not (isinstance(store, LocalStore) and store.can_copy_from(source)):
        return False
    return store.stat(target.path) is None or next(iter(store.list(target.path)), None) is None


class _DirectUnpack:
    """The small files of a set on their way to a new local folder."""

    def __init__(self, source: PackedStore, target: Location, watch: Watch) -> None:
        assert isinstance(target.store, LocalStore)
        self._source, self._target, self._store, self._watch = source, target, target.store, watch
        self._began = time.monotonic()
        self._left: list[Errand] = []
        self._is_stuck = False
        self._done = self._written()
        self._first: list[int] = []
        self._files = self._bytes = self._seen_again = 0

    def is_quick(self) -> bool:
        """Write the first files; return whether the target is fast enough for one thread."""
        times = [time.perf_counter()]
        for number in islice(self._done, FIRST):
            self._first.append(number)
            times.append(time.perf_counter())
        seconds = [end - start for start, end in pairwise(times)]
        if not seconds or statistics.median(seconds) < QUICK:  # others may use the processor now and then
            return True
        self._files = self._seen_again = len(self._first)
        self._bytes = sum(self._source.index.size[number] for number in self._first)
        return False

    def run(self, whole: list[Errand]) -> list[Errand]:
        """Write the other files, too; return what is left for a copy."""
        index, watch = self._source.index, self._watch
        try:
            for size in index.size:
                watch.found(size)
            for number in chain(self._first, self._done):
                size = index.size[number]
                self._files, self._bytes = self._files + 1, self._bytes + size
                watch.moved(size)
                watch.ended(f"/{index.names[number]}", "copied", size)
        except (KeyboardInterrupt, Interrupted):
            watch.interrupted(replace(self.total(Copied()), interrupted=True))
            raise
        if self._is_stuck:
            self._seen_again = self._files
            return whole
        return self._left

    def total(self, rest: Copied) -> Copied:
        """Return the result of both ways."""
        return replace(
            rest,
            files=self._files + rest.files,
            bytes=self._bytes + rest.bytes,
            skipped=rest.skipped - self._seen_again,
            seconds=round(time.monotonic() - self._began, 3),
        )

    def _written(self) -> Iterator[int]:
        """Write the small files; yield the row of each one that is complete."""
        for folder in self._source.folders():
            try:
                handle = self._made(folder)
            except PaiError:
                self._is_stuck = True
                return
            cut = len(folder) + 1 if folder else 0
            with FolderWriter(handle) as writer:
                for number in self._source.numbers(folder):
                    self._watch.check()
                    if self._write(writer, number, cut):
                        yield number
                    else:
                        self._leave(number)

    def _made(self, folder: str) -> int:
        path = join(self._target.path, folder) if folder else self._target.path
        self._store.make_folder(path)
        mode = self._source.mode(folder)
        if mode is not None:
            self._store.set_mode(path, self._store.allowed(mode) | 0o700)
        return self._store.open_folder(path)

    def _write(self, writer: FolderWriter, number: int, cut: int) -> bool:
        index = self._source.index
        if index.size[number] > SMALL:
            return False
        try:
            content = self._source.content(number)
            writer.write(index.names[number][cut:], content, index.mode[number], index.mtime[number])
        except (OSError, PaiError):  # the copy of this file finds out why
            return False
        return True

    def _leave(self, number: int) -> None:
        entry = self._source.entry(number)
        source = Location(self._source, entry.path, entry.path)
        self._left.append(Errand(source, entry, self._target.join(*entry.path.lstrip("/").split("/"))))
