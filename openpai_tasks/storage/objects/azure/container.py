"""A container of Azure Blob, over the client and the event loop of adlfs."""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from dataclasses import field, replace
from datetime import datetime, timezone
from typing import Any

import adlfs  # type: ignore[import-untyped]
import aiohttp
from azure.core import MatchConditions
from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    HttpResponseError,
    ResourceNotFoundError,
)
from azure.storage.blob import BlobBlock, BlobProperties, ContentSettings
from fsspec.asyn import sync  # type: ignore[import-untyped]

from openpai_tasks.errors import ConfigError, Denied, NotFound, PaiError, PathError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.storage.objects import errors
from openpai_tasks.storage.objects.errors import (
    PastEnd,
    line,
    make_error,
    mute,
    no_answer_error,
    parsing_answer,
    release,
)
from openpai_tasks.storage.objects.md5 import MD5
from openpai_tasks.storage.objects.store import Note, ObjectEntry, ObjectPage, ignore, read_resuming
from openpai_tasks.storage.objects.upload import ObjectBody
from openpai_tasks.storage.retry import CorruptData
from openpai_tasks.storage.store import Digest

FOREIGN = (AzureError, OSError, asyncio.TimeoutError, aiohttp.ClientError)
CHUNK = 4 << 20  # bytes per answer
PARALLEL_DELETIONS = 16
MTIME = "mtime"  # as rclone has it: RFC 3339
MOMENT = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?(Z|[+-]\d\d:\d\d)")
FOLDER = "hdi_isfolder"  # by which Azure's own tools, such as blobfuse, recognise a folder
FOLDERS = (FOLDER, "is_directory")
CALM = {"retry_total": 0, "connection_timeout": 10, "read_timeout": 60}  # we retry by ourselves
CLOUD = "blob.core.windows.net"


@dataclass(frozen=True)
class Account:
    """An account and its credentials; for a URL without a key, this machine's login to Azure."""

    name: str = ""
    endpoint: str = ""
    key: str = field(default="", repr=False)
    sas: str = field(default="", repr=False)
    connection: str = field(default="", repr=False)

    @property
    def url(self) -> str:
        endpoint = dict(row.partition("=")[::2] for row in self.connection.split(";")).get("BlobEndpoint", "")
        return self.endpoint or endpoint or f"https://{self.name}.{CLOUD}"

    def open_filesystem(self) -> Any:
        connection = self.connection
        if self.key:
            connection = f"BlobEndpoint={self.url};AccountName={self.name};AccountKey={self.key}"
        elif self.sas:
            connection = f"BlobEndpoint={self.url};SharedAccessSignature={self.sas.lstrip('?')}"
        options: dict[str, Any] = {"account_name": self.name, "account_host": self.url.partition("://")[2]}
        if connection:
            options = {"connection_string": connection}
        try:
            return adlfs.AzureBlobFileSystem(**options, skip_instance_cache=True, use_listings_cache=False)
        except ValueError as err:
            raise ConfigError(
                f"the account {self.name!r} of Azure Blob: invalid key or connection string"
            ) from err


class BlobContainer:
    """One container of an account."""

    kind = "azureblob"
    most_parts = 50_000
    is_known_by_host = False  # one machine serves many accounts, which differ only in their names
    keeps_folders = True

    def __init__(self, name: str, account: Account) -> None:
        mute()
        self.address = f"az://{name}"
        self.identity = f"az://{account.url.partition('://')[2].rstrip('/')}/{name}"
        self._fs = account.open_filesystem()
        self._container = self._fs.service_client.get_container_client(name)

    def close(self) -> None:
        """Close the connections when the object is no longer used."""

    def head(self, key: str) -> ObjectEntry | None:
        try:
            with parsing_answer(key, self.address):
                blob = self._container.get_blob_client(key)
                return _parse_blob(self.run(key, blob.get_blob_properties, **CALM))
        except NotFound:
            return None

    def page(self, prefix: str, flat: bool, rest: str | None, limit: int) -> ObjectPage:
        named: dict[str, Any] = {"name_starts_with": prefix or None, "include": ["metadata"]}
        found = self._container.list_blobs if flat else self._container.walk_blobs
        if not flat:
            named["delimiter"] = "/"
        pages = found(**named, results_per_page=limit, **CALM).by_page(rest or None)

        async def first() -> ObjectPage:
            try:
                entries = [_parse_blob(one) async for one in await pages.__anext__()]
            except StopAsyncIteration:
                return ObjectPage([])
            return ObjectPage(entries, pages.continuation_token or None)

        page: ObjectPage = self.run("", first)
        return page

    def get(self, key: str, offset: int, length: int | None, note: Note = ignore) -> Iterator[bytes]:
        version: dict[str, Any] = {}
        return read_resuming(lambda at, left: self._get(key, at, left, version, note), offset, length)

    def put(self, key: str, body: ObjectBody, mtime_ms: int | None) -> None:
        """Send the bytes with their MD5, by which the server refuses damaged ones."""
        self.run(
            key,
            self._container.get_blob_client(key).upload_blob,
            body.data,
            length=len(body.data),
            overwrite=True,
            validate_content=True,
            content_settings=_settings(body.md5),
            metadata=_metadata(mtime_ms),
            **CALM,
        )

    def put_folder(self, key: str) -> None:
        blob = self._container.get_blob_client(key)
        self.run(key, blob.upload_blob, b"", overwrite=True, metadata={FOLDER: "true"}, **CALM)

    def begin(self, key: str, mtime_ms: int | None, part_size: int) -> BlobSession:
        return BlobSession(self, key, self._container.get_blob_client(key), mtime_ms)

    def delete(self, keys: Sequence[str]) -> None:
        self.run(keys[0] if len(keys) == 1 else "", self._delete, keys)

    def copy(self, source: str, target: str) -> None:
        url = self._container.get_blob_client(source).url
        blob = self._container.get_blob_client(target)
        state = self.run(source, blob.start_copy_from_url, url, **CALM)["copy_status"]
        while state == "pending":
            time.sleep(0.2)
            state = self.run(target, blob.get_blob_properties, **CALM).copy.status
        if state != "success":
            raise PathError(f"{self.address}/{source}: could not be copied in the account ({state})")

    def set_mtime(self, key: str, mtime_ms: int) -> None:
        blob = self._container.get_blob_client(key)
        kept = self.run(key, blob.get_blob_properties, **CALM).metadata or {}
        self.run(key, blob.set_blob_metadata, {**kept, **_metadata(mtime_ms)}, **CALM)

    def run(self, key: str, operation: Callable[..., Awaitable[Any]], *args: Any, **values: Any) -> Any:
        """Run the request in the event loop and return its result, from another thread."""
        size = max((len(value) for value in args if isinstance(value, bytes)), default=CHUNK)
        try:
            with parsing_answer(key, self.address):
                return sync(self._fs.loop, _limited, size, operation, *args, **values)
        except FOREIGN as err:
            release(err)
            raise self._make_error(err, key) from err

    async def _delete(self, keys: Sequence[str]) -> None:
        gate = asyncio.Semaphore(PARALLEL_DELETIONS)

        async def one(key: str) -> None:
            async with gate:
                with contextlib.suppress(ResourceNotFoundError):
                    await self._container.delete_blob(key, **CALM)

        await asyncio.gather(*map(one, keys))

    def _get(
        self, key: str, offset: int, length: int | None, version: dict[str, Any], note: Note
    ) -> Generator[bytes, None, None]:
        """Yield the bytes, one request after another, all from the same version of the file."""
        blob = self._container.get_blob_client(key)
        end = None if length is None else offset + length
        while end is None or offset < end:
            count = CHUNK if end is None else min(CHUNK, end - offset)

            async def chunk(at: int = offset, count: int = count) -> tuple[bytes, Any]:
                answer = await blob.download_blob(at, count, max_concurrency=1, **version, **CALM)
                return await answer.readall(), answer.properties

            try:
                piece, facts = self.run(key, chunk)
            except PastEnd:
                return
            version.update(etag=facts.etag, match_condition=MatchConditions.IfNotModified)
            offset += len(piece)
            size = int((facts.content_range or f"/{offset}").rpartition("/")[2])
            note(replace(_parse_blob(facts), size=size))
            end = size if end is None else min(end, size)
            if not piece:
                return
            yield piece

    def _make_error(self, err: BaseException, key: str) -> PaiError:
        if not isinstance(err, HttpResponseError):
            return no_answer_error(err, key, self.address)
        code, status = str(err.error_code if hasattr(err, "error_code") else ""), err.status_code or 0
        code = code.rpartition(".")[2]
        if status == 416:
            return PastEnd(f"{self.address}/{key}: ends before that")
        if isinstance(err, ClientAuthenticationError) and not status:
            return Denied(f"{self.address}: refused: {line(err.message)}", 401)
        return make_error(status, code, err.message, key, self.address)


class BlobSession:
    """An upload in blocks; Azure removes blocks of an unfinished upload after a week."""

    def __init__(self, container: BlobContainer, key: str, blob: Any, mtime_ms: int | None) -> None:
        self._container, self._key, self._blob = container, key, blob
        self._metadata = _metadata(mtime_ms)
        self._mark = secrets.token_hex(8)  # a concurrent copy to the same name must not use our blocks
        self._blocks: set[int] = set()
        self._version = ""  # of the whole object, from the service's answer

    def part(self, number: int, body: ObjectBody) -> None:
        self._run(self._blob.stage_block, self._id(number), body.data, len(body.data), validate_content=True)
        self._blocks.add(number)

    def complete(self, md5: bytes) -> None:
        blocks = [BlobBlock(block_id=self._id(number)) for number in sorted(self._blocks)]
        options = {"content_settings": _settings(md5), "metadata": self._metadata}
        answer = self._run(self._blob.commit_block_list, blocks, **options)
        self._version = str(answer["etag"])

    def remove(self) -> bool:
        if not self._version:
            return False
        try:
            mine = {"etag": self._version, "match_condition": MatchConditions.IfNotModified}
            self._run(self._blob.delete_blob, **mine)
        except CorruptData:  # another version is there
            return False
        except NotFound:
            pass
        return True

    def abort(self) -> None:
        """Do nothing: blocks of an unfinished upload are invisible and cannot be removed."""

    def is_intact(self, size: int, md5: bytes) -> bool:
        there = self._container.head(self._key)
        return there is not None and (there.size, there.digest) == (size, Digest(MD5, md5.hex()))

    def _id(self, number: int) -> str:
        return f"{self._mark}{number:08d}"

    def _run(self, operation: Callable[..., Awaitable[Any]], *args: Any, **values: Any) -> Any:
        return self._container.run(self._key, operation, *args, **values, **CALM)


async def _limited(size: int, operation: Callable[..., Awaitable[Any]], *args: Any, **values: Any) -> Any:
    """Run a request that moves ``size`` bytes, with a time limit in case the server stops reading."""
    return await asyncio.wait_for(operation(*args, **values), errors.LONGEST + size / errors.SLOWEST)


def _parse_blob(one: Any) -> ObjectEntry:
    if not isinstance(one, BlobProperties):  # a common prefix of several names
        return ObjectEntry(str(one.name), True)
    metadata = {name.lower(): value for name, value in (one.metadata or {}).items()}
    is_folder = one.name.endswith("/") or any(metadata.get(name, "").lower() == "true" for name in FOLDERS)
    arrived, md5 = int(one.last_modified.timestamp()) * 1000, one.content_settings.content_md5
    digest = Digest(MD5, bytes(md5).hex()) if md5 else None
    mtime_ms = _milliseconds(metadata.get(MTIME, ""))
    if mtime_ms is None:
        mtime_ms = arrived  # a request would return no more than the listing
    return ObjectEntry(one.name, is_folder, one.size, arrived, mtime_ms, str(one.etag).strip('"'), digest)


def _settings(md5: bytes) -> ContentSettings:
    return ContentSettings(content_type="application/octet-stream", content_md5=bytearray(md5))


def _metadata(mtime_ms: int | None) -> dict[str, str]:
    if mtime_ms is None:
        return {}
    seconds, rest = divmod(mtime_ms, 1000)
    moment = datetime.fromtimestamp(seconds, timezone.utc).replace(tzinfo=None).isoformat()
    return {MTIME: f"{moment}.{rest:03d}000000Z"}


def _milliseconds(text: str) -> int | None:
    found = MOMENT.fullmatch(text)
    if not found:
        return None
    zone = "+00:00" if found[3] == "Z" else found[3]
    try:
        seconds = int(datetime.fromisoformat(found[1] + zone).timestamp())
    except (ValueError, OverflowError):  # such as 30 February
        return None
    return seconds * 1000 + int((found[2] or "").ljust(3, "0")[:3])
