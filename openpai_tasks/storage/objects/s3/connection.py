"""Requests to a bucket with the credentials and the event loop of s3fs, shared by all threads."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
from collections.abc import Generator, Iterator
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

from openpai_tasks.errors import ConfigError, NotFound, PaiError
from openpai_tasks.net import addresses
from openpai_tasks.storage.objects.errors import (
    PastEnd,
    hush,
    limited,
    make_error,
    release,
    silent,
    understood,
)
from openpai_tasks.storage.objects.s3 import answers
from openpai_tasks.storage.objects.store import ObjectEntry
from openpai_tasks.storage.retry import Damaged
from openpai_tasks.storage.store import PIECE

FOREIGN = (ClientError, BotoCoreError, OSError, asyncio.TimeoutError, aiohttp.ClientError)
TIMEOUT = {"connect_timeout": 10, "read_timeout": 60}
CHECKSUMS = {"request_checksum_calculation": "when_required", "response_checksum_validation": "when_required"}
CALM = {"max_pool_connections": 32, "retries": {"max_attempts": 0}}  # we retry by ourselves
EXPRESS = "--x-s3"  # suffix of buckets whose ETags are not MD5s


class S3Wire:
    """Requests to one bucket of a server; errors are converted to ours."""

    def __init__(
        self, name: str, endpoint: str = "", key: str = "", secret: str = "", token: str = ""
    ) -> None:
        hush()
        endpoint = endpoint or _usual_endpoint()
        self._name = name
        self.address = f"s3://{name}"
        self.identity = f"s3://{endpoint.partition('://')[2]}/{name}"
        try:
            self._fs = s3fs.S3FileSystem(
                key=key or None,
                secret=secret or None,
                token=token or None,
                endpoint_url=endpoint or None,
                config_kwargs={**TIMEOUT, **CHECKSUMS, **CALM},
                session=_session(),
                skip_instance_cache=True,
                use_listings_cache=False,
            )
            self._fs.retries = 1  # of s3fs, too: our own code knows when a retry helps
            self._fs.connect()
        except (BotoCoreError, ValueError) as err:  # such as a missing profile
            raise ConfigError(f"{self.address}: invalid AWS settings: {err}") from err

    def parameters(self, key: str) -> dict[str, str]:
        return {"Bucket": self._name, "Key": key}

    def call(self, method: str, key: str, size: int = 0, **values: Any) -> Any:
        """Send a request and return its answer; ``size`` is the number of bytes that it transfers."""
        named = self.parameters(key) if key else {"Bucket": self._name}
        size = size or len(values.get("Body", b""))
        with self._mapping_errors(key), understood(key, self.address):
            return sync(self._fs.loop, limited, size, self._fs._call_s3, method, **named, **values)

    def head(self, key: str) -> ObjectEntry | None:
        try:
            with understood(key, self.address):
                return answers.thing(key, self.call("head_object", key))
        except NotFound:
            return None

    def pieces(
        self, key: str, offset: int, length: int | None, version: dict[str, Any]
    ) -> Generator[bytes, None, None]:
        """Yield the bytes of one answer; all requests read the same version of the file."""
        last = "" if length is None else str(offset + length - 1)
        part: dict[str, Any] = {"Range": f"bytes={offset}-{last}"} if offset or last else {}
        try:
            answer = self.call("get_object", key, **part, **version)
        except PastEnd:
            return
        version.setdefault("IfMatch", answer["ETag"])
        body = answer["Body"]
        try:
            if answer.get("ContentRange", "").endswith("/0"):
                return  # s3rver announces bytes of an empty file but never sends them
            while True:
                with self._mapping_errors(key):
                    piece = sync(self._fs.loop, limited, PIECE, _filled, body)
                if not piece:
                    return
                yield piece
        finally:
            body.close()

    def compare(self, answer: dict[str, Any], md5: str, key: str) -> None:
        """Compare the MD5, as some servers do not check it."""
        found = answers.md5_of(answer)
        if found and found != md5 and not self._name.endswith(EXPRESS):
            raise Damaged(f"{self.address}/{key}: damaged in transit (MD5 {found} instead of {md5})")

    def delete_at_once(self, keys: list[str]) -> None:
        named = {"Objects": [{"Key": key} for key in keys], "Quiet": True}
        for error in self.call("delete_objects", "", Delete=named).get("Errors", ()):
            refusal = ClientError({"Error": error, "ResponseMetadata": {}}, "")
            raise self._make_error(refusal, error.get("Key", ""))

    def delete_version(self, key: str, version: str) -> bool:
        """Delete the object if it still has this version; return False if it has another one."""
        there = self.head(key)
        if there is not None and there.version != version:
            return False
        self.call("delete_object", key)
        return True

    @contextlib.contextmanager
    def _mapping_errors(self, key: str) -> Iterator[None]:
        try:
            yield
        except PaiError:
            raise
        except FOREIGN as err:
            release(err)
            raise self._make_error(err, key) from err

    def _make_error(self, err: BaseException, key: str) -> PaiError:
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
            return PastEnd(f"{self.address}/{key}: ends before that")
        status = status or {"AccessDenied": 403, "InternalError": 500}.get(code, 400)
        return make_error(status, code, str(error.get("Message", "")), key, self.address)


def _usual_endpoint() -> str:
    """Return the server that the environment names."""
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"):
        if url := os.environ.get(name, ""):
            return checked_endpoint(url, name)
    return ""


def checked_endpoint(url: str, where: str) -> str:
    try:
        addresses.parse_url(url)
    except ValueError as err:
        form = "http://HOST:PORT or https://HOST:PORT"
        raise ConfigError(f"{where}: invalid url of an S3 server {url!r}: expected {form}") from err
    return url


def _session() -> AioSession:
    """Return a session with the user's current settings; the description of S3 is loaded only once."""
    session = AioSession()
    session.register_component("data_loader", _loader())
    return session


@functools.cache
def _loader() -> Any:
    return AioSession().get_component("data_loader")


async def _filled(body: Any) -> bytes:
    """Collect the small pieces that arrive into one of the usual size."""
    found = bytearray()
    while len(found) < PIECE:
        piece = await body.read(PIECE - len(found))
        if not piece:
            break
        found += piece
    return bytes(found)
