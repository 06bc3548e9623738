"""An S3 bucket for ObjectStore."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from openpai_tasks.errors import PaiError
from openpai_tasks.storage.objects.errors import understood
from openpai_tasks.storage.objects.s3 import answers
from openpai_tasks.storage.objects.s3.connection import S3Wire
from openpai_tasks.storage.objects.s3.upload_session import S3Session, abort_stale
from openpai_tasks.storage.objects.store import ObjectEntry, ObjectPage, resumed
from openpai_tasks.storage.objects.upload import ObjectBody
from openpai_tasks.storage.retry import Damaged

COPIED_AT_ONCE = 5 << 30  # bytes; the most that one request can copy


class S3Bucket:
    """One bucket of an S3 server."""

    kind = "s3"
    most_parts = 10_000
    is_known_by_host = True

    def __init__(self, wire: S3Wire) -> None:
        self.wire, self.address, self.identity = wire, wire.address, wire.identity
        self._lock = threading.Lock()
        self.keeps_folders, self._is_probed = True, False  # until the first folder was created

    def close(self) -> None:
        """Close the connections when the object is no longer used."""

    def head(self, key: str) -> ObjectEntry | None:
        return self.wire.head(key)

    def page(self, prefix: str, flat: bool, rest: str | None, limit: int) -> ObjectPage:
        more: dict[str, Any] = {} if rest is None else {"ContinuationToken": rest}
        cut: dict[str, Any] = {} if flat else {"Delimiter": "/"}
        found = self.wire.call("list_objects_v2", "", Prefix=prefix, MaxKeys=limit, **more, **cut)
        with understood(prefix, self.wire.address):
            things = [ObjectEntry(one["Prefix"], True) for one in found.get("CommonPrefixes", ())]
            things += [answers.listed(one) for one in found.get("Contents", ())]
        return ObjectPage(things, found.get("NextContinuationToken") if found.get("IsTruncated") else None)

    def get(self, key: str, offset: int, length: int | None) -> Iterator[bytes]:
        version: dict[str, Any] = {}
        return resumed(lambda at, left: self.wire.pieces(key, at, left, version), offset, length)

    def put(self, key: str, body: ObjectBody, mtime_ms: int | None) -> None:
        metadata, content = answers.dated(mtime_ms), answers.content(body)
        answer = self.wire.call("put_object", key, Metadata=metadata, **content)
        try:
            self.wire.compare(answer, body.md5.hex(), key)
        except Damaged:
            self.wire.delete_version(key, answers.version(answer))
            raise

    def put_folder(self, key: str) -> None:
        """Create an object for a folder, except on servers (rclone) that turn it into a file."""
        if not self._is_probed:
            with self._lock:
                if not self._is_probed:
                    self._put_first_folder(key)
                    return
        if self.keeps_folders:
            self.wire.call("put_object", key, Body=b"")

    def _put_first_folder(self, key: str) -> None:
        self.wire.call("put_object", key, Body=b"")
        if self.head(key.rstrip("/")) is not None:
            self.keeps_folders = False
            self.delete([key.rstrip("/")])
        self._is_probed = True

    def begin(self, key: str, mtime_ms: int | None, part_size: int) -> S3Session:
        with contextlib.suppress(PaiError):
            abort_stale(self.wire, key)
        metadata = {answers.PART_SIZE: str(part_size), **answers.dated(mtime_ms)}
        return S3Session(self.wire, key, metadata)

    def delete(self, keys: list[str]) -> None:
        plain = [key for key in keys if key.isprintable()]  # other keys may not survive a list in XML
        if len(plain) > 1:
            self.wire.delete_at_once(plain)
        for key in keys if len(plain) <= 1 else [key for key in keys if not key.isprintable()]:
            self.wire.call("delete_object", key)

    def copy(self, source: str, target: str) -> None:
        head = self.wire.call("head_object", source)
        size = head["ContentLength"]
        if size <= COPIED_AT_ONCE:
            self.wire.call("copy_object", target, size, CopySource=self.wire.parameters(source))
            return
        kept = {name: value for name, value in head["Metadata"].items() if name != answers.PART_SIZE}
        S3Session(self.wire, target, kept).copy(source, size)

    def set_mtime(self, key: str, mtime_ms: int) -> None:
        """Copy the object onto itself with new metadata; a very large one stays unchanged."""
        head = self.wire.call("head_object", key)
        if head["ContentLength"] <= COPIED_AT_ONCE:
            self.wire.call(
                "copy_object",
                key,
                head["ContentLength"],
                CopySource=self.wire.parameters(key),
                Metadata={**head["Metadata"], **answers.dated(mtime_ms)},
                MetadataDirective="REPLACE",
                ContentType=head.get("ContentType", "binary/octet-stream"),
            )
