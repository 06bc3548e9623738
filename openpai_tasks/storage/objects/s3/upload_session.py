"""An upload to S3 in parts, from local bytes or from another object of the bucket."""

from __future__ import annotations

import contextlib
import hashlib
import time
from html import escape

from openpai_tasks.errors import NotFound, PaiError
from openpai_tasks.storage.objects.errors import understood
from openpai_tasks.storage.objects.s3 import answers
from openpai_tasks.storage.objects.s3.connection import S3Call, S3Wire
from openpai_tasks.storage.objects.upload import ObjectBody

COPIED_PART = 1 << 30
STALE = 24 * 3600


class S3Session:
    """An upload in parts."""

    def __init__(self, wire: S3Wire, key: str, metadata: dict[str, str]) -> None:
        self._wire, self._key = wire, key
        with understood(key, wire.address):
            begun = wire.document(S3Call("POST", key, {"uploads": ""}, metadata))
            self._upload = answers.fields(begun)["UploadId"]
        self._etags: dict[int, str] = {}
        self._md5s: dict[int, bytes] = {}
        self._was_asked = False
        self._version = ""  # of the whole object, from the server's answer

    def part(self, number: int, body: ObjectBody) -> None:
        answer = self._wire.put(self._key, body.data, answers.checked(body), self._part(number))
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

    def is_right(self, size: int, md5: bytes) -> bool:
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
        with understood(self._key, self._wire.address):
            self._etags[number] = answers.fields(answer)["ETag"]

    def _part(self, number: int) -> dict[str, str]:
        return {"partNumber": str(number), "uploadId": self._upload}


def abort_stale(wire: S3Wire, key: str) -> None:
    """Abort day-old uploads of this object by killed copies: they are invisible and cost money."""
    with understood(key, wire.address):
        found = wire.document(S3Call("GET", "", {"uploads": "", "prefix": key}))
        for upload in answers.children(found, "Upload"):
            if upload["Key"] == key and time.time() - answers.moment(upload["Initiated"]) > STALE:
                wire.discard(S3Call("DELETE", key, {"uploadId": upload["UploadId"]}))
