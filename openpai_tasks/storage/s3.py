"""S3, by s3fs: its session knows the credentials, and its loop carries the requests of all threads."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import hashlib
import os
import re
import threading
import time
from collections.abc import Generator, Iterator
from decimal import Decimal, InvalidOperation
from typing import Any

import aiohttp
import s3fs  # type: ignore[import-untyped]
from aiobotocore.session import AioSession  # type: ignore[import-untyped]
from botocore.exceptions import (  # type: ignore[import-untyped]
    BotoCoreError,
    ClientError,
    NoCredentialsError,
    PartialCredentialsError,
)
from fsspec.asyn import sync  # type: ignore[import-untyped]

from openpai_tasks.errors import ConfigError, NotFound, PaiError, PathError
from openpai_tasks.storage.object_errors import hush, limited, release, silent, told
from openpai_tasks.storage.object_upload import Body
from openpai_tasks.storage.objects import MD5, ObjectStore, Page, Thing, kind_of_parts, resumed
from openpai_tasks.storage.retry import Damaged
from openpai_tasks.storage.store import PIECE, Digest, Place, check_name

FOREIGN = (ClientError, BotoCoreError, OSError, asyncio.TimeoutError, aiohttp.ClientError)
BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
COPIED_AT_ONCE = 5 << 30  # bytes, the most that one request can copy
COPIED_PART = 1 << 30
MTIME = "mtime"  # as rclone has it: seconds, with a fraction
PART_SIZE = "part-size"  # of what was sent in parts: its ETag cannot be understood without
STALE = 24 * 3600
TIMEOUT = {"connect_timeout": 10, "read_timeout": 60}
CHECKSUMS = {"request_checksum_calculation": "when_required", "response_checksum_validation": "when_required"}


class S3Bucket:
    """One bucket of an S3 server."""

    kind = "s3"
    most_parts = 10_000

    def __init__(
        self, name: str, endpoint: str = "", key: str = "", secret: str = "", token: str = ""
    ) -> None:
        hush()
        endpoint = endpoint or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL", "")
        self._name = name
        self._lock = threading.Lock()
        self.keeps_folders, self._was_told = True, False  # until it is known
        self.address = f"s3://{name}"
        self.identity = f"s3://{endpoint.partition('://')[2]}/{name}"
        self._fs = s3fs.S3FileSystem(
            key=key or None,
            secret=secret or None,
            token=token or None,
            endpoint_url=endpoint or None,
            config_kwargs={
                **TIMEOUT,
                **CHECKSUMS,
                "max_pool_connections": 32,
                "retries": {"max_attempts": 0},
            },
            session=_session(),
            skip_instance_cache=True,
            use_listings_cache=False,
        )
        self._fs.retries = 1  # we try again ourselves, and know after what
        self._fs.connect()

    def close(self) -> None:
        """Its connections are closed when it is no more used."""

    def head(self, key: str) -> Thing | None:
        try:
            return _thing(key, self._call("head_object", key))
        except NotFound:
            return None

    def page(self, prefix: str, flat: bool, rest: str | None, limit: int) -> Page:
        more: dict[str, Any] = {} if rest is None else {"ContinuationToken": rest}
        cut: dict[str, Any] = {} if flat else {"Delimiter": "/"}
        found = self._call("list_objects_v2", "", Prefix=prefix, MaxKeys=limit, **more, **cut)
        things = [Thing(one["Prefix"], True) for one in found.get("CommonPrefixes", ())]
        things += [_listed(one) for one in found.get("Contents", ())]
        return Page(things, found.get("NextContinuationToken") if found.get("IsTruncated") else None)

    def get(self, key: str, offset: int, length: int | None) -> Iterator[bytes]:
        version: dict[str, Any] = {}
        return resumed(lambda at, left: self._get(key, at, left, version), offset, length)

    def put(self, key: str, body: Body, mtime_ms: int | None) -> None:
        metadata = {} if mtime_ms is None else {MTIME: _seconds(mtime_ms)}
        answer = self._call("put_object", key, Metadata=metadata, **_content(body))
        try:
            self._compare(answer, body.md5.hex(), key)
        except Damaged:
            self.delete_version(key, _version(answer))
            raise

    def put_folder(self, key: str) -> None:
        """Some servers (rclone's) make a file of it, in the way of what shall be in the folder: not there."""
        if not self._was_told:
            with self._lock:
                if not self._was_told:
                    self._put_first_folder(key)
                    return
        if self.keeps_folders:
            self._call("put_object", key, Body=b"")

    def _put_first_folder(self, key: str) -> None:
        self._call("put_object", key, Body=b"")
        if self.head(key.rstrip("/")) is not None:
            self.keeps_folders = False
            self.delete([key.rstrip("/")])
        self._was_told = True

    def begin(self, key: str, mtime_ms: int | None, part_size: int) -> S3Session:
        with contextlib.suppress(PaiError):
            self._abort_stale(key)
        metadata = {PART_SIZE: str(part_size)}
        if mtime_ms is not None:
            metadata[MTIME] = _seconds(mtime_ms)
        answer = self._call("create_multipart_upload", key, Metadata=metadata)
        return S3Session(self, key, answer["UploadId"])

    def delete(self, keys: list[str]) -> None:
        plain = [key for key in keys if key.isprintable()]  # others may not survive a list in XML
        if len(plain) > 1:
            named = {"Objects": [{"Key": key} for key in plain], "Quiet": True}
            for error in self._call("delete_objects", "", Delete=named).get("Errors", ()):
                raise self._told(
                    ClientError({"Error": error, "ResponseMetadata": {}}, ""), error.get("Key", "")
                )
        for key in keys if len(plain) <= 1 else [key for key in keys if not key.isprintable()]:
            self._call("delete_object", key)

    def delete_version(self, key: str, version: str) -> bool:
        """Delete it if it is that version still; False where it is another one."""
        there = self.head(key)
        if there is not None and there.version != version:
            return False
        self.delete([key])
        return True

    def copy(self, source: str, target: str) -> None:
        head = self._call("head_object", source)
        if head["ContentLength"] <= COPIED_AT_ONCE:
            place = {"Bucket": self._name, "Key": source}
            self._call("copy_object", target, head["ContentLength"], CopySource=place)
        else:
            self._copy_large(source, target, head)

    def set_mtime(self, key: str, mtime_ms: int) -> None:
        """The object is put in its own place with other metadata; a very large one keeps what it has."""
        head = self._call("head_object", key)
        if head["ContentLength"] <= COPIED_AT_ONCE:
            self._call(
                "copy_object",
                key,
                head["ContentLength"],
                CopySource={"Bucket": self._name, "Key": key},
                Metadata={**head["Metadata"], MTIME: _seconds(mtime_ms)},
                MetadataDirective="REPLACE",
                ContentType=head.get("ContentType", "binary/octet-stream"),
            )

    def _call(self, method: str, key: str, size: int = 0, **values: Any) -> Any:
        """What the request brings; ``size`` is how much it moves."""
        named = {"Bucket": self._name, "Key": key} if key else {"Bucket": self._name}
        size = size or len(values.get("Body", b""))
        with self._tells(key):
            return sync(self._fs.loop, limited, size, self._fs._call_s3, method, **named, **values)

    def _get(
        self, key: str, offset: int, length: int | None, version: dict[str, Any]
    ) -> Generator[bytes, None, None]:
        """One answer's bytes; the same version of the file each time."""
        last = "" if length is None else str(offset + length - 1)
        part: dict[str, Any] = {"Range": f"bytes={offset}-{last}"} if offset or last else {}
        try:
            answer = self._call("get_object", key, **part, **version)
        except _PastEnd:
            return
        version.setdefault("IfMatch", answer["ETag"])
        body = answer["Body"]
        try:
            if answer.get("ContentRange", "").endswith("/0"):
                return  # s3rver promises bytes of an empty file, and never sends them
            while True:
                with self._tells(key):
                    piece = sync(self._fs.loop, limited, PIECE, _filled, body)
                if not piece:
                    return
                yield piece
        finally:
            body.close()

    def _copy_large(self, source: str, target: str, head: dict[str, Any]) -> None:
        metadata = {name: value for name, value in head["Metadata"].items() if name != PART_SIZE}
        upload = self._call("create_multipart_upload", target, Metadata=metadata)["UploadId"]
        session, size = S3Session(self, target, upload), head["ContentLength"]
        try:
            for number, start in enumerate(range(0, size, COPIED_PART), 1):
                end = min(start + COPIED_PART, size) - 1
                session.copy_part(number, {"Bucket": self._name, "Key": source}, start, end)
            session.complete()
        except BaseException:
            with contextlib.suppress(PaiError):
                session.abort()
            raise

    def _abort_stale(self, key: str) -> None:
        """What a copy that was killed has sent of this file a day ago costs money, and nobody sees it."""
        found = self._call("list_multipart_uploads", "", Prefix=key)
        for upload in found.get("Uploads", ()):
            if upload["Key"] == key and time.time() - upload["Initiated"].timestamp() > STALE:
                self._call("abort_multipart_upload", key, UploadId=upload["UploadId"])

    def _compare(self, answer: dict[str, Any], md5: str, key: str) -> None:
        """For a server that does not look at the MD5 it is sent."""
        if _tells_md5(answer) and not self._name.endswith("--x-s3"):
            etag = answer["ETag"].strip('"')
            if re.fullmatch(r"[0-9a-f]{32}", etag) and etag != md5:
                raise Damaged(f"{self.address}/{key}: damaged on the way (MD5 {etag} instead of {md5})")

    @contextlib.contextmanager
    def _tells(self, key: str) -> Iterator[None]:
        try:
            yield
        except PaiError:
            raise
        except FOREIGN as err:
            release(err)
            raise self._told(err, key) from err

    def _told(self, err: BaseException, key: str) -> PaiError:
        cause = err.__cause__ or err
        if isinstance(cause, (NoCredentialsError, PartialCredentialsError)):
            return ConfigError(
                f"{self.address}: no credentials for S3; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
                "or a profile with AWS_PROFILE"
            )
        if not isinstance(cause, ClientError):
            return silent(cause, key, self.address)
        error = cause.response.get("Error", {})
        code, status = str(error.get("Code", "")), cause.response["ResponseMetadata"].get("HTTPStatusCode", 0)
        if status == 416 or code == "InvalidRange":
            return _PastEnd(f"{self.address}/{key}: ends before that")
        status = status or {"AccessDenied": 403, "InternalError": 500}.get(code, 400)
        return told(status, code, str(error.get("Message", "")), key, self.address)


class S3Session:
    """A file on its way in parts."""

    def __init__(self, bucket: S3Bucket, key: str, upload: str) -> None:
        self._bucket, self._key, self._upload = bucket, key, upload
        self._etags: dict[int, str] = {}
        self._md5s: dict[int, bytes] = {}
        self._was_asked = False
        self._version = ""  # of the whole, as the server has told

    def part(self, number: int, body: Body) -> None:
        answer = self._call("upload_part", PartNumber=number, **_content(body))
        self._bucket._compare(answer, body.md5.hex(), self._key)
        self._etags[number], self._md5s[number] = answer["ETag"], body.md5

    def copy_part(self, number: int, source: dict[str, str], start: int, end: int) -> None:
        which = {"CopySource": source, "CopySourceRange": f"bytes={start}-{end}"}
        answer = self._call("upload_part_copy", size=end - start, PartNumber=number, **which)
        self._etags[number] = answer["CopyPartResult"]["ETag"]

    def complete(self, md5: bytes = b"") -> None:
        """Put the parts together; that there are none any more means that the last answer was lost."""
        parts = [{"PartNumber": number, "ETag": etag} for number, etag in sorted(self._etags.items())]
        try:
            self._version = _version(
                self._call("complete_multipart_upload", MultipartUpload={"Parts": parts})
            )
        except NotFound:
            if not self._was_asked:
                raise
        finally:
            self._was_asked = True

    def remove(self) -> bool:
        return self._bucket.delete_version(self._key, self._version)

    def abort(self) -> None:
        self._call("abort_multipart_upload")

    def is_right(self, size: int, md5: bytes) -> bool:
        there = self._bucket.head(self._key)
        if there is None or there.size != size:
            return False
        of_parts = hashlib.md5(b"".join(self._md5s[n] for n in sorted(self._md5s)), usedforsecurity=False)
        told_md5 = all(self._etags[n].strip('"') == self._md5s[n].hex() for n in self._md5s)
        return not told_md5 or there.version in (f"{of_parts.hexdigest()}-{len(self._md5s)}", md5.hex())

    def _call(self, method: str, **values: Any) -> Any:
        return self._bucket._call(method, self._key, UploadId=self._upload, **values)


class _PastEnd(PathError):
    """There is nothing from the asked byte on."""


def open_store(place: Place) -> ObjectStore:
    """A storage that one has added: which bucket, where, and the key if it is not the usual one."""
    data = place.data
    name = str(data.get("bucket") or data.get("bucketName") or "")
    if not BUCKET.fullmatch(name):
        raise ConfigError(f"storage {place.name!r} of {place.cluster!r} names no bucket")
    bucket = S3Bucket(
        name,
        str(data.get("endpoint") or data.get("address") or ""),
        str(data.get("accessKeyId") or ""),
        str(data.get("secretAccessKey") or ""),
        str(data.get("sessionToken") or ""),
    )
    root = str(data.get("path") or data.get("rootPath") or "")
    if not place.share:
        root = f"{root}/{check_name(place.user, f'storage {place.name!r}')}"
    return ObjectStore(bucket, root, place.read_only)


def open_url(url: str) -> tuple[ObjectStore, str]:
    """``s3://bucket/path``; who one is, and at which server, is for the usual AWS settings."""
    name, slash, path = url.partition("://")[2].partition("/")
    if not BUCKET.fullmatch(name):
        raise ConfigError(f"{url!r} names no bucket: s3://BUCKET/PATH")
    return ObjectStore(S3Bucket(name)), slash + path or "/"


def _session() -> AioSession:
    """One that reads the person's settings anew, and the description of S3 only once."""
    session = AioSession()
    session.register_component("data_loader", _loader())
    return session


@functools.cache
def _loader() -> Any:
    return AioSession().get_component("data_loader")


async def _filled(body: Any) -> bytes:
    """A piece of the usual size, of the many small ones that come."""
    found = bytearray()
    while len(found) < PIECE:
        piece = await body.read(PIECE - len(found))
        if not piece:
            break
        found += piece
    return bytes(found)


def _content(body: Body) -> dict[str, Any]:
    return {"Body": body.data, "ContentMD5": base64.b64encode(body.md5).decode()}


def _thing(key: str, head: dict[str, Any]) -> Thing:
    metadata, size = head.get("Metadata", {}), head["ContentLength"]
    digest = _digest(head["ETag"], size, metadata.get(PART_SIZE, "")) if _tells_md5(head) else None
    arrived = _arrived(head["LastModified"])
    return Thing(
        key, False, size, arrived, _milliseconds(metadata.get(MTIME)), head["ETag"].strip('"'), digest
    )


def _listed(one: dict[str, Any]) -> Thing:
    key, size, etag = one["Key"], one["Size"], one.get("ETag", "")
    arrived = _arrived(one["LastModified"])
    return Thing(key, key.endswith("/"), size, arrived, None, etag.strip('"'), _digest(etag, size, ""))


def _version(answer: dict[str, Any]) -> str:
    return str(answer.get("ETag", "")).strip('"')


def _arrived(moment: Any) -> int:
    """Whole seconds: a listing may tell more of it than an answer about the file."""
    return int(moment.timestamp()) * 1000


def _digest(etag: str, size: int, part_size: str) -> Digest | None:
    """What the ETag says, if that is an MD5; of a file in parts only with the size of these."""
    value, mark, count = etag.strip('"').partition("-")
    if not re.fullmatch(r"[0-9a-f]{32}", value):
        return None
    if not mark:
        return Digest(MD5, value)
    if not part_size.isdigit() or -(-size // int(part_size)) != int(count):
        return None
    return Digest(kind_of_parts(int(part_size)), f"{value}-{count}")


def _tells_md5(answer: dict[str, Any]) -> bool:
    """Of what the server encrypts with somebody's key, the ETag is not the MD5."""
    return "ETag" in answer and answer.get("ServerSideEncryption") in (None, "AES256")


def _seconds(mtime_ms: int) -> str:
    return f"{Decimal(mtime_ms) / 1000}"


def _milliseconds(text: str | None) -> int | None:
    try:
        return None if text is None else int(Decimal(text) * 1000 // 1)
    except (InvalidOperation, ValueError, OverflowError):
        return None
