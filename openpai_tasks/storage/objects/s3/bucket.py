"""An S3 bucket for ObjectStore."""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from collections.abc import Iterator, Sequence
from html import escape
from urllib.parse import unquote_plus

from openpai_tasks.errors import NotFound, PaiError
from openpai_tasks.storage.objects.errors import parsing_answer
from openpai_tasks.storage.objects.s3 import answers
from openpai_tasks.storage.objects.s3.client import S3Call, S3Client
from openpai_tasks.storage.objects.store import Note, ObjectEntry, ObjectPage, ignore, read_resuming
from openpai_tasks.storage.objects.upload import ObjectBody
from openpai_tasks.storage.retry import CorruptData

COPIED_AT_ONCE = 5 << 30  # bytes; the most that one request can copy
COPIED_PART = 1 << 30
STALE = 24 * 3600


class S3Bucket(S3Client):
    """One bucket of an S3 server."""

    kind = "s3"
    most_parts = 10_000
    is_known_by_host = True

    def __init__(self, *where: str) -> None:
        super().__init__(*where)
        self._folder_lock = threading.Lock()
        self.keeps_folders, self._is_probed = True, False  # until the first folder was created

    def page(self, prefix: str, flat: bool, rest: str | None, limit: int) -> ObjectPage:
        query = {"list-type": "2", "prefix": prefix, "max-keys": str(limit), "encoding-type": "url"}
        query |= {} if rest is None else {"continuation-token": rest}
        query |= {} if flat else {"delimiter": "/"}
        found = self.document(S3Call("GET", "", query))
        with parsing_answer(prefix, self.address):
            facts = answers.fields(found)
            decode = unquote_plus if facts.get("EncodingType") == "url" else str
            folders = answers.children(found, "CommonPrefixes")
            entries = [ObjectEntry(decode(one["Prefix"]), True) for one in folders]
            entries += [answers.parse_listed(one, decode) for one in answers.children(found, "Contents")]
        is_cut = facts.get("IsTruncated") == "true"
        return ObjectPage(entries, facts.get("NextContinuationToken") if is_cut else None)

    def get(self, key: str, offset: int, length: int | None, note: Note = ignore) -> Iterator[bytes]:
        version: dict[str, str] = {}
        return read_resuming(lambda at, left: self.pieces(key, at, left, version, note), offset, length)

    def put(self, key: str, body: ObjectBody, mtime_ms: int | None) -> None:
        headers = answers.mtime_header(mtime_ms) | answers.md5_header(body)
        answer = self.upload(key, body.data, headers)
        try:
            self.compare(answer, body.md5.hex(), key)
        except CorruptData:
            self.delete_version(key, answers.version(answer))
            raise

    def put_folder(self, key: str) -> None:
        """Create an object for a folder, except on servers (rclone) that turn it into a file."""
        if not self._is_probed:
            with self._folder_lock:
                if not self._is_probed:
                    self._put_first_folder(key)
                    return
        if self.keeps_folders:
            self.upload(key, b"", {})

    def _put_first_folder(self, key: str) -> None:
        self.upload(key, b"", {})
        if self.head(key.rstrip("/")) is not None:
            self.keeps_folders = False
            self.delete([key.rstrip("/")])
        self._is_probed = True

    def begin(self, key: str, mtime_ms: int | None, part_size: int) -> S3Session:
        with contextlib.suppress(PaiError):
            self.abort_stale(key)
        size = {f"{answers.METADATA}{answers.PART_SIZE}": str(part_size)}
        return S3Session(self, key, {**size, **answers.mtime_header(mtime_ms)})

    def abort_stale(self, key: str) -> None:
        """Abort day-old uploads of this object by killed copies: they are invisible and cost money."""
        with parsing_answer(key, self.address):
            found = self.document(S3Call("GET", "", {"uploads": "", "prefix": key}))
            for upload in answers.children(found, "Upload"):
                if upload["Key"] == key and time.time() - answers.moment(upload["Initiated"]) > STALE:
                    self.discard(S3Call("DELETE", key, {"uploadId": upload["UploadId"]}))

    def delete(self, keys: Sequence[str]) -> None:
        plain = [key for key in keys if key.isprintable()]  # other keys may not survive a list in XML
        if len(plain) > 1:
            self._delete_at_once(plain)
        for key in keys if len(plain) <= 1 else [key for key in keys if not key.isprintable()]:
            self.discard(S3Call("DELETE", key))

    def _delete_at_once(self, keys: Sequence[str]) -> None:
        named = "".join(f"<Object><Key>{escape(key, quote=False)}</Key></Object>" for key in keys)
        body = f'<Delete xmlns="{answers.SPACE}">{named}<Quiet>true</Quiet></Delete>'.encode()
        md5 = answers.md5_header(ObjectBody(body, hashlib.md5(body, usedforsecurity=False).digest()))
        answer = self.document(S3Call("POST", "", {"delete": ""}, md5, body))
        for error in answers.children(answer, "Error"):
            self.refuse(error)

    def copy(self, source: str, target: str) -> None:
        head = self.headers(source)
        with parsing_answer(source, self.address):
            size = answers.parse_object(source, head).size
        if size <= COPIED_AT_ONCE:
            self.document(S3Call("PUT", target, headers=self.source(source), size=size))
            return
        of_parts = f"{answers.METADATA}{answers.PART_SIZE}"
        kept = {name: value for name, value in answers.metadata(head).items() if name != of_parts}
        S3Session(self, target, kept).copy(source, size)

    def set_mtime(self, key: str, mtime_ms: int) -> None:
        """Copy the object onto itself with new metadata; a very large one stays unchanged."""
        head = self.headers(key)
        with parsing_answer(key, self.address):
            size = answers.parse_object(key, head).size
        if size <= COPIED_AT_ONCE:
            headers = {
                **self.source(key),
                **answers.metadata(head),
                **answers.mtime_header(mtime_ms),
                "x-amz-metadata-directive": "REPLACE",
                "content-type": head.get("content-type", "binary/octet-stream"),
            }
            self.document(S3Call("PUT", key, headers=headers, size=size))


class S3Session:
    """An upload in parts."""

    def __init__(self, client: S3Client, key: str, metadata: dict[str, str]) -> None:
        self._wire, self._key = client, key
        with parsing_answer(key, client.address):
            begun = client.document(S3Call("POST", key, {"uploads": ""}, metadata))
            self._upload = answers.fields(begun)["UploadId"]
        self._etags: dict[int, str] = {}
        self._md5s: dict[int, bytes] = {}
        self._was_asked = False
        self._version = ""  # of the whole object, from the server's answer

    def part(self, number: int, body: ObjectBody) -> None:
        answer = self._wire.upload(self._key, body.data, answers.md5_header(body), self._part(number))
        self._wire.compare(answer, body.md5.hex(), self._key)
        self._etags[number], self._md5s[number] = answer.get("etag", ""), body.md5

    def complete(self, md5: bytes = b"") -> None:
        """Combine the parts; if they are gone at a retry, the earlier answer was lost."""
        parts = "".join(
            f"<Part><PartNumber>{number}</PartNumber><ETag>{escape(etag, quote=False)}</ETag></Part>"
            for number, etag in sorted(self._etags.items())
        )
        body = f'<CompleteMultipartUpload xmlns="{answers.SPACE}">{parts}</CompleteMultipartUpload>'.encode()
        try:
            answer = self._wire.document(S3Call("POST", self._key, {"uploadId": self._upload}, body=body))
            self._version = answers.fields(answer).get("ETag", "").strip('"')
        except NotFound:
            if not self._was_asked:
                raise
        finally:
            self._was_asked = True

    def remove(self) -> bool:
        return self._wire.delete_version(self._key, self._version)

    def abort(self) -> None:
        self._wire.discard(S3Call("DELETE", self._key, {"uploadId": self._upload}))

    def is_intact(self, size: int, md5: bytes) -> bool:
        there = self._wire.head(self._key)
        if there is None or there.size != size:
            return False
        of_parts = hashlib.md5(b"".join(self._md5s[n] for n in sorted(self._md5s)), usedforsecurity=False)
        has_md5s = all(self._etags[n].strip('"') == self._md5s[n].hex() for n in self._md5s)
        return not has_md5s or there.version in (f"{of_parts.hexdigest()}-{len(self._md5s)}", md5.hex())

    def copy(self, source: str, size: int) -> None:
        """Copy another object of the bucket on the server, completely or not at all."""
        try:
            for number, start in enumerate(range(0, size, COPIED_PART), 1):
                self._copy_part(number, source, start, min(start + COPIED_PART, size) - 1)
            self.complete()
        except BaseException:
            with contextlib.suppress(PaiError):
                self.abort()
            raise

    def _copy_part(self, number: int, source: str, start: int, end: int) -> None:
        which = {**self._wire.source(source), "x-amz-copy-source-range": f"bytes={start}-{end}"}
        answer = self._wire.document(S3Call("PUT", self._key, self._part(number), which, size=end - start))
        with parsing_answer(self._key, self._wire.address):
            self._etags[number] = answers.fields(answer)["ETag"]

    def _part(self, number: int) -> dict[str, str]:
        return {"partNumber": str(number), "uploadId": self._upload}
