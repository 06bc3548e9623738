"""An S3 bucket for ObjectStore."""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Iterator
from html import escape
from urllib.parse import unquote_plus

from openpai_tasks.errors import PaiError
from openpai_tasks.storage.objects.errors import understood
from openpai_tasks.storage.objects.s3 import answers
from openpai_tasks.storage.objects.s3.connection import S3Call, S3Wire
from openpai_tasks.storage.objects.s3.upload_session import S3Session, abort_stale
from openpai_tasks.storage.objects.store import Note, ObjectEntry, ObjectPage, ignore, resumed
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
        self.wire.close()

    def head(self, key: str) -> ObjectEntry | None:
        return self.wire.head(key)

    def page(self, prefix: str, flat: bool, rest: str | None, limit: int) -> ObjectPage:
        query = {"list-type": "2", "prefix": prefix, "max-keys": str(limit), "encoding-type": "url"}
        query |= {} if rest is None else {"continuation-token": rest}
        query |= {} if flat else {"delimiter": "/"}
        found = self.wire.document(S3Call("GET", "", query))
        with understood(prefix, self.wire.address):
            facts = answers.fields(found)
            decode = unquote_plus if facts.get("EncodingType") == "url" else str
            folders = answers.children(found, "CommonPrefixes")
            things = [ObjectEntry(decode(one["Prefix"]), True) for one in folders]
            things += [answers.listed(one, decode) for one in answers.children(found, "Contents")]
        is_cut = facts.get("IsTruncated") == "true"
        return ObjectPage(things, facts.get("NextContinuationToken") if is_cut else None)

    def get(self, key: str, offset: int, length: int | None, note: Note = ignore) -> Iterator[bytes]:
        version: dict[str, str] = {}
        return resumed(lambda at, left: self.wire.pieces(key, at, left, version, note), offset, length)

    def put(self, key: str, body: ObjectBody, mtime_ms: int | None) -> None:
        answer = self.wire.put(key, body.data, {**answers.dated(mtime_ms), **answers.checked(body)})
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
            self.wire.put(key, b"", {})

    def _put_first_folder(self, key: str) -> None:
        self.wire.put(key, b"", {})
        if self.head(key.rstrip("/")) is not None:
            self.keeps_folders = False
            self.delete([key.rstrip("/")])
        self._is_probed = True

    def begin(self, key: str, mtime_ms: int | None, part_size: int) -> S3Session:
        with contextlib.suppress(PaiError):
            abort_stale(self.wire, key)
        size = {f"{answers.METADATA}{answers.PART_SIZE}": str(part_size)}
        return S3Session(self.wire, key, {**size, **answers.dated(mtime_ms)})

    def delete(self, keys: list[str]) -> None:
        plain = [key for key in keys if key.isprintable()]  # other keys may not survive a list in XML
        if len(plain) > 1:
            self._delete_at_once(plain)
        for key in keys if len(plain) <= 1 else [key for key in keys if not key.isprintable()]:
            self.wire.discard(S3Call("DELETE", key))

    def _delete_at_once(self, keys: list[str]) -> None:
        named = "".join(f"<Object><Key>{escape(key, quote=False)}</Key></Object>" for key in keys)
        body = f'<Delete xmlns="{answers.SPACE}">{named}<Quiet>true</Quiet></Delete>'.encode()
        md5 = answers.checked(ObjectBody(body, hashlib.md5(body, usedforsecurity=False).digest()))
        answer = self.wire.document(S3Call("POST", "", {"delete": ""}, md5, body))
        for error in answers.children(answer, "Error"):
            self.wire.refuse(error)

    def copy(self, source: str, target: str) -> None:
        head = self.wire.headers(source)
        with understood(source, self.address):
            size = answers.thing(source, head).size
        if size <= COPIED_AT_ONCE:
            self.wire.document(S3Call("PUT", target, headers=self.wire.source(source), size=size))
            return
        of_parts = f"{answers.METADATA}{answers.PART_SIZE}"
        kept = {name: value for name, value in answers.metadata(head).items() if name != of_parts}
        S3Session(self.wire, target, kept).copy(source, size)

    def set_mtime(self, key: str, mtime_ms: int) -> None:
        """Copy the object onto itself with new metadata; a very large one stays unchanged."""
        head = self.wire.headers(key)
        with understood(key, self.address):
            size = answers.thing(key, head).size
        if size <= COPIED_AT_ONCE:
            headers = {
                **self.wire.source(key),
                **answers.metadata(head),
                **answers.dated(mtime_ms),
                "x-amz-metadata-directive": "REPLACE",
                "content-type": head.get("content-type", "binary/octet-stream"),
            }
            self.wire.document(S3Call("PUT", key, headers=headers, size=size))
