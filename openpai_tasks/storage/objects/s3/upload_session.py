"""An upload to S3 in parts, from local bytes or from another object of the bucket."""

from __future__ import annotations

import contextlib
import hashlib
import time
from typing import Any

from openpai_tasks.errors import NotFound, PaiError
from openpai_tasks.storage.objects.s3 import answers
from openpai_tasks.storage.objects.s3.connection import S3Wire
from openpai_tasks.storage.objects.upload import ObjectBody

COPIED_PART = 1 << 30
STALE = 24 * 3600


class S3Session:
    """An upload in parts."""

    def __init__(self, wire: S3Wire, key: str, metadata: dict[str, str]) -> None:
        self._wire, self._key = wire, key
        self._upload = wire.call("create_multipart_upload", key, Metadata=metadata)["UploadId"]
        self._etags: dict[int, str] = {}
        self._md5s: dict[int, bytes] = {}
        self._was_asked = False
        self._version = ""  # of the whole object, from the server's answer

    def part(self, number: int, body: ObjectBody) -> None:
        answer = self._call("upload_part", PartNumber=number, **answers.content(body))
        self._wire.compare(answer, body.md5.hex(), self._key)
        self._etags[number], self._md5s[number] = answer["ETag"], body.md5

    def complete(self, md5: bytes = b"") -> None:
        """Combine the parts; if they are gone at a retry, the earlier answer was lost."""
        parts = [{"PartNumber": number, "ETag": etag} for number, etag in sorted(self._etags.items())]
        try:
            answer = self._call("complete_multipart_upload", MultipartUpload={"Parts": parts})
            self._version = answers.version(answer)
        except NotFound:
            if not self._was_asked:
                raise
        finally:
            self._was_asked = True

    def remove(self) -> bool:
        return self._wire.delete_version(self._key, self._version)

    def abort(self) -> None:
        self._call("abort_multipart_upload")

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
        which = {"CopySource": self._wire.parameters(source), "CopySourceRange": f"bytes={start}-{end}"}
        answer = self._call("upload_part_copy", size=end - start, PartNumber=number, **which)
        self._etags[number] = answer["CopyPartResult"]["ETag"]

    def _call(self, method: str, **values: Any) -> Any:
        return self._wire.call(method, self._key, UploadId=self._upload, **values)


def abort_stale(wire: S3Wire, key: str) -> None:
    """Abort day-old uploads of this object by killed copies: they are invisible and cost money."""
    found = wire.call("list_multipart_uploads", "", Prefix=key)
    for upload in found.get("Uploads", ()):
        if upload["Key"] == key and time.time() - upload["Initiated"].timestamp() > STALE:
            wire.call("abort_multipart_upload", key, UploadId=upload["UploadId"])
