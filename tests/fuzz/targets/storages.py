"""Listings and answers of object storages, and names in listings of shares and containers."""

from __future__ import annotations

import struct
from functools import cache
from typing import Any, cast

from openpai_tasks.net.ssh_address import SshAddress
from openpai_tasks.storage.location import open_storage
from openpai_tasks.storage.objects.s3 import answers
from openpai_tasks.storage.retry import retrying
from openpai_tasks.storage.sftp.login_node import LoginNodeStore
from openpai_tasks.storage.smb import files as smb
from openpai_tasks.storage.smb import names
from openpai_tasks.storage.store import StorageSpec, Store
from tests.fuzz.feeding import FedSocket, http_answers, ok
from tests.fuzz.target import Target

LISTING = b"""<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>data</Name><Prefix></Prefix>
<KeyCount>1</KeyCount><MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated>
<Contents><Key>a.txt</Key><LastModified>2024-01-01T00:00:00.000Z</LastModified>
<ETag>&quot;d41d8cd98f00b204e9800998ecf8427e&quot;</ETag><Size>5</Size></Contents>
<CommonPrefixes><Prefix>d/</Prefix></CommonPrefixes></ListBucketResult>"""
ERROR = b"<Error><Code>NoSuchKey</Code><Message>no</Message><Key>a</Key><Region>x</Region></Error>"
HEAD = (
    b'HTTP/1.1 200 OK\r\nETag: "d41d8cd98f00b204e9800998ecf8427e"\r\nContent-Length: 5\r\n'
    b"Last-Modified: Mon, 01 Jan 2024 00:00:00 GMT\r\nx-amz-meta-mtime: 1700000000.5\r\n\r\nhello"
)
PART = (
    b'HTTP/1.1 206 Partial\r\nETag: "d41d8cd98f00b204e9800998ecf8427e-2"\r\nContent-Length: 5\r\n'
    b"Content-Range: bytes 0-4/10\r\nx-amz-meta-part-size: 5\r\n"
    b"Last-Modified: Mon, 01 Jan 2024 00:00:00 GMT\r\n\r\nhello"
)


@cache
def bucket() -> Store:
    keys = {
        "accessKeyId": "AK",
        "secretAccessKey": "theirs",
        "bucket": "data",
        "endpoint": "http://127.0.0.1:9",
    }
    return open_storage(StorageSpec("lab", "objects", "s3", keys))


def parse_listing(data: bytes) -> None:
    with http_answers(lambda method, target: ok(data, b"application/xml")):
        retrying(lambda: list(bucket().list("/")), wait=lambda seconds: True)


def parse_object(data: bytes) -> None:
    """Read the answer about an object, with its headers, and then its content."""

    def answer(method: str, target: str) -> bytes:
        return data if method in ("GET", "HEAD") else ok(b"")

    def read() -> None:
        bucket().stat("/a")
        for _ in bucket().read("/a", 0, 5):
            pass

    with http_answers(answer):
        retrying(read, wait=lambda seconds: True)


def parse_error(data: bytes) -> None:
    fields = answers.error(data)
    assert all(isinstance(value, str) for value in fields.values())


def parse_smb_name(data: bytes) -> None:
    """Read a name of a share's listing; a name that is accepted can be sent back."""
    name = names.decode(data, "/share")
    assert "/" not in name and "\0" not in name and name not in ("", ".", "..")


def parse_smb_listing(data: bytes) -> None:
    """Read a batch of a share's listing; its entries cannot be larger than the batch."""
    found = list(smb.entries(data, "/share"))
    assert sum(len(entry.name) for entry in found) <= len(data)
    assert all(entry.size >= 0 for entry in found)


def smb_row(name: str, size: int, flags: int, following: int) -> bytes:
    raw = name.encode("utf-16-le")
    row = struct.pack(
        "<IIqqqqqqIII", following, 0, 0, 0, 133_000_000_000_000_000, 0, size, size, flags, len(raw), 0
    )
    return (row + raw).ljust(following, b"\0")


class Ssh:
    """Stands for the user's ssh: what it starts answers with these bytes."""

    def __init__(self, data: bytes) -> None:
        self._data, self._kept = data, list[FedSocket]()
        self.address = SshAddress("node")

    def open(self, check: bool = False) -> bool:
        return True

    is_open = open

    def start(self, *flags: str, command: str = "") -> FedSocket:
        self._kept.append(FedSocket(self._data))
        return self._kept[-1]


def parse_sftp(data: bytes) -> None:
    """List a folder of a login node over SFTP."""
    store = LoginNodeStore(cast(Any, Ssh(data)), "/home/ann", "files")
    retrying(lambda: list(store.list("/")), wait=lambda seconds: True)


def packet(kind: int, number: int, *parts: bytes) -> bytes:
    body = struct.pack(">BI", kind, number) + b"".join(parts)
    return struct.pack(">I", len(body)) + body


def string(text: bytes) -> bytes:
    return struct.pack(">I", len(text)) + text


FOLDER = struct.pack(">II", 4, 0o40755)
FILE = struct.pack(">IQIIIII", 15, 5, 1000, 1000, 0o100644, 1700000000, 1700000000)
SFTP = (
    struct.pack(">IBI", 5, 2, 3)
    + packet(105, 1, FOLDER)
    + packet(102, 2, string(b"handle"))
    + packet(
        104,
        3,
        struct.pack(">I", 2),
        string(b"a.txt"),
        string(b"-rw"),
        FILE,
        string(b"d"),
        string(b"d"),
        FOLDER,
    )
    + packet(101, 4, struct.pack(">I", 1), string(b"end"), string(b""))
    + packet(101, 5, struct.pack(">I", 0), string(b"ok"), string(b""))
)
SMB = smb_row(".", 0, 0x10, 72) + smb_row("a.txt", 5, 0x20, 80) + smb_row("d", 0, 0x10, 0)
TARGETS = (
    Target("s3-listing", parse_listing, (LISTING,)),
    Target("s3-object", parse_object, (HEAD, PART)),
    Target("s3-error", parse_error, (ERROR,)),
    Target("sftp-listing", parse_sftp, (SFTP,)),
    Target("smb-listing", parse_smb_listing, (SMB,)),
    Target("smb-name", parse_smb_name, ("a b.txt".encode("utf-16-le"), "a\uf022b\uf028".encode("utf-16-le"))),
)
