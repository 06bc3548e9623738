"""The storages of a cluster, shown as the folders of ``pai://<cluster>/``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from openpai_tasks.errors import NoSuchPath, PathError
from openpai_tasks.storage.store import Digest, Entry, Hasher, check_name


class StoragesStore:
    """A read-only list of storages; files on them have their own URLs."""

    kind = "storages"
    knows_digests = False

    def __init__(self, cluster: str, names: Iterable[str]) -> None:
        self._cluster = cluster
        self._names = tuple(names)

    def address(self, path: str) -> str:
        return f"pai://{self._cluster}{path}"

    def stat(self, path: str) -> Entry | None:
        return Entry("", "/", True) if path == "/" else None

    def list(self, path: str) -> Iterator[Entry]:
        if path != "/":
            raise NoSuchPath(f"{self.address(path)}: no such folder")
        for name in self._names:
            yield Entry(check_name(name, self.address(path)), f"/{name}", True)

    def make_folder(self, path: str) -> None:
        raise self._refused()

    def remove(self, path: str, recursive: bool = False) -> None:
        raise self._refused()

    def rename(self, source: str, target: str) -> None:
        raise self._refused()

    def read(self, path: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        raise self._refused()

    def write(self, path: str, pieces: Iterable[bytes], size: int | None = None) -> None:
        raise self._refused()

    def digest(self, path: str) -> Digest | None:
        return None

    def hasher(self, kind: str | None = None) -> Hasher | None:
        return None

    def set_mtime(self, path: str, mtime_ms: int) -> None:
        raise self._refused()

    def _refused(self) -> PathError:
        known = ", ".join(self._names) or "none"
        return PathError(f"pai://{self._cluster}/ holds storages, not files; name one (known: {known})")
