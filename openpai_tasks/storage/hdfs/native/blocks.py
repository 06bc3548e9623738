"""Read and write blocks at data nodes; every 512 bytes are sent with the CRC that HDFS stores."""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterable, Iterator

from openpai_tasks.storage import protobuf as pb
from openpai_tasks.storage.hdfs.digest import CRC_NAMES, CRCS, SUMS, Shape
from openpai_tasks.storage.hdfs.native.crc_combine import fits
from openpai_tasks.storage.hdfs.native.rpc import Block
from openpai_tasks.storage.hdfs.native.stream import Stream, Streams
from openpai_tasks.storage.hdfs.ranges import read_ahead

VERSION, WRITE, READ = 28, 80, 81
PACKET = 1 << 20  # Java sends 64 KiB; fewer and larger packets are cheaper for an interpreter
WINDOW = 16  # packets in transit that are not acknowledged yet
HEADER = struct.Struct(
    "<BqBqBBBi"
)  # of a packet: offset, number, whether it is the last, size of the data; with their tags
FRAME = struct.Struct(">ih")  # size of the packet without this header, and size of the header
PACKET_LIMIT = 16 << 20
FEW = 1 << 15  # bytes; below this, combining CRCs takes longer than computing each one
SETTING_UP = 6  # a new block
ALL_RIGHT, SUMS_ARE_RIGHT = 0, 6
CRC_NUMBERS = {name: code for code, name in CRC_NAMES.items()}


class BlockError(Exception):
    """Raised when a data node refuses a request, or when bytes do not match their CRC."""


class DataNodes:
    """Reads and writes blocks; threads share its connections."""

    def __init__(self, client: str, timeout: float) -> None:
        self._client, self._streams = client, Streams(timeout)

    def close(self) -> None:
        self._streams.close()

    def read(self, block: Block, address: tuple[str, int], offset: int, length: int) -> Iterator[bytes]:
        """Yield bytes of the block, each piece verified first."""
        asked = pb.message((1, _header(block, block.size, self._client)), (2, offset), (3, length))
        with self._streams.borrow(address) as stream:
            stream.send(struct.pack(">hb", VERSION, READ) + pb.delimited(asked))
            answered = pb.fields(pb.inner(_answer(stream), 4))
            crc, chunk = _checksum_type(pb.fields(pb.inner(answered, 1)))
            skip, left = offset - pb.number(answered, 2), length
            if not 0 <= skip < chunk:
                raise BlockError("a block that begins at another chunk")
            for piece in _packets(stream, crc, chunk):
                piece, skip = (piece[skip:], 0) if skip else (piece, 0)
                piece = piece[:left] if len(piece) > left else piece  # the node sends whole chunks
                left -= len(piece)
                yield piece
            if left:
                raise BlockError(f"{left} bytes of a block are missing")
            stream.send(pb.delimited(pb.message((1, SUMS_ARE_RIGHT))))

    def write(self, block: Block, shape: Shape, room: int, feed: PieceReader, is_large: bool = False) -> int:
        """Write the block from the feed; return its size once every data node has confirmed it.

        For a large file, the CRCs of the next packets are computed while one is sent.
        """
        stream = self._streams.new(block.addresses[0])
        try:
            stream.send(self._write_request(block, shape))
            _answer(stream)
            content = _with_checksums(feed, shape, room)
            return _send(stream, read_ahead(content) if is_large else content)
        finally:
            stream.close()

    def _write_request(self, block: Block, shape: Shape) -> bytes:
        types = block.storage_types or (1,) * len(block.nodes)  # 1: a disk
        storages = block.storages or (None,) * len(block.nodes)
        asked = pb.message(
            (1, _header(block, 0, self._client)),
            *((2, node) for node in block.nodes[1:]),  # the first node forwards it to these
            (4, SETTING_UP),
            (5, len(block.nodes)),
            (6, 0),
            (7, 0),
            (8, block.stamp),
            (9, pb.message((1, CRC_NUMBERS[shape.crc]), (2, shape.chunk))),
            (11, types[0]),
            *((12, kind) for kind in types[1:]),
            (16, storages[0]),
            *((17, name) for name in storages[1:]),
        )
        return struct.pack(">hb", VERSION, WRITE) + pb.delimited(asked)


class PieceReader:
    """Pieces of any size, read in the sizes needed; ``began`` is set at the first read."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces, self._rest, self.began, self._ended = iter(pieces), b"", False, False

    def read(self, size: int) -> bytes:
        """Return ``size`` bytes, fewer only at the end; a piece of exactly that size is not copied."""
        self.began = True
        found, count = [self._rest], len(self._rest)
        while count < size and not self._ended:
            piece = next(self._pieces, None)
            self._ended = piece is None
            found.append(piece or b"")
            count += len(found[-1])
        found = [piece for piece in found if piece]
        data = found[0] if len(found) == 1 else b"".join(found)
        self._rest = data[size:]
        return data[:size]

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left; reads the next piece."""
        self.began = True
        while not self._rest and not self._ended:
            piece = next(self._pieces, None)
            self._rest, self._ended = piece or b"", piece is None
        return not self._rest


def _with_checksums(feed: PieceReader, shape: Shape, room: int) -> Generator[tuple[bytes, bytes], None, None]:
    """Yield the CRCs and the data of each packet of a block."""
    sums = SUMS[shape.crc]
    while data := feed.read(min(PACKET, room)):
        room -= len(data)
        yield sums(data, shape.chunk), data


def _send(stream: Stream, content: Iterable[tuple[bytes, bytes]]) -> int:
    sent = packets = answered = 0
    for crcs, data in content:
        stream.send(_frame(len(crcs) + len(data), sent, packets, False, len(data)) + crcs, data)
        sent, packets = sent + len(data), packets + 1
        if packets - answered > WINDOW:
            answered = _wait_for_ack(stream, answered)
    stream.send(_frame(0, sent, packets, True, 0))
    while answered <= packets:
        answered = _wait_for_ack(stream, answered)
    return sent


def _frame(size: int, offset: int, packet: int, is_last: bool, length: int) -> bytes:
    header = HEADER.pack(0x09, offset, 0x11, packet, 0x18, is_last, 0x25, length)
    return FRAME.pack(4 + size, HEADER.size) + header


def _wait_for_ack(stream: Stream, packet: int) -> int:
    """Wait until the data nodes confirm a packet; return the number of the next one."""
    answered = pb.fields(pb.read_message(stream.exactly))
    if any(_statuses(answered)):
        raise BlockError(f"a data node could not store packet {packet}")
    return packet + 1


def _statuses(answered: pb.Fields) -> Iterator[int]:
    for reply in answered.get(2, []):
        yield from reply if isinstance(reply, bytes) else [reply]  # packed, or one at a time


def _packets(stream: Stream, crc: str, chunk: int) -> Iterator[bytes]:
    """Yield the data of packets; packets that arrived together are verified together."""
    is_last = False
    while not is_last:
        crcs: list[memoryview] = []
        pieces: list[memoryview] = []
        while not is_last and (not pieces or _is_whole(stream)):
            their_crcs, piece, is_last = _packet(stream)
            crcs.append(their_crcs)
            pieces.append(piece)
            if len(piece) % chunk:
                break  # the CRCs of what follows start again
        data = b"".join(pieces)
        if not _is_intact(data, b"".join(crcs), crc, chunk):
            raise BlockError("bytes that do not fit their checksum")
        if data:
            yield data


def _is_intact(data: bytes, crcs: bytes, crc: str, chunk: int) -> bool:
    """Check bytes against their CRCs, all at once if possible."""
    if len(data) > FEW and chunk & (chunk - 1) == 0:
        return fits(data, crcs, chunk, crc, CRCS[crc])
    return SUMS[crc](data, chunk) == crcs


def _packet(stream: Stream) -> tuple[memoryview, memoryview, bool]:
    """Return the next packet's CRCs, its data, and whether it is the block's last one."""
    while not _is_whole(stream):
        stream.wait(max(FRAME.size, _size(stream)))
    whole = stream.view(_size(stream))
    header = FRAME.unpack_from(whole)[1]
    *_, is_last, _tag, length = HEADER.unpack_from(whole, FRAME.size)
    start, end = FRAME.size + header, len(whole) - length
    return whole[start:end], whole[end:], bool(is_last)


def _is_whole(stream: Stream) -> bool:
    return stream.available >= FRAME.size and stream.available >= _size(stream)


def _size(stream: Stream) -> int:
    """Return the total size of the next packet; 0 while unknown."""
    if stream.available < FRAME.size:
        return 0
    size, header = FRAME.unpack(stream.peek(FRAME.size))
    if not 4 <= size <= PACKET_LIMIT or header < HEADER.size:
        raise BlockError("an invalid packet")
    return FRAME.size + int(header) + int(size) - 4


def _checksum_type(checksum: pb.Fields) -> tuple[str, int]:
    crc, chunk = CRC_NAMES.get(pb.number(checksum, 1)), pb.number(checksum, 2)
    if crc is None or not 0 < chunk <= PACKET_LIMIT:
        raise BlockError("a block without checksums")
    return crc, chunk


def _header(block: Block, size: int, client: str) -> bytes:
    return pb.message((1, pb.message((1, block.wire_id(size)), (2, block.token))), (2, client))


def _answer(stream: Stream) -> pb.Fields:
    answered = pb.fields(pb.read_message(stream.exactly))
    if pb.number(answered, 1) != ALL_RIGHT:
        raise BlockError(pb.text(answered, 5) or f"status {pb.number(answered, 1)} from a data node")
    return answered
