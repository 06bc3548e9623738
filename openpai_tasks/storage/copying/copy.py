"""Copy files and trees between any two stores, in parallel; each file arrives complete or not at all."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field

from openpai_tasks.errors import PaiError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.storage.copying.claims import claiming
from openpai_tasks.storage.copying.compare import is_same, looks_same
from openpai_tasks.storage.copying.direct import DirectCopies
from openpai_tasks.storage.copying.plan import CopyItem, check_deletion, check_hidden_overlap, may_overlap
from openpai_tasks.storage.copying.progress import Copied as Copied
from openpai_tasks.storage.copying.progress import CopyFailure as CopyFailure
from openpai_tasks.storage.copying.progress import Interrupted, Watch
from openpai_tasks.storage.copying.transfer import clear_stale, transfer
from openpai_tasks.storage.copying.walk import ExtraEntries, Item, Step, Steps, check_link
from openpai_tasks.storage.copying.workers import ItemQueue, WorkerPool
from openpai_tasks.storage.location import naming
from openpai_tasks.storage.retry import retrying
from openpai_tasks.storage.store import Store, parent
from openpai_tasks.text.plain import one_line

WORKERS = 8


@dataclass(frozen=True)
class Rules:
    """Options of a copy."""

    workers: int = WORKERS
    checksum: bool = False
    delete: bool = False
    preview: bool = False


@dataclass()
class _Counter:
    """The counts so far, shared by the worker threads."""

    watch: Watch
    target: str = ""
    files: int = 0
    bytes: int = 0
    skipped: int = 0
    removed: int = 0
    failed: list[CopyFailure] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    began: float = field(default_factory=time.monotonic)

    def add(self, path: str, outcome: str, size: int = 0) -> None:
        with self.lock:
            if outcome == "copied":
                self.files, self.bytes = self.files + 1, self.bytes + size
            elif outcome == "skipped":
                self.skipped += 1
            else:
                self.removed += 1
        self.watch.ended(path, outcome, size)

    def skip(self, sizes: Mapping[str, int]) -> None:
        """Count files that the walk finds unchanged."""
        self.watch.check()
        with self.lock:
            self.skipped += len(sizes)
        self.watch.skipped(sizes)

    def fail(self, path: str, reason: str) -> None:
        with self.lock:
            self.failed.append(CopyFailure(path, reason.removeprefix(f"{one_line(path)}: ")))
        self.watch.ended(path, "failed", 0)

    def result(self, preview: bool, interrupted: bool = False) -> Copied:
        seconds = round(time.monotonic() - self.began, 3)
        counts = self.files, self.bytes, self.skipped, self.removed
        return Copied(*counts, tuple(self.failed), seconds, preview, interrupted, self.target)


@claiming()
def copy(
    items: Sequence[CopyItem], rules: Rules | None = None, watch: Watch | None = None, target: str = ""
) -> Copied:
    """Copy everything, even if some files fail; ``target`` is the URL of the copy, for its summary."""
    rules, watch = rules or Rules(), watch or Watch()
    if rules.delete:
        check_deletion(items)
        if not rules.preview:
            check_hidden_overlap(items[0])
    counter = _Counter(watch, target)
    try:
        extra = _copy_all(items, counter, rules)
        if rules.delete and not counter.failed:
            _remove(extra, counter, rules.preview)
    except (KeyboardInterrupt, Interrupted):
        watch.interrupted(counter.result(rules.preview, interrupted=True))
        raise
    return counter.result(rules.preview)


def _copy_all(items: Sequence[CopyItem], counter: _Counter, rules: Rules) -> list[ExtraEntries]:
    """Copy all files; return the entries that only the target has."""
    watch, queue, most = counter.watch, ItemQueue(counter.watch), max(1, rules.workers)
    with ThreadPoolExecutor(most) as pool:
        workers = WorkerPool(pool, functools.partial(_work, queue, counter, rules), most, queue)
        try:
            extra = _queue_items(items, workers.add, counter, rules)
            workers.finish()
            watch.check()  # interrupted workers leave files uncopied
        except Interrupted:
            workers.wait()  # a bug in a worker may be the cause
            raise
        except BaseException:  # above all Ctrl-C: leaving the pool waits for the workers
            watch.stop()
            raise
    return extra


def _queue_items(
    items: Sequence[CopyItem], add_item: Callable[[Item], None], counter: _Counter, rules: Rules
) -> list[ExtraEntries]:
    """Walk the trees and queue the files; return the entries that only the target has."""
    extra: list[ExtraEntries] = []
    for step in _steps(items, counter, rules):
        if isinstance(step, Item):
            if step.there and not rules.checksum and looks_same(step.entry, step.there):
                counter.skip({step.entry.path: step.entry.size})
            else:
                counter.watch.found(step.entry.size)
                add_item(step)
        elif isinstance(step, CopyFailure):
            counter.watch.found(0)
            counter.fail(step.path, step.reason)
        elif rules.delete:
            extra.append(step)
    return extra


def _steps(items: Sequence[CopyItem], counter: _Counter, rules: Rules) -> Iterator[Step]:
    taken: set[str] | None = set() if may_overlap(items) else None
    make_folder = functools.partial(_make_folder, counter.watch)
    skip = None if rules.checksum else counter.skip
    looked_at: set[tuple[int, str]] = set()
    for item in items:
        store, folder = item.target.store, parent(item.target.path)
        with naming(item.target):
            if not rules.preview:
                make_folder(store, folder)
            if not (rules.preview or item.entry.is_folder or (id(store), folder) in looked_at):
                looked_at.add((id(store), folder))
                clear_stale(store, folder)
            yield from Steps(item, make_folder, rules.preview, taken, skip)


def _make_folder(watch: Watch, store: Store, path: str) -> None:
    if path != "/":
        retrying(lambda: store.make_folder(path), watch.wait)


def _work(queue: ItemQueue, counter: _Counter, rules: Rules, workers: WorkerPool) -> None:
    """Copy queued files until the queue ends; count every file in the counter."""
    with contextlib.closing(DirectCopies()) as direct:
        try:
            while (chunk := queue.get()) is not None:
                for item in chunk:
                    _process(item, counter, rules, direct)
                workers.start_if_idle()
        except Interrupted:
            return
        except BaseException:  # a bug of ours: others must not wait for this worker
            counter.watch.stop()
            raise


def _process(item: Item, counter: _Counter, rules: Rules, direct: DirectCopies) -> None:
    try:
        outcome, size = _copy_or_skip(item, counter.watch, rules, direct)
    except Interrupted:
        raise
    except PaiError as err:
        counter.fail(item.entry.path, item.describe_error(err))
    else:
        counter.add(item.entry.path, outcome, size)


def _copy_or_skip(item: Item, watch: Watch, rules: Rules, direct: DirectCopies) -> tuple[str, int]:
    """Copy or skip the file; return the outcome and its size."""
    watch.check()
    check_link(item.entry, item.source)
    if item.there and is_same(item.source, item.entry, item.target, item.there, rules.checksum):
        return "skipped", item.entry.size
    if rules.preview or direct.copy(item, watch):
        return "copied", item.entry.size
    return "copied", transfer(item.source, item.entry, item.target, item.path, watch)


def _remove(extra: Iterable[ExtraEntries], counter: _Counter, preview: bool) -> None:
    for step in extra:
        for entry in step.entries:
            counter.watch.check()
            try:
                if not preview:
                    step.store.remove(entry.path, recursive=True)
            except PaiError as err:
                counter.fail(entry.path, str(err))
            else:
                counter.add(entry.path, "removed", entry.size)
