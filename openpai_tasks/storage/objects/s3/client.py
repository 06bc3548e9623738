"""Requests to a bucket, over connections that all threads share."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Generator, Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, NoReturn
from urllib.parse import SplitResult, urlsplit
from xml.etree.ElementTree import Element

from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]

from openpai_tasks.errors import ConfigError, NotFound, PaiError
from openpai_tasks.net import addresses
from openpai_tasks.net.connection_pool import ConnectionPool
from openpai_tasks.net.exchange import Exchange
from openpai_tasks.net.http1 import ERROR_LIMIT, HttpAnswer
from openpai_tasks.net.proxies import proxy_for
from openpai_tasks.protocol.fields import MALFORMED
from openpai_tasks.storage.objects import errors
from openpai_tasks.storage.objects.errors import (
    PastEnd,
    make_error,
    mute,
    no_answer_error,
    parsing_answer,
    release,
)
from openpai_tasks.storage.objects.s3 import answers
from openpai_tasks.storage.objects.s3.signing import S3Endpoint, S3Request, SigningScope, escape, sign
from openpai_tasks.storage.objects.store import Note, ObjectEntry
from openpai_tasks.storage.retry import CorruptData
from openpai_tasks.storage.store import PIECE

if TYPE_CHECKING:
    from openpai_tasks.storage.objects.s3.account import S3Account

SILENCE = 60.0  # seconds
EXPRESS = "--x-s3"  # suffix of buckets whose ETags are not MD5s
AGENT = "openpai-tasks"
MISPLACED = (301, 307, 400)
"""Statuses of an answer that names the bucket's region, if that is another one."""
STATUSES = {"AccessDenied": 403, "InternalError": 500}
"""Of errors inside a successful answer."""

Words = Mapping[str, str]
NOTHING: Words = MappingProxyType({})
FILES = ("~/.aws/config", "~/.aws/credentials", "~/.boto", "/etc/boto.cfg")
PREFIXES = ("AWS_", "BOTO_")
HARMLESS = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_CA_BUNDLE"}
"""Variables that do not matter beside given keys, or are read here."""
BUNDLES = ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE")
AMAZON = ("amazonaws.com", "amazonaws.com.cn")
SPECIAL = ("--", "s3alias")
"""In the names of buckets that are not reached like others: S3 Express, access points."""
SCOPE = SigningScope("us-east-1", "s3")


class S3Call(NamedTuple):
    """A request about a key; ``size`` is the number of bytes that its answer transfers or stands for."""

    method: str
    key: str
    query: Words = NOTHING
    headers: Words = NOTHING
    body: bytes = b""
    size: int = 0


class S3Client:
    """Requests to one bucket of a server; errors are converted to ours."""

    def __init__(
        self, name: str, endpoint: str = "", key: str = "", secret: str = "", token: str = ""
    ) -> None:
        mute()
        endpoint = endpoint or _default_endpoint()
        self._name = name
        self.address = f"s3://{name}"
        self.identity = f"s3://{endpoint.partition('://')[2]}/{name}"
        self._account = _open_account(name, endpoint, S3Login(key, secret, token or None))
        self._lock = threading.Lock()
        self._route: Route | None = None

    def close(self) -> None:
        if self._route:
            self._route.pool.close()

    def source(self, key: str) -> dict[str, str]:
        """Return the header that names the object to copy."""
        return {"x-amz-copy-source": escape(f"{self._name}/{key}", safe="/")}

    def send(self, call: S3Call) -> HttpAnswer:
        """Send a request and return its successful answer."""
        with self._mapping_errors(call.key):
            route = self._route or self._find_route(None, None)
            reply = self._exchange(route, call)
            if reply.status_code < 300:
                return reply
            error = answers.error(reply.content)
        region = reply.headers.get("x-amz-bucket-region") or error.get("Region", "")
        if reply.status_code in MISPLACED and region and not route.is_corrected:
            with self._mapping_errors(call.key):
                self._find_route(route, region)
            return self.send(call)
        self._raise(error, reply.status_code, call.key)

    def discard(self, call: S3Call) -> Words:
        """Send a request whose answer has no content; return the headers of the answer."""
        with self._mapping_errors(call.key):
            reply = self.send(call)
            reply.read(ERROR_LIMIT)
        return reply.headers

    def document(self, call: S3Call) -> Element:
        """Send a request and return the XML of its answer, which may be an error in spite of its status."""
        with self._mapping_errors(call.key), parsing_answer(call.key, self.address):
            root = answers.parse(self.send(call).content)
            if answers.local_name(root) == "Error":
                self.refuse({"Key": call.key, **answers.fields(root)})
        return root

    def upload(self, key: str, body: bytes, headers: Words, query: Words = NOTHING) -> Words:
        """Upload an object or a part; return the headers of the answer."""
        return self.discard(S3Call("PUT", key, query, headers, body))

    def headers(self, key: str) -> Words:
        """Return the headers of the answer about an object."""
        return self.discard(S3Call("HEAD", key))

    def head(self, key: str) -> ObjectEntry | None:
        try:
            with parsing_answer(key, self.address):
                return answers.parse_object(key, self.headers(key))
        except NotFound:
            return None

    def pieces(
        self, key: str, offset: int, length: int | None, version: dict[str, str], note: Note
    ) -> Generator[bytes, None, None]:
        """Yield the bytes of one answer; all requests read the same version of the file."""
        last = "" if length is None else str(offset + length - 1)
        part = {"range": f"bytes={offset}-{last}"} if offset or last else {}
        try:
            reply = self.send(S3Call("GET", key, headers={**part, **version}))
        except PastEnd:
            return
        with parsing_answer(key, self.address):
            version.setdefault("if-match", reply.headers["etag"])
        with contextlib.suppress(*MALFORMED):  # whoever needs it asks again
            note(answers.parse_object(key, reply.headers))
        if reply.headers.get("content-range", "").endswith("/0"):
            reply.close()
            return  # s3rver announces bytes of an empty file but never sends them
        with contextlib.closing(reply.large_pieces(PIECE, errors.LONGEST + PIECE / errors.SLOWEST)) as pieces:
            while True:
                with self._mapping_errors(key):
                    piece = next(pieces, b"")
                if not piece:
                    return
                yield piece

    def compare(self, answer: Words, md5: str, key: str) -> None:
        """Compare the MD5, as some servers do not check it."""
        found = answers.md5_of(answer)
        if found and found != md5 and not self._name.endswith(EXPRESS):
            raise CorruptData(f"{self.address}/{key}: damaged in transit (MD5 {found} instead of {md5})")

    def refuse(self, error: Words) -> NoReturn:
        """Raise the error of one key in an answer about several."""
        self._raise(error, STATUSES.get(error.get("Code", ""), 400), error.get("Key", ""))

    def delete_version(self, key: str, version: str) -> bool:
        """Delete the object if it still has this version; return False if it has another one."""
        there = self.head(key)
        if there is not None and there.version != version:
            return False
        self.discard(S3Call("DELETE", key))
        return True

    def _find_route(self, old: Route | None, region: str | None) -> Route:
        """Find the way to the bucket, or to the region where the server says it is."""
        with self._lock:
            if self._route is None or self._route is old:
                place = self._account.locate(region)
                if old:
                    pool = old.pool
                else:
                    pool = ConnectionPool(SILENCE, self._account.certificates, proxy_for(place.url.geturl()))
                self._route = Route(place, pool, is_corrected=old is not None)
            return self._route

    def _exchange(self, route: Route, call: S3Call) -> HttpAnswer:
        """Send one request and receive the head of its answer."""
        method, key, query, headers, body, size = call
        place, login = route.place, self._account.login()
        path = f"{place.url.path}/{escape(key, safe='/')}" if key else place.url.path or "/"
        token = {place.token_header: login.token} if login.token else {}
        request = S3Request(method, path, query, {"host": place.url.netloc, **headers, **token}, body)
        signs_body = place.signs_payload or "content-md5" not in headers
        lines = sign(request, login.access_key, login.secret_key, place.scope, signs_body)
        del lines["host"]  # added by the pool
        lines |= {"user-agent": AGENT, "accept-encoding": "identity"}
        exchange = Exchange(SILENCE, errors.LONGEST + max(size, len(body)) / errors.SLOWEST)
        server = f"{place.url.scheme}://{place.url.netloc}"
        return route.pool.request(method, server, request.target, lines, body, exchange)

    def _raise(self, error: Words, status: int, key: str) -> NoReturn:
        code, text = error.get("Code", ""), error.get("Message", "") or _reason(status)
        if status == 416 or code == "InvalidRange":
            raise PastEnd(f"{self.address}/{key}: ends before that")
        raise make_error(status, code, text, error.get("Key", key), self.address)

    @contextlib.contextmanager
    def _mapping_errors(self, key: str) -> Iterator[None]:
        try:
            yield
        except PaiError:
            raise
        except ClientError as err:  # of botocore's own requests
            self._raise(err.response["Error"], err.response["ResponseMetadata"]["HTTPStatusCode"], key)
        except (OSError, BotoCoreError) as err:
            release(err)
            raise no_answer_error(err, key, self.address) from err


class Route(NamedTuple):
    """The way to the bucket's server."""

    place: S3Endpoint
    pool: ConnectionPool
    is_corrected: bool  # the server has named the region


class S3Login(NamedTuple):
    """The keys that sign a request."""

    access_key: str
    secret_key: str
    token: str | None


class StaticAccount:
    """The endpoint and keys of a bucket."""

    def __init__(self, bucket: str, endpoint: str, login: S3Login) -> None:
        self._bucket, self._server, self._login = bucket, urlsplit(endpoint), login

    @property
    def certificates(self) -> str | bool:
        if self._server.scheme != "https":
            return True
        import certifi

        named = (os.environ.get(name) for name in BUNDLES)
        return next(filter(None, named), None) or certifi.where()

    def login(self) -> S3Login:
        return self._login

    def locate(self, region: str | None) -> S3Endpoint:
        """Return the endpoint; botocore knows what to do in another region."""
        server = self._server
        if region is not None:
            from openpai_tasks.storage.objects.s3.account import S3Account

            key, secret, token = self._login
            return S3Account(self._bucket, server.geturl(), key, secret, token or "").locate(region)
        url = SplitResult(server.scheme, server.netloc, f"/{self._bucket}", "", "")
        return S3Endpoint(url, SCOPE, "x-amz-security-token", server.scheme != "https")


def is_static(bucket: str, endpoint: str, key: str, secret: str) -> bool:
    """Whether nothing besides these values decides where the bucket is, and how requests are signed."""
    server = urlsplit(endpoint)
    is_plain = server.path in ("", "/") and not (server.query or server.fragment or "@" in server.netloc)
    is_amazon = (server.hostname or "").endswith(AMAZON)
    is_special = any(part in bucket for part in SPECIAL)
    if not (endpoint and key and secret and is_plain) or is_amazon or is_special:
        return False
    has_settings = any(name.startswith(PREFIXES) for name in {*os.environ} - HARMLESS)
    return not (has_settings or any(Path(file).expanduser().exists() for file in FILES))


def _reason(status: int) -> str:
    return next((one.phrase for one in HTTPStatus if one == status), "")


def _open_account(bucket: str, endpoint: str, login: S3Login) -> StaticAccount | S3Account:
    if is_static(bucket, endpoint, login.access_key, login.secret_key):
        return StaticAccount(bucket, endpoint, login)
    from openpai_tasks.storage.objects.s3.account import S3Account

    return S3Account(bucket, endpoint, login.access_key, login.secret_key, login.token or "")


def _default_endpoint() -> str:
    """Return the server that the environment names."""
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"):
        if url := os.environ.get(name, ""):
            return check_endpoint(url, name)
    return ""


def check_endpoint(url: str, where: str) -> str:
    try:
        addresses.parse_url(url)
    except ValueError as err:
        form = "http://HOST:PORT or https://HOST:PORT"
        raise ConfigError(f"{where}: invalid url of an S3 server {url!r}: expected {form}") from err
    return url
