"""Hadoop's native protocol against a real HDFS: what goes directly to data nodes, and what must not."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib

import pytest

from openpai_tasks.errors import Denied
from openpai_tasks.net.retry import RetryPolicy
from openpai_tasks.storage.copying.copy import copy
from openpai_tasks.storage.copying.plan import plan_copy
from openpai_tasks.storage.copying.progress import Watch
from openpai_tasks.storage.copying.transfer import put, transfer
from openpai_tasks.storage.hdfs.digest import SUMS
from openpai_tasks.storage.hdfs.native import blocks
from openpai_tasks.storage.hdfs.native.crc_combine import combine
from openpai_tasks.storage.hdfs.native.rpc import Block, NameNode, RpcError
from openpai_tasks.storage.hdfs.store import HdfsStore
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.location import Location
from openpai_tasks.storage.protobuf import (
    InvalidMessage,
    delimited,
    fields,
    inner,
    message,
    number,
    take_message,
)
from openpai_tasks.storage.store import fingerprint
from tests.memory import measurable
from tests.storage.gateway import Gateway

MEGABYTE = 1 << 20
QUICK = RetryPolicy(3, 0.02)


@pytest.fixture
def store(hdfs, request):
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    store = HdfsStore([hdfs.name_node], "root", root=f"/{name}", retries=QUICK)
    store.make_folder("/")
    yield store
    store.close()


class HttpRecorder(HdfsStore):
    """A store that records which file contents it transfers over HTTP."""

    def __init__(self, *args, **options) -> None:
        super().__init__(*args, **options)
        self.by_http: list[str] = []

    def read(self, path, offset=0, length=None):
        self.by_http.append("read")
        return super().read(path, offset, length)

    def write(self, path, pieces, size=None):
        self.by_http.append("write")
        super().write(path, pieces, size)

    def digest(self, path):
        self.by_http.append("digest")
        return super().digest(path)


@pytest.mark.parametrize("size", [0, 1, 511, 512, 513, 70_000, 3 * MEGABYTE + 17, 9 * MEGABYTE])
def test_files_are_transferred_directly_to_and_from_data_nodes(hdfs, store, tmp_path, size):
    content = os.urandom(size)
    (tmp_path / "f").write_bytes(content)
    there, here = HttpRecorder([hdfs.name_node], "root", root=store.root), LocalStore()
    entry = here.stat(str(tmp_path / "f"))
    assert transfer(here, entry, there, "/f", Watch()) == size
    assert transfer(there, there.stat("/f"), here, str(tmp_path / "back"), Watch()) == size
    assert (tmp_path / "back").read_bytes() == content
    assert there.by_http == []
    assert b"".join(store.read("/f")) == content
    assert store.digest("/f") == fingerprint(store.hasher(), [content])
    assert store.stat("/f").mtime_ms == entry.mtime_ms
    there.close()


def use_small_blocks(store):
    store._new_layout()
    store._layout = type(store._layout)(type(store._layout.shape)(MEGABYTE), 1)


def test_a_file_of_many_blocks_is_written_and_read_in_order(hdfs, store):
    content = os.urandom(3 * MEGABYTE + 99)
    use_small_blocks(store)
    assert store.write_checked("/f", iter([content[:700], content[700:]]), len(content))
    assert b"".join(store.read_checked("/f", len(content))) == content == b"".join(store.read("/f"))
    assert store.digest("/f").kind.startswith("MD5-of-2048MD5")
    assert len(store._native.ask(lambda names: names.blocks(f"{store.root}/f", 0, 1 << 40))) == 4


def test_a_block_is_added_again_if_no_data_node_has_reported_the_last_one(store, monkeypatch):
    add_block, refusals = NameNode.add_block, [RpcError("NotReplicatedYetException", "not yet")] * 2

    def refuse_at_first(names, path, file, last):
        if last and refusals:
            raise refusals.pop()
        return add_block(names, path, file, last)

    monkeypatch.setattr(NameNode, "add_block", refuse_at_first)
    use_small_blocks(store)
    content = os.urandom(2 * MEGABYTE)
    assert store.write_checked("/f", iter([content]), len(content)) and not refusals
    assert b"".join(store.read("/f")) == content


def test_range_may_begin_and_end_inside_chunks(store):
    content = os.urandom(200_000)
    put(store, "/f", lambda: [content])
    for offset, length in ((0, 1), (511, 2), (1000, 70_000), (199_999, 1)):
        found = store._native.read(f"{store.root}/f", "/f", offset, length)
        assert b"".join(found) == content[offset : offset + length]


def test_a_piece_larger_than_a_packet_is_written_whole(store):
    data = os.urandom(blocks.PACKET + 5000)
    assert put(store, "/file", lambda: iter([data])) == len(data)
    assert b"".join(store.read("/file")) == data


def test_many_one_byte_pieces_are_written_as_one_file(store):
    assert put(store, "/f", lambda: (bytes([number % 256]) for number in range(5000))) == 5000
    assert b"".join(store.read("/f")) == bytes(number % 256 for number in range(5000))


@pytest.mark.parametrize("sizes", [[3 << 20], [700_000] * 4, [0, blocks.PACKET + 1, 0, 5], []])
def test_nothing_of_a_piece_is_lost_when_the_end_is_looked_for(sizes):
    """The end is looked for before the first block, if the size is unknown, and after each block."""
    pieces = [os.urandom(size) for size in sizes]
    feed, found = blocks.PieceReader(pieces), b""
    while not feed.is_empty:
        found += feed.read(blocks.PACKET) + feed.read(1000)
    assert found == b"".join(pieces)


@pytest.mark.parametrize("way", ["https", "gateway"])
def test_native_protocol_does_not_bypass_https_or_a_gateway(hdfs, store, tmp_path, way):
    """A user who asked for HTTPS gets no plain connection, and a gateway is not bypassed."""
    (tmp_path / "f").write_bytes(b"x" * 1000)
    with Gateway(hdfs.name_node) as gateway:
        there = HdfsStore([gateway.host], "root", root=store.root, retries=QUICK)
        if way == "https":
            there._scheme = "https"
        transfer(LocalStore(), LocalStore().stat(str(tmp_path / "f")), there, "/f", Watch())
        assert not there._native.is_open and gateway.count("CREATE") >= 2
        there.close()


def test_refusal_is_reported_as_by_webhdfs(hdfs, store, tmp_path):
    (tmp_path / "f").write_bytes(b"x" * 1000)
    put(store, "/secret", lambda: [b"s"])
    store._names.set_mode(f"{store.root}/secret", 0o600)
    eve = HdfsStore([hdfs.name_node], "eve", root=store.root, retries=QUICK)
    with pytest.raises(Denied, match="Permission denied: user=eve"):
        put(eve, "/f", lambda: [b"x"])
    copied = copy(plan_copy([Location(eve, "/secret", "")], Location(LocalStore(), str(tmp_path / "to"), "")))
    assert "Permission denied: user=eve" in copied.failed[0].reason and not (tmp_path / "to").exists()
    eve.close()


@pytest.mark.parametrize("field, value", [(2, (1 << 64) - 5), (5, message((1, b"token")))])
def test_stripes_and_blocks_behind_tokens_are_left_to_webhdfs(field, value):
    name = message((1, "pool"), (2, value if field == 2 else 7), (3, 1), (4, 10))
    node = message((1, message((1, "127.0.0.1"), (4, 9866))))
    token = value if field == 5 else message((1, b""))
    assert not Block.parse(message((1, name), (2, 0), (3, node), (5, token))).is_plain
    assert Block.parse(message((1, message((2, 7))), (2, 0), (3, node), (5, message((1, b""))))).is_plain


def test_protobuf_message_is_read_back_unchanged():
    data = message((1, "a"), (2, 300), (3, None), (4, -1), (5, message((1, 7))))
    found = fields(data)
    assert (inner(found, 1), number(found, 2), number(found, 4)) == (b"a", 300, (1 << 64) - 1)
    assert number(fields(inner(found, 5)), 1) == 7 and 3 not in found
    assert take_message(delimited(data) + b"rest") == (data, len(data) + len(delimited(data)) - len(data))


def test_bytes_that_are_not_a_message_are_an_error():
    for data in (b"\x80", b"\x0a\x05ab", b"\x0b", b"\x09\x01", b"\xff" * 11):
        with pytest.raises(InvalidMessage):
            fields(data)


class Received:
    """A stream on which all bytes have arrived."""

    def __init__(self, data):
        self._data = data

    @property
    def available(self):
        return len(self._data)

    def peek(self, size):
        return self._data[:size]

    def view(self, size):
        found, self._data = memoryview(self._data[:size]), self._data[size:]
        return found


@pytest.mark.parametrize("crc", ["CRC32", "CRC32C"])
def test_a_packet_is_accepted_with_its_own_crcs_only(crc):
    def received(data, crcs):
        packet = blocks._frame(len(crcs) + len(data), 0, 0, True, len(data)) + crcs + data
        return b"".join(blocks._packets(Received(packet), crc, 512))

    for size in (1, 511, 512, 513, 1024, 1536, 99_999, MEGABYTE):
        data = os.urandom(size)
        crcs = SUMS[crc](data, 512)
        assert received(data, crcs) == data
        damaged = [data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :] for at in {0, size // 2, size - 1}]
        swapped = [crcs[4:8] + crcs[:4] + crcs[8:]] if size >= 1024 else []
        for bad in [*((one, crcs) for one in damaged), *((data, one) for one in [*swapped, crcs + b"0000"])]:
            with pytest.raises(blocks.BlockError, match="do not fit their checksum"):
                received(*bad)


def test_combined_crc_equals_the_crc_of_the_whole_data():
    data = bytes(range(256)) * 14
    assert combine(SUMS["CRC32"](data, 512), 512, "CRC32") == zlib.crc32(data)


@measurable
def test_a_large_copy_takes_little_memory(hdfs, store, tmp_path):
    """Runs in a separate process and reads its peak memory from the system."""
    size = 160 * MEGABYTE
    with open(tmp_path / "f", "wb") as file:
        file.truncate(size)
    code = (
        "import sys\n"
        "from openpai_tasks.storage.local.store import LocalStore\n"
        "from openpai_tasks.storage.copying.progress import Watch\n"
        "from openpai_tasks.storage.copying.transfer import transfer\n"
        "from openpai_tasks.storage.hdfs.store import HdfsStore\n"
        f"here, there = LocalStore(), HdfsStore([{hdfs.name_node!r}], 'root', root={store.root!r})\n"
        f"transfer(here, here.stat('{tmp_path}/f'), there, '/f', Watch())\n"
        f"transfer(there, there.stat('/f'), here, '{tmp_path}/back', Watch())\n"
        "assert there._native.is_open\n"
        "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 100 << 10  # KiB
    assert (tmp_path / "back").stat().st_size == size
