"""HDFS: its native protocol, at name nodes and data nodes, and WebHDFS."""

from __future__ import annotations

import contextlib
import json
import struct
from collections.abc import Callable
from typing import Any

from openpai_tasks.net.retry import RetryPolicy
from openpai_tasks.storage import protobuf as pb
from openpai_tasks.storage.crc import crc32c
from openpai_tasks.storage.hdfs import store as webhdfs_store
from openpai_tasks.storage.hdfs.digest import Shape
from openpai_tasks.storage.hdfs.native.blocks import HEADER
from openpai_tasks.storage.hdfs.native.files import FileLayout, NativeClient
from openpai_tasks.storage.hdfs.native.rpc import NameNode, NewFile
from openpai_tasks.storage.hdfs.store import HdfsStore
from openpai_tasks.storage.retry import retrying
from tests.fuzz.feeding import connections, http_answers, ok, replacing
from tests.fuzz.target import Target

NAMES, NODE = ("names", 8020), ("10.0.0.1", 9866)
CONTENT = b"0123456789" * 70
NEW = NewFile(5, 1 << 27, True)
LAYOUT = FileLayout(Shape(1 << 27, 512, "CRC32C"), 1)


def rpc(body: bytes) -> bytes:
    """Return a successful answer of a name node."""
    answer = pb.delimited(pb.message((1, 0), (2, 0), (3, 9))) + pb.delimited(body)
    return struct.pack(">i", len(answer)) + answer


def rpc_error(kind: str, text: str) -> bytes:
    answer = pb.delimited(pb.message((1, 0), (2, 1), (4, f"java.io.{kind}"), (5, text)))
    return struct.pack(">i", len(answer)) + answer


def packet(data: bytes, at: int, number: int, is_last: bool) -> bytes:
    crcs = b"".join(struct.pack(">I", crc32c(data[one : one + 512])) for one in range(0, len(data), 512))
    header = HEADER.pack(0x09, at, 0x11, number, 0x18, is_last, 0x25, len(data))
    return struct.pack(">ih", 4 + len(crcs) + len(data), len(header)) + header + crcs + data


BLOCK = pb.message(
    (1, pb.message((1, "pool"), (2, 7), (3, 1), (4, len(CONTENT)))),
    (2, 0),
    (3, pb.message((1, pb.message((1, NODE[0]), (2, "n"), (3, "id"), (4, NODE[1]), (5, 9864))))),
    (5, pb.message((1, b""), (2, b""), (3, ""), (4, ""))),
    (7, 1),
    (8, "storage"),
)
STATUS = pb.message(
    (1, 2), (2, ""), (3, 700), (4, pb.message((1, 0o644))), (7, 1794764631094), (11, 1 << 27), (13, 5)
)
FOUND = pb.message((1, pb.message((1, len(CONTENT)), (2, BLOCK), (3, 0))))
QUESTIONS: tuple[tuple[Callable[[NameNode], object], bytes], ...] = (
    (lambda names: [block.addresses for block in names.blocks("/a", 0, 9) or ()], rpc(FOUND)),
    (lambda names: names.create("/a", 1, 1 << 27, 0o644), rpc(pb.message((1, STATUS)))),
    (lambda names: names.complete("/a", NEW, None), rpc(pb.message((1, 1)))),
    (lambda names: names.status("/a"), rpc(pb.message((1, STATUS)))),
    (lambda names: names.recover("/a"), rpc(pb.message((1, 1)))),
    (lambda names: names.add_block("/a", NEW, None).addresses, rpc(pb.message((1, BLOCK)))),
    (lambda names: names.status("/a"), rpc_error("FileNotFoundException", "no\nat java")),
)
OPENED = pb.delimited(pb.message((1, 0), (4, pb.message((1, pb.message((1, 2), (2, 512))), (2, 0)))))
READ = (
    OPENED
    + packet(CONTENT[:512], 0, 0, False)
    + packet(CONTENT[512:], 512, 1, False)
    + packet(b"", 700, 2, True)
)
ACK = pb.delimited(pb.message((1, 0), (2, b"\x00"), (3, 5)))
WRITTEN = pb.delimited(pb.message((1, 0), (2, ""))) + ACK * 3


def open_native() -> contextlib.closing[NativeClient]:
    client = NativeClient("ann", 1.0)
    client.open(lambda: NAMES)
    return contextlib.closing(client)


def parse_rpc(data: bytes) -> None:
    """Ask a name node what the first byte chooses."""
    ask, _ = QUESTIONS[data[0] % len(QUESTIONS) if data else 0]
    with connections(lambda address: data[1:]), open_native() as client:
        client.ask(ask)


def parse_address(data: bytes) -> None:
    """Read a file whose block a name node describes with these bytes."""
    with connections(lambda to: data if to[1] == NAMES[1] else READ), open_native() as client:
        for _ in client.read("/a", "/a", 0, len(CONTENT)) or ():
            pass


def parse_block(data: bytes) -> None:
    """Read a block from a data node."""
    with connections(lambda to: rpc(FOUND) if to[1] == NAMES[1] else data), open_native() as client:
        for _ in client.read("/a", "/a", 0, len(CONTENT)) or ():
            pass


def parse_acks(data: bytes) -> None:
    """Write a block to a data node."""
    names = iter([rpc(pb.message((1, one))) for one in (STATUS, BLOCK, 1)])  # a new connection for each call
    with connections(lambda to: next(names, b"") if to[1] == NAMES[1] else data), open_native() as client:
        client.write("/a", "/a", [CONTENT], len(CONTENT), LAYOUT, 0o644)


FILE = {
    "blockSize": 33554432,
    "length": 7,
    "modificationTime": 1320171722771,
    "owner": "webuser",
    "pathSuffix": "a.patch",
    "permission": "644",
    "replication": 1,
    "type": "FILE",
    "fileId": 16387,
}
DEFAULTS = {
    "blockSize": 134217728,
    "bytesPerChecksum": 512,
    "checksumType": 2,
    "encryptDataTransfer": False,
    "replication": 3,
}
WEB: dict[str, Any] = {
    "GETFILESTATUS": {"FileStatus": FILE},
    "LISTSTATUS": {"FileStatuses": {"FileStatus": [FILE]}},
    "LISTSTATUS_BATCH": {
        "DirectoryListing": {
            "partialListing": {"FileStatuses": {"FileStatus": [FILE, {**FILE, "pathSuffix": "b"}]}},
            "remainingEntries": 0,
        }
    },
    "GETSERVERDEFAULTS": {"FsServerDefaults": DEFAULTS},
    "GETFILECHECKSUM": {
        "FileChecksum": {"algorithm": "MD5-of-1MD5-of-512CRC32C", "bytes": "ab" * 28, "length": 28}
    },
    "MKDIRS": {"boolean": True},
    "DELETE": {"boolean": True},
    "GET_BLOCK_LOCATIONS": {"LocatedBlocks": {"isUnderConstruction": False}},
    "CREATE": "",
    "OPEN": "content",
}
REMOTE = {
    "RemoteException": {"exception": "IOException", "javaClassName": "java.io.IOException", "message": "no"}
}
DATA = ("GETFILECHECKSUM", "CREATE", "OPEN")
USES: dict[str, Callable[[HdfsStore], object]] = {
    "GETFILESTATUS": lambda store: (store.stat("/a"), store.identities("/a"), store.make_executable("/a")),
    "LISTSTATUS_BATCH": lambda store: list(store.list("/")),
    "GETSERVERDEFAULTS": lambda store: (store.hasher(), store.read_checked("/a", 5)),
    "GETFILECHECKSUM": lambda store: store.digest("/a"),
    "MKDIRS": lambda store: store.make_folder("/d"),
    "DELETE": lambda store: store.remove("/d", recursive=True),
    "GET_BLOCK_LOCATIONS": lambda store: store.unfinished_size("/a"),
    "CREATE": lambda store: store.write("/n", [b"x"], 1),
    "OPEN": lambda store: list(store.read("/a")),
}
STATUSES = (200, 200, 200, 201, 302, 403, 404, 500)


def parse_web(data: bytes) -> None:
    """Use WebHDFS; the first two bytes choose the operation and the status of its answer."""
    op = list(USES)[data[0] % len(USES) if data else 0]
    status = STATUSES[data[1] % len(STATUSES)] if len(data) > 1 else 200
    status = 201 if op == "CREATE" and status == 200 else status

    def answer(method: str, target: str) -> bytes:
        asked, is_data = target.rpartition("op=")[2].partition("&")[0], target.startswith("/data")
        if asked == op and (op not in DATA or is_data):
            return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (
                status,
                max(0, len(data) - 2),
                data[2:],
            )
        if asked in DATA and not is_data:
            return (
                b"HTTP/1.1 307 X\r\nLocation: http://h/data?op=%s\r\nContent-Length: 0\r\n\r\n"
                % asked.encode()
            )
        return ok(_bytes(WEB.get(asked, "")))

    store = HdfsStore(["127.0.0.1:9870"], "ann", retries=RetryPolicy(1, 0.0), timeout=1)
    with http_answers(answer), contextlib.closing(store), replacing(webhdfs_store, "RECOVERY", 0.0):
        retrying(lambda: USES[op](store), wait=lambda seconds: True)


def parse_redirect(data: bytes) -> None:
    """Read the redirect of a name node to a data node."""
    location = data.replace(b"\r", b"").replace(b"\n", b"")
    head = b"HTTP/1.1 307 X\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n" % location
    store = HdfsStore(["127.0.0.1:9870"], "ann", retries=RetryPolicy(1, 0.0), timeout=1)
    defaults = ok(_bytes(WEB["GETSERVERDEFAULTS"]))
    answers = {"GETSERVERDEFAULTS": defaults, "OPEN": head}

    def answer(method: str, target: str) -> bytes:
        asked = target.rpartition("op=")[2].partition("&")[0]
        return (
            answers.get(asked, ok(b""))
            if target.startswith("/webhdfs/v1/a?") or asked in answers
            else ok(b"")
        )

    with http_answers(answer), connections(lambda to: b""), contextlib.closing(store):
        for _ in retrying(lambda: store.read("/a"), wait=lambda seconds: True):
            pass
        store.read_checked("/a", 5)


def _bytes(body: Any) -> bytes:
    return body.encode() if isinstance(body, str) else json.dumps(body).encode()


REDIRECT = b"http://d:9864/webhdfs/v1/a?op=READ&namenoderpcaddress=names:8020&offset=0"
TARGETS = (
    Target("hdfs-rpc", parse_rpc, tuple(bytes([at]) + answer for at, (_, answer) in enumerate(QUESTIONS))),
    Target("hdfs-located", parse_address, (rpc(FOUND),)),
    Target("hdfs-block", parse_block, (READ,)),
    Target("hdfs-acks", parse_acks, (WRITTEN,)),
    Target(
        "webhdfs",
        parse_web,
        tuple(bytes([at, 0]) + _bytes(WEB[op]) for at, op in enumerate(USES)),
    ),
    Target("webhdfs-redirect", parse_redirect, (REDIRECT,)),
)
