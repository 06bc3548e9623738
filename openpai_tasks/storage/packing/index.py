"""The index of packed files: in memory with a few bytes per file, and as text beside the shards.

``index.jsonl``: a line about the set, a line for each folder, a line for each file:
``["name/", mode]`` and ``["name", shard, offset, size, mode, mtime_ms, crc32c]``. The offset is that of the
content itself, so that a file is one range of a shard, whatever the format.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, islice, pairwise
from json.encoder import encode_basestring_ascii
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from openpai_tasks.errors import PathError
from openpai_tasks.storage.store import is_name

if TYPE_CHECKING:
    from openpai_tasks.storage.packing.members import PackMember

NAME = "index.jsonl"
VERSION = 1
MARK = "openpai-tasks packed files"
UNKNOWN = -1
"""The CRC32C of a file whose CRC has not been computed."""
LONGEST = 64 << 20  # bytes of the first line; a file with a longer one is not an index
LARGEST = 1 << 63
LINES = 1000  # lines that are written at once
ENCODER = json.JSONEncoder(separators=(",", ":"))


class Names(Sequence[str]):
    """A list of names that needs little more memory than their bytes."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._text, self._ends = bytearray(), array("Q", [0])
        for name in names:
            self.append(name)

    def append(self, name: str) -> None:
        self._text += name.encode("utf-8", "surrogateescape")
        self._ends.append(len(self._text))

    def extend(self, raw: Iterable[bytes]) -> None:
        """Add names by their bytes."""
        sizes = accumulate(map(len, raw := list(raw)), initial=len(self._text))
        self._ends.extend(islice(sizes, 1, None))
        self._text += b"".join(raw)

    def raw(self, number: int) -> bytes:
        """Return the bytes of a name, which sort like the name."""
        return bytes(self._text[self._ends[number] : self._ends[number + 1]])

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __iter__(self) -> Iterator[str]:
        text = self._text
        return (text[start:end].decode("utf-8", "surrogateescape") for start, end in pairwise(self._ends))

    @overload
    def __getitem__(self, number: int) -> str: ...

    @overload
    def __getitem__(self, number: slice) -> list[str]: ...

    def __getitem__(self, number: int | slice) -> str | list[str]:
        if isinstance(number, slice):
            return [self[each] for each in range(*number.indices(len(self)))]
        if number < 0:
            raise IndexError(number)
        return self._text[self._ends[number] : self._ends[number + 1]].decode("utf-8", "surrogateescape")


@dataclass(frozen=True)
class Shard:
    """One of the large files."""

    name: str
    size: int


class Row(NamedTuple):
    """The location of one file."""

    name: str
    shard: int
    offset: int
    size: int
    mode: int
    mtime_ms: int
    crc: int = UNKNOWN


@dataclass
class Index:
    """The files and folders of a set, in the order in which they were packed."""

    format: str
    shards: list[Shard] = field(default_factory=list)
    names: Names = field(default_factory=Names)
    folders: Names = field(default_factory=Names)
    folder_modes: array[int] = field(default_factory=partial(array, "H"))
    shard: array[int] = field(default_factory=partial(array, "I"))
    offset: array[int] = field(default_factory=partial(array, "Q"))
    size: array[int] = field(default_factory=partial(array, "Q"))
    mode: array[int] = field(default_factory=partial(array, "H"))
    mtime: array[int] = field(default_factory=partial(array, "q"))
    crc: array[int] = field(default_factory=partial(array, "q"))

    def __len__(self) -> int:
        return len(self.names)

    @property
    def columns(self) -> tuple[array[int], ...]:
        """The fields of a row after its name."""
        return self.shard, self.offset, self.size, self.mode, self.mtime, self.crc

    def __getitem__(self, number: int) -> Row:
        return Row(self.names[number], *(column[number] for column in self.columns))

    def add(self, row: Row) -> None:
        name, *numbers = row
        self.names.append(name)
        for column, number in zip(self.columns, numbers, strict=True):
            column.append(number)

    def add_folder(self, name: str, mode: int) -> None:
        self.folders.append(name)
        self.folder_modes.append(mode)

    def add_shard(
        self, shard: Shard, files: Sequence[PackMember], offsets: array[int], crcs: array[int]
    ) -> None:
        """Add a shard with all its files."""
        self.shard.extend([len(self.shards)] * len(files))
        self.shards.append(shard)
        self.names.extend(file.name.encode("utf-8", "surrogateescape") for file in files)
        self.offset.extend(offsets)
        self.size.extend([file.size for file in files])
        self.mode.extend([file.mode for file in files])
        self.mtime.extend([file.mtime_ms for file in files])
        self.crc.extend(crcs)


def encode(index: Index) -> Iterator[bytes]:
    """Yield the index as text, many lines at a time."""
    head = {
        "what": MARK,
        "version": VERSION,
        "format": index.format,
        "files": len(index),
        "folders": len(index.folders),
        "bytes": sum(index.size),
        "shards": [{"name": shard.name, "size": shard.size} for shard in index.shards],
    }
    yield _line(head)
    for start in range(0, len(index.folders), LINES):
        numbers = range(start, min(start + LINES, len(index.folders)))
        yield b"".join(_line([index.folders[each] + "/", index.folder_modes[each]]) for each in numbers)
    lines = _row_lines(index)
    while some := "".join(islice(lines, LINES)):
        yield some.encode()


def _row_lines(index: Index) -> Iterator[str]:
    """Yield the lines of the files, five times as fast as by encoding lists."""
    for name, shard, offset, size, mode, mtime, crc in zip(index.names, *index.columns, strict=True):
        last = "null" if crc == UNKNOWN else crc
        yield f"[{encode_basestring_ascii(name)},{shard},{offset},{size},{mode},{mtime},{last}]\n"


def _line(value: Any) -> bytes:
    return ENCODER.encode(value).encode() + b"\n"


def read(pieces: Iterable[bytes], url: str) -> Index:
    """Parse the text of an index; raise, with the line, if it is invalid or incomplete."""
    batches = line_batches(pieces, url)
    first, *rest = next(batches, [b""])
    index, files, folders = _head(first, url)
    number = 1
    for lines in [rest], batches:
        for batch in lines:
            values = _parse_lines(batch, number, url)
            _add_lines(index, values, number, url)
            number += len(values)
    if (len(index), len(index.folders)) != (files, folders):
        raise PathError(f"{url}: {len(index)} files are listed of {files}; the index is not complete")
    return index


def read_head(pieces: Iterable[bytes], url: str) -> Index:
    """Return the index without its files, from the first line; the rest is not read."""
    line = bytearray()
    for piece in pieces:
        line += piece
        if b"\n" in piece or len(line) > LONGEST:
            break
    return _head(bytes(line.partition(b"\n")[0]), url)[0]


def line_batches(pieces: Iterable[bytes], url: str) -> Iterator[list[bytes]]:
    """Yield complete lines, as many as have arrived; a last line without a line end counts, too."""
    left, size = [b""], 0
    for piece in pieces:
        ends, line_end, begins = piece.rpartition(b"\n")
        if line_end:
            yield b"".join([*left, ends]).split(b"\n")
            left, size = [begins], len(begins)
            continue
        left.append(piece)
        size += len(piece)
        if size > LONGEST:
            raise PathError(
                f"{url} is not an index of packed files: a line is longer than {LONGEST >> 20} MB"
            )
    if any(left):
        yield [b"".join(left)]


def _parse_lines(lines: list[bytes], before: int, url: str) -> list[Any]:
    """Parse all lines at once, which is fast; if that fails, find the invalid line."""
    try:
        values: list[Any] = json.loads(b"[" + b",".join(lines) + b"]")
        if len(values) == len(lines):
            return values
    except (ValueError, RecursionError):
        pass
    for number, line in enumerate(lines, before + 1):
        try:
            json.loads(line)
        except (ValueError, RecursionError) as err:
            raise _bad(url, number) from err
    raise _bad(url, before + 1)


def _head(line: bytes, url: str) -> tuple[Index, int, int]:
    try:
        head = json.loads(line)
    except (ValueError, RecursionError):
        head = None
    if not isinstance(head, dict) or head.get("what") != MARK:
        raise PathError(f"{url} is not an index of packed files")
    if head.get("version") != VERSION:
        problem = (
            f"unsupported index version {head.get('version')!r}: this openpai-tasks reads version {VERSION}"
        )
        raise PathError(f"{url}: {problem}")
    try:
        shards = [Shard(_file_name(each["name"]), _count(each["size"])) for each in head["shards"]]
        counts = _count(head["files"]), _count(head["folders"])
        return Index(str(head["format"]), shards), *counts
    except (KeyError, TypeError, ValueError) as err:
        raise _bad(url, 1) from err


def _add_lines(index: Index, values: list[Any], before: int, url: str) -> None:
    """Add the lines that follow this number of lines; raise if one is invalid."""
    files = next((at for at, row in enumerate(values) if type(row) is list and len(row) > 2), 0)
    has_all = _add_files(index, values[files:])
    for number, row in enumerate(values[:files] if has_all else values, before + 1):
        _add_line(index, row, number, url)


def _add_files(index: Index, rows: list[Any]) -> bool:
    """Add many files at once; return False, with nothing added, unless all are plainly valid."""
    try:
        names, *columns = zip(*rows, strict=True)
        shards, offsets, sizes, modes, mtimes, crcs = columns
        text, raw = (
            "/" + "/\0/".join(names) + "/",
            [name.encode("utf-8", "surrogateescape") for name in names],
        )
        ends = [shard.size for shard in index.shards]
        is_valid = (
            all({*map(type, column)} == {int} for column in columns)
            and not any(part in text for part in ("//", "/./", "/../"))
            and text.count("\0") == len(names) - 1
            and min(map(min, (shards, offsets, sizes, modes, crcs))) >= 0
            and max(map(max, (offsets, sizes, mtimes, crcs))) < LARGEST
            and min(mtimes) > -LARGEST
            and max(modes) <= 0o777
            and all(at + size <= ends[shard] for shard, at, size in zip(shards, offsets, sizes, strict=True))
        )
    except (IndexError, TypeError, ValueError):
        return False
    if is_valid:
        index.names.extend(raw)
        for column, more in zip(index.columns, columns, strict=True):
            column.extend(more)
    return is_valid


def _add_line(index: Index, values: Any, number: int, url: str) -> None:
    """Add one line to the index; raise if it is invalid."""
    try:
        if len(values) == 2:
            index.add_folder(check_member_name(values[0].removesuffix("/"), url), _mode(values[1]))
            return
        name, shard, offset, size, mode, mtime, crc = values
        end = _count(offset) + _count(size)
        if not isinstance(mtime, int) or end > index.shards[_count(shard)].size:
            raise ValueError(values)
        crc = UNKNOWN if crc is None else _count(crc)
        index.add(Row(check_member_name(name, url), shard, offset, size, _mode(mode), mtime, crc))
    except (AttributeError, IndexError, OverflowError, TypeError, ValueError) as err:
        raise _bad(url, number) from err


def check_member_name(name: str, where: str) -> str:
    """Return the name; raise if it could point outside the folder that it is unpacked into."""
    if not all(map(is_name, name.split("/"))):
        raise PathError(f"{where} contains the name {name!r}, which leads out of its folder; refused")
    return name


def _file_name(name: Any) -> str:
    if not isinstance(name, str) or not is_name(name):
        raise ValueError(name)
    return name


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(value)
    return value


def _mode(value: Any) -> int:
    if _count(value) > 0o777:
        raise ValueError(value)
    return int(value)


def _bad(url: str, number: int) -> PathError:
    return PathError(f"{url}: line {number} is damaged, or not a line of an index")
