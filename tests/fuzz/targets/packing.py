"""Packed sets that others made: shards, indexes and Hadoop archives, unpacked like ``storage.unpack``."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import struct
import tarfile
from pathlib import Path

from openpai_tasks.sdk.files.packing import unpack
from openpai_tasks.storage.copying.copy import Rules
from openpai_tasks.storage.copying.progress import Watch
from openpai_tasks.storage.crc import crc32c
from openpai_tasks.storage.job_files.archive import read_archive
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.location import Location
from openpai_tasks.storage.packing import example, sequencefile, tfrecord
from openpai_tasks.storage.packing.target import WHAT, inspect_target
from openpai_tasks.storage.parts import PART as PART_PREFIX
from tests.fuzz.scratch import empty_folder
from tests.fuzz.target import Target

PART = b"the content of all files of a set, one after the other".ljust(512)


def _unpack(files: dict[str, bytes], source: str) -> object:
    """Unpack a set of these files; return the names of what was written."""
    folder, target = empty_folder("packed"), empty_folder("unpacked")
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    return unpack(_place(folder / source), _place(target), Rules(workers=1), Watch())


def _place(path: Path) -> Location:
    return Location(LocalStore(), str(path), str(path))


def _tar(data: bytes) -> object:
    return _unpack({"set.tar": checksummed(data)}, "set.tar")


def _tfrecord(data: bytes) -> object:
    return _unpack({"set.tfrecord": data}, "set.tfrecord")


def _example(data: bytes) -> object:
    """Read records with correct checksums; each is preceded by its length in two bytes."""
    shard, rest = bytearray(), data
    while len(rest) > 2:
        size = int.from_bytes(rest[:2], "big")
        record, rest = rest[2 : 2 + size], rest[2 + size :]
        shard += _record(record)
    return _unpack({"set.tfrecord": bytes(shard)}, "set.tfrecord")


def _record(content: bytes) -> bytes:
    length = struct.pack("<Q", len(content))
    return length + _crc(length) + content + _crc(content)


def _crc(data: bytes) -> bytes:
    return struct.pack("<I", tfrecord.masked(crc32c(data)))


def _sequence(data: bytes) -> object:
    return _unpack({"set.seq": data}, "set.seq")


def _har(data: bytes) -> object:
    master, _, index = data.partition(b"\n\n")
    files = {"set.har/_masterindex": master, "set.har/_index": index, "set.har/part-0": PART}
    return _unpack(files, "set.har")


def _index(data: bytes) -> object:
    return _unpack({"set/index.jsonl": data, "set/set-000000.tar": PART}, "set")


def _note(data: bytes) -> object:
    """Read the note of a pack that was killed, and the first line of the index beside it."""
    note, _, index = data.partition(b"\n\n")
    folder = empty_folder("packed")
    (folder / f"{PART_PREFIX}0000000000000000").write_bytes(note)
    if index:
        (folder / "index.jsonl").write_bytes(index)
    return inspect_target(_place(folder), replace=True)


def _archive(data: bytes) -> object:
    """Read an archive of sources; the input is the tar file in it, or a compressed one."""
    packed = data if data.startswith(b"\x1f\x8b") else gzip.compress(checksummed(data), 1, mtime=0)
    return read_archive([packed], hashlib.sha256(packed).hexdigest())


def checksummed(data: bytes) -> bytes:
    """Correct the checksums of the headers in a tar file, as a fuzzer would never guess them."""
    blocks = [data[at : at + 512] for at in range(0, len(data), 512)]
    return b"".join(
        _checksummed(one) if one[257:262] == b"ustar" and len(one) == 512 else one for one in blocks
    )


def _checksummed(header: bytes) -> bytes:
    total = sum(header[:148]) + 8 * ord(" ") + sum(header[156:])
    return header[:148] + b"%06o\0 " % total + header[156:]


def _tar_seed(form: int, *members: tarfile.TarInfo) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=form) as archive:
        for member in members:
            archive.addfile(member, io.BytesIO(b"x" * member.size))
    content = stream.getvalue().rstrip(b"\0")
    return content + bytes(-len(content) % 512 + 1024)


def _member(
    name: str, size: int = 5, kind: bytes = tarfile.REGTYPE, pax: dict[str, str] | None = None
) -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.size, found.type, found.mtime, found.pax_headers = size, kind, 1_700_000_000, pax or {}
    return found


TARS = (
    _tar_seed(tarfile.USTAR_FORMAT, _member("a/b.txt"), _member("dir", 0, tarfile.DIRTYPE)),
    _tar_seed(
        tarfile.PAX_FORMAT, _member("a.txt", pax={"mtime": "1700000000.5", "path": "b.txt", "size": "5"})
    ),
    _tar_seed(tarfile.GNU_FORMAT, _member("n" * 120), _member("link", 0, tarfile.SYMTYPE)),
)
_BODY = (
    example.head({"name": b"a/b.txt", "mode": 0o644, "mtime_ms": 1_700_000_000_000}, "content", 5) + b"hello"
)
_SEQ = sequencefile.SequenceEncoder([])
_KEY = sequencefile.text("a/b.txt")
_SEQUENCE = (
    _SEQ.head()
    + struct.pack(">ii", len(_KEY) + 9, len(_KEY))
    + _KEY
    + struct.pack(">i", 5)
    + b"hello"
    + sequencefile.ESCAPE
    + _SEQ.head()[-16:]
)
_HEAD = {
    "what": "openpai-tasks packed files",
    "version": 1,
    "format": "tar",
    "files": 2,
    "folders": 1,
    "bytes": 8,
    "shards": [{"name": "set-000000.tar", "size": len(PART)}],
}
_ROWS = (["d/", 493], ["d/a", 0, 0, 5, 420, 1_700_000_000_000, None], ["b", 0, 9, 3, 420, 0, None])
INDEX = b"".join(json.dumps(row).encode() + b"\n" for row in (_HEAD, *_ROWS))
NOTE = json.dumps({"what": WHAT, "begins": "set-", "replaces": ["old-000000.tar"]}).encode()
HAR = (
    b"3 \n0 2147483647 0 200 \n\n\n"
    b"%2F dir 1700000000000+493+nobody+nogroup 0 0 a d \n"
    b"%2Fa file part-0 0 5 1700000000000+420+nobody+nogroup \n%2Fd dir none 0 0 b \n"
    b"%2Fd%2Fb file part-0 5 3 1700000000000+420+nobody+nogroup \n"
)

TARGETS = (
    Target("tar-shard", _tar, TARS[:2]),
    Target("tfrecord", _tfrecord, (_record(_BODY) + _record(b"other"),)),
    Target("tfrecord-example", _example, (len(_BODY).to_bytes(2, "big") + _BODY,)),
    Target("sequencefile", _sequence, (_SEQUENCE,)),
    Target("har", _har, (HAR,)),
    Target("packed-index", _index, (INDEX,)),
    Target("pack-note", _note, (NOTE, NOTE + b"\n\n" + INDEX)),
    Target("source-archive", _archive, (*TARS, gzip.compress(TARS[0], mtime=0))),
)
