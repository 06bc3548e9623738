"""Hadoop archives: a folder ``NAME.har`` with parts, in which files follow each other, and two indexes.

A line of ``_index`` is ``NAME file PART OFFSET SIZE FACTS`` or ``NAME dir FACTS 0 0 CHILD…``, in the order of
the hashes of the names; words are encoded as in a URL, and FACTS are the time in ms, the mode, the owner and
the group. ``_masterindex`` has the version and, for each 1,000 lines, their hashes and where they are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO
from urllib.parse import quote_plus, unquote_plus

from openpai_tasks.errors import PathError
from openpai_tasks.storage.packing.index import (
    LARGEST,
    Index,
    Row,
    Shard,
    check_member_name,
    line_batches,
)
from openpai_tasks.storage.packing.members import PackMember
from openpai_tasks.storage.packing.shards import Encoder, Format

SUFFIX = ".har"
INDEX, MASTER = "_index", "_masterindex"
VERSION = 3
LINES = 1000
OWNERS = "nobody nogroup"  # owners are not packed, but Hadoop requires both names
MODES = {"dir": 0o755, "file": 0o644}  # where the archive has none


def split_url(url: str) -> tuple[str, str]:
    """Return the location of the archive and the path in it: ``har://hdfs-host:8020/x.har/a`` has ``/a``."""
    outer, slash, names = url.partition("://")[2].partition("/")
    parts = names.split("/")
    ends = [at for at, name in enumerate(parts, 1) if name.endswith(SUFFIX)]
    scheme, dash, host = outer.partition("-")
    if not ends or not slash or (outer and not dash):
        example = "har://hdfs-HOST:PORT/PATH/NAME.har, har://pai-CLUSTER/STORAGE/NAME.har or har:///NAME.har"
        raise PathError(f"invalid address {url!r}: expected {example}")
    archive = "/".join(parts[: ends[-1]])
    return f"{scheme}://{host}/{archive}" if outer else f"/{archive}", "/" + "/".join(parts[ends[-1] :])


def encode(index: Index) -> tuple[bytes, bytes]:
    """Return ``_index`` and ``_masterindex`` for the files and folders of a set."""
    lines = sorted(_lines(index))
    text, master = bytearray(), [f"{VERSION} \n"]
    for start in range(0, len(lines), LINES):
        some, begins = lines[start : start + LINES], len(text)
        text += "".join(line for _, line in some).encode()
        master.append(f"{some[0][0]} {some[-1][0]} {begins} {len(text)} \n")
    return bytes(text), "".join(master).encode()


def _lines(index: Index) -> Iterator[tuple[int, str]]:
    children: dict[str, list[str]] = {"": []}
    modes = {"": MODES["dir"], **dict(zip(index.folders, index.folder_modes, strict=True))}
    for name in modes:
        children.setdefault(name, [])
    for name in (*index.folders, *index.names):
        above, _, last = name.rpartition("/")
        children[above].append(_quote(last))
    newest = max(index.mtime, default=0)
    for name, mode in modes.items():
        inner = "".join(f"{child} " for child in children[name])
        yield _hash(name), f"{_quote('/' + name)} dir {_facts(newest, mode)} 0 0 {inner}\n"
    for number in range(len(index)):
        row = index[number]
        place = f"{_quote(index.shards[row.shard].name)} {row.offset} {row.size}"
        yield _hash(row.name), f"{_quote('/' + row.name)} file {place} {_facts(row.mtime_ms, row.mode)} \n"


def _hash(name: str) -> int:
    """Return the hash of a Java string, without its sign."""
    found, units = 0, f"/{name}".encode("utf-16-be")
    for high, low in zip(units[::2], units[1::2], strict=True):
        found = (found * 31 + (high << 8) + low) & 0xFFFFFFFF
    return found & 0x7FFFFFFF


def _quote(text: str) -> str:
    try:
        return quote_plus(text)
    except UnicodeEncodeError:
        raise PathError(f"{text!r}: a Hadoop archive cannot hold a name that is not UTF-8") from None


def _facts(mtime_ms: int, mode: int) -> str:
    return quote_plus(f"{mtime_ms} {mode} {OWNERS}")


def read(master: Iterable[bytes], pieces: Iterable[bytes], shards: Sequence[Shard], url: str) -> Index:
    """Read the indexes of an archive, also of one that Hadoop made; ``shards`` are the files beside them."""
    version = next(line_batches(master, url), [b""])[0].split()
    if not version or version[0] not in (b"1", b"2", b"3"):
        raise PathError(f"{url}: not a Hadoop archive of version 1, 2 or 3")
    numbers = {shard.name: number for number, shard in enumerate(shards)}
    index, number = Index("har", list(shards)), 0
    is_quoted = version[0] != b"1"
    for batch in line_batches(pieces, url):
        for line in batch:
            number += 1
            if line:
                try:
                    _add(index, _words(line, is_quoted), numbers, url)
                except (ValueError, IndexError, KeyError, UnicodeDecodeError):
                    problem = f"line {number} of {INDEX} is damaged, or its part is missing or too short"
                    raise PathError(f"{url}: {problem}") from None
    return index


def _words(line: bytes, is_quoted: bool) -> list[str]:
    words = line.decode().split(" ")
    return [*map(unquote_plus, words)] if is_quoted else words


def _add(index: Index, words: list[str], numbers: dict[str, int], url: str) -> None:
    name, kind, part, offset, size = words[:5]
    name = name.strip("/")
    facts = part if kind == "dir" else words[5] if len(words) > 5 else ""
    mtime_ms, mode = _parse_facts(facts, MODES[kind])
    if kind == "dir":
        if name:
            index.add_folder(check_member_name(name, url), mode)
        return
    shard, start, length = numbers[part], int(offset), int(size)
    if not (start >= 0 <= length and start + length <= index.shards[shard].size):
        raise ValueError(words)
    index.add(Row(check_member_name(name, url), shard, start, length, mode, mtime_ms))


def _parse_facts(facts: str, mode: int) -> tuple[int, int]:
    """Return time and mode; older versions have neither."""
    with contextlib.suppress(ValueError):
        when, bits, *_ = facts.split(" ")
        return min(max(0, int(when)), LARGEST - 1), int(bits) & 0o777
    return 0, mode


class HarEncoder(Encoder):
    def before(self, member: PackMember, position: int) -> bytes:
        return b""


def _measure(member: PackMember) -> int:
    return member.size


def _scan(file: BinaryIO, url: str, shard: int, index: Index) -> None:
    raise PathError(
        f"{url}: a part of a Hadoop archive does not list its files; name the archive's folder instead"
    )


FORMAT = Format(
    ".part",
    HarEncoder,
    _measure,
    _scan,
    folder_suffix=SUFFIX,
    companions=(INDEX, MASTER),
    encode_companions=encode,
)
