"""The seam to a format of shards: what comes before, between and after the files, and how to find them again.

A row of the table is a module's ``FORMAT``; each writes files in one piece, so that a range of the shard is a
file's content.
"""

from __future__ import annotations

from typing import BinaryIO, Protocol

from openpai_tasks.errors import ConfigError, PathError
from openpai_tasks.storage.packing import sequencefile, tar, tfrecord
from openpai_tasks.storage.packing.index import Index
from openpai_tasks.storage.packing.members import PackMember


class Encoder(Protocol):
    """What is written around the files of one shard."""

    def head(self) -> bytes:
        """What the shard begins with."""

    def before(self, member: PackMember, position: int) -> bytes:
        """What comes before the member's content, at this place of the shard."""

    def passing(self, piece: bytes) -> None:
        """A piece of the content, for what has to be computed of it."""

    def after(self, member: PackMember) -> bytes:
        """What comes after the content."""

    def tail(self) -> bytes:
        """What the shard ends with."""


class Format(Protocol):
    """A kind of shard."""

    suffix: str
    most: int
    """The largest file that it can hold; 0 for any."""
    holds_folders: bool

    def encoder(self, members: list[PackMember]) -> Encoder:
        """A new shard of these members."""

    def measure(self, member: PackMember) -> int:
        """About how many bytes of a shard the member takes up."""

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
    """The format of a shard without an index, by the end of its name."""
    for known, form in FORMATS.items():
        if name.endswith(form.suffix) or (known == "tfrecord" and ".tfrecord" in name):
            return known
    ends = ", ".join(form.suffix for form in FORMATS.values())
    raise PathError(f"{name} is not a shard: its name must end with one of {ends}")
