"""The interface of a shard format: the bytes before, between and after files, and how to find files.

A row of the table is a module's ``FORMAT``. Every format writes a file in one piece, so that its content is
one range of the shard.
"""

from __future__ import annotations

from typing import BinaryIO, Protocol

from openpai_tasks.errors import ConfigError, PathError
from openpai_tasks.storage.packing import sequencefile, tar, tfrecord
from openpai_tasks.storage.packing.index import Index
from openpai_tasks.storage.packing.members import PackMember


class Encoder(Protocol):
    """Produces the bytes around the files of one shard."""

    def head(self) -> bytes:
        """Return the beginning of the shard."""

    def before(self, member: PackMember, position: int) -> bytes:
        """Return the bytes before the member's content, which start at this position of the shard."""

    def update(self, piece: bytes) -> None:
        """Process a piece of the content, such as for a checksum."""

    def after(self, member: PackMember) -> bytes:
        """Return the bytes after the content."""

    def tail(self) -> bytes:
        """Return the end of the shard."""


class Format(Protocol):
    """A shard format."""

    suffix: str
    most: int
    """The largest size of a file in bytes; 0 for any."""
    holds_folders: bool

    def encoder(self, members: list[PackMember]) -> Encoder:
        """Return the encoder of a new shard of these members."""

    def measure(self, member: PackMember) -> int:
        """Return about how many bytes of a shard the member takes."""

    def scan(self, file: BinaryIO, url: str, shard: int, index: Index) -> None:
        """Scan a shard without an index, and add its files to the index."""


FORMATS: dict[str, Format] = {
    "tar": tar.FORMAT,
    "tfrecord": tfrecord.FORMAT,
    "sequencefile": sequencefile.FORMAT,
}


def find_format(name: str) -> Format:
    if name not in FORMATS:
        raise ConfigError(f"no format named {name!r} (known: {', '.join(FORMATS)})")
    return FORMATS[name]


def of_file(name: str) -> str:
    """Return the format of a shard without an index, by its suffix."""
    for known, form in FORMATS.items():
        if name.endswith(form.suffix) or (known == "tfrecord" and ".tfrecord" in name):
            return known
    ends = ", ".join(form.suffix for form in FORMATS.values())
    raise PathError(f"{name} is not a shard: its name must end with one of {ends}")
