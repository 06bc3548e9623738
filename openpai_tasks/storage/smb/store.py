"""A share of an SMB server as a store."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

from openpai_tasks.errors import Denied, NotFound, PathError
from openpai_tasks.storage.hosts import resolved_addresses
from openpai_tasks.storage.retry import retrying, retrying_numbered, retrying_stream
from openpai_tasks.storage.smb import files, names
from openpai_tasks.storage.smb.connection import SmbLogin, mapping_errors, open_tree, shared_server
from openpai_tasks.storage.smb.errors import AlreadyExists, NoShare, NotEmpty, NotFolder, UnfollowedLink
from openpai_tasks.storage.store import (
    SHA256,
    ChecksBytes,
    Digest,
    Entry,
    Hasher,
    KnowsPlaces,
    Sha256,
    base,
    cut,
    fingerprint,
    parent,
)

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
SMALL = 1 << 16  # bytes; up to this size, files are read and written in one message


class SmbStore(ChecksBytes, KnowsPlaces):
    """The files below ``root`` of a share; threads share one connection.

    SMB has no checksum of a file, so ``digest`` reads it. A copy is not read back: every message is
    encrypted, or signed at least, so what arrives is what was sent; the length is compared when it is closed.
    """

    kind = "smb"
    knows_digests = False

    def __init__(
        self, login: SmbLogin, share: str, root: str = "/", read_only: bool = False, makes_root: bool = False
    ) -> None:
        self.share, self.root = share, root.rstrip("/")
        self._server = shared_server(login)
        self._read_only = read_only
        self._makes_root = makes_root  # creates the user's own folder on first use
        self._lock = threading.Lock()

    def address(self, path: str) -> str:
        """Return the address in lower case: for most servers ``A`` and ``a`` are the same name."""
        login = self._server.login
        host = f"[{login.host}]" if ":" in login.host else login.host
        return f"smb://{host}:{login.port}/{self.share}{self._full(path)}".casefold()

    def identities(self, path: str, above: bool = False) -> set[str]:
        return resolved_addresses(self.address(path), above)

    def stat(self, path: str) -> Entry | None:
        name = self._name(path)

        def attempt() -> Entry | None:
            with self._open_tree(path) as tree:
                return _entry(files.look_up(tree, name), base(path), path)

        try:
            return retrying(attempt)
        except NoShare:
            raise
        except (NotFound, NotFolder):
            return None
        except UnfollowedLink:
            return Entry(base(path), path, False, is_link=True, is_special=True)

    def list(self, path: str) -> Iterator[Entry]:
        given: set[str] = set()  # do not list an entry twice if the connection breaks

        def begin() -> Iterator[Entry]:
            for entry in self._entries(path):
                if entry.name not in given:
                    given.add(entry.name)
                    yield entry

        return retrying_stream(begin)

    def make_folder(self, path: str) -> None:
        self._check_writable(path)
        retrying(lambda: self._create(self._full(path), path))

    def remove(self, path: str, recursive: bool = False) -> None:
        """Remove the path; SMB shows links that the server itself follows as their targets."""
        self._check_writable(path)
        try:
            return self._remove_one(path)
        except NotEmpty:
            if not recursive:
                raise
        stack = [path]
        while stack:
            count = len(stack)
            for entry in self.list(stack[-1]):
                if entry.is_folder and not entry.is_link:
                    stack.append(entry.path)
                else:
                    self._remove_one(entry.path)
            if len(stack) == count:
                self._remove_one(stack.pop())

    def rename(self, source: str, target: str) -> None:
        self._check_writable(target)
        names.check_not_device(target)
        old, new = self._name(source), self._name(target)

        def attempt(number: int) -> None:
            try:
                with self._open_tree(source) as tree:
                    files.rename(tree, old, new, replace=False)
            except AlreadyExists:
                self._check_existing(target, is_folder=False)
                with self._open_tree(source) as tree:
                    files.rename(tree, old, new, replace=True)
            except NotFound:
                # Otherwise it succeeded, and the answer was lost.
                if number == 0 or self.stat(target) is None:
                    raise

        retrying_numbered(attempt)

    def read(self, path: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        """Yield the bytes; after a broken connection, the next one continues."""
        left = length

        def begin() -> Iterator[bytes]:
            nonlocal offset, left
            before = -1
            while (left is None or left > 0) and offset != before:  # a server may return less than requested
                before = offset
                for piece in self._pieces(path, offset, left):
                    offset, left = offset + len(piece), None if left is None else left - len(piece)
                    yield piece
                if left is None:
                    return

        return retrying_stream(begin)

    def write(self, path: str, pieces: Iterable[bytes], size: int | None = None) -> None:
        self._check_writable(path)
        names.check_not_device(path)
        name = self._name(path)
        with self._open_tree(path) as tree:
            block = files.block_size(tree)
        rest = cut(pieces, block)
        first = next(rest, b"")
        if len(first) <= SMALL:  # a block that is not full is the last one
            retrying(lambda: self._write_small(path, name, first))
        else:
            self._write_blocks(path, name, itertools.chain([first], rest))

    def read_checked(self, path: str, size: int) -> Iterator[bytes] | None:
        """Read the bytes; all are checked, as a message with a wrong signature ends the connection."""
        return self.read(path, 0, size)

    def write_checked(self, path: str, pieces: Iterable[bytes], size: int | None) -> bool:
        """Write the bytes; the server checks all of them, and the size is checked here."""
        self.write(path, pieces, size)
        return True

    def digest(self, path: str) -> Digest | None:
        return fingerprint(Sha256(), self.read(path))

    def hasher(self, kind: str | None = None) -> Hasher | None:
        """Return a hasher; None without a kind, as a copy is not read back to be compared."""
        return Sha256() if kind == SHA256 else None

    def set_mtime(self, path: str, mtime_ms: int) -> None:
        self._check_writable(path)
        name = self._name(path)

        def attempt() -> None:
            with self._open_tree(path) as tree:
                files.set_mtime(tree, name, files.filetime(mtime_ms))

        retrying(attempt)

    def _full(self, path: str) -> str:
        return (self.root + path).rstrip("/")

    def _name(self, path: str) -> str:
        return names.encode_path(self._full(path))

    def _check_writable(self, path: str) -> None:
        if self._read_only:
            raise Denied(f"{path}: the storage is read-only for you", 403)

    def _open_tree(self, path: str) -> Any:
        with self._lock:
            if self._makes_root:
                self._create(self.root, "/")
                self._makes_root = False
        return open_tree(self._server, self.share, path)

    def _entries(self, path: str) -> Iterator[Entry]:
        name = self._name(path)
        with self._open_tree(path) as tree:
            yield from files.list_entries(tree, name, path)

    def _pieces(self, path: str, offset: int, length: int | None) -> Iterator[bytes]:
        name, want = self._name(path), length
        with self._open_tree(path) as tree:
            if want is not None and want <= SMALL:
                piece, size = files.read_small(tree, name, offset, want)
                yield piece
                if len(piece) >= min(want, size - offset):
                    return
                offset, want = offset + len(piece), want - len(piece)
            with files.opened(tree, name, files.READ) as handle:
                end = handle.end_of_file if want is None else min(handle.end_of_file, offset + want)
                yield from files.read_ahead(tree, handle, offset, end)

    def _write_small(self, path: str, name: str, content: bytes) -> None:
        with self._open_tree(path) as tree:
            files.write_small(tree, name, content)

    def _write_blocks(self, path: str, name: str, pieces: Iterable[bytes]) -> None:
        """Let errors of the source of the pieces pass unchanged."""
        with self._open_tree(path) as tree:
            upload = files.SmbUpload(tree, name)
        try:
            for block in pieces:
                with mapping_errors(self._server, tree, path):
                    upload.send(block)
            with mapping_errors(self._server, tree, path):
                upload.finish()
        except BaseException:
            upload.abandon()
            raise

    def _create(self, full: str, path: str) -> None:
        missing = []
        while full:
            names.check_not_device(full)
            try:
                self._make_one(full, path)
                break
            except NotFound:
                missing.append(full)
                full = parent(full).rstrip("/")
        for each in reversed(missing):
            self._make_one(each, path)

    def _make_one(self, full: str, path: str) -> None:
        name = names.encode_path(full)
        try:
            with open_tree(self._server, self.share, path) as tree:
                files.run_once(tree, name, files.MAKE)
        except AlreadyExists:
            if full.startswith(f"{self.root}/"):
                self._check_existing(full.removeprefix(self.root), is_folder=True)

    def _check_existing(self, path: str, is_folder: bool) -> None:
        """Refuse an existing entry of another type, or whose name differs in case."""
        found = self._find(path)
        if found is None:
            return
        if found.is_folder != is_folder:
            raise PathError(f"{path}: {'a file' if is_folder else 'a folder'} is there")
        if found.name != base(path):
            clash = f"the server treats it as {found.name!r}, which exists"
            raise PathError(f"{path}: {clash}; rename one of them")

    def _find(self, path: str) -> Entry | None:
        """Return the existing entry with its exact spelling."""
        pattern, folder = names.encode(base(path)), parent(path)
        with self._open_tree(path) as tree:
            return next(files.list_entries(tree, self._name(folder), folder, pattern), None)

    def _remove_one(self, path: str) -> None:
        name = self._name(path)

        def attempt(number: int) -> None:
            try:
                with self._open_tree(path) as tree:
                    files.remove(tree, name)
            except NotFound:
                if number == 0:  # otherwise it succeeded, and the answer was lost
                    raise

        retrying_numbered(attempt)


def _entry(handle: Any, name: str, path: str) -> Entry:
    changed = handle.last_write_time
    mtime_ms = (changed.replace(tzinfo=changed.tzinfo or timezone.utc) - EPOCH) // timedelta(milliseconds=1)
    return files.entry(name, path, handle.file_attributes, handle.end_of_file, mtime_ms)
