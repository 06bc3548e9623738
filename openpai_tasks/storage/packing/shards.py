"""What a shard format provides: the bytes before, between and after files, and how to find files.

Every format writes a file in one piece, so that its content is one range of the shard.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import BinaryIO

from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.storage.packing.index import Index
from openpai_tasks.storage.packing.members import PackMember


class Encoder:
    """Produces the bytes around the files of one shard."""

    def __init__(self, members: list[PackMember]) -> None:
        """``members`` are all that the shard will hold."""

    def head(self) -> bytes:
        """Return the beginning of the shard."""
        return b""

    def before(self, member: PackMember, position: int) -> bytes:
        """Return the bytes before the member's content, which start at this position of the shard."""
        raise NotImplementedError

    def update(self, piece: bytes) -> None:
        """Process a piece of the content, for a format with a checksum; the index has one in any case."""

    def after(self, member: PackMember) -> bytes:
        """Return the bytes after the content."""
        return b""

    def tail(self) -> bytes:
        """Return the end of the shard."""
        return b""


@dataclass(frozen=True)
class Format:
    """A shard format."""

    suffix: str
    encoder: type[Encoder]
    measure: Callable[[PackMember], int]
    """Returns about how many bytes of a shard the member takes."""
    scan: Callable[[BinaryIO, str, int, Index], None]
    """Scans a shard without an index, given its file, URL and number, and adds its files to the index."""
    most: int = 0
    """The largest size of a file in bytes; 0 for any."""
    holds_folders: bool = False
    folder_suffix: str = ""
    """What the name of the target folder must end with."""
    companions: tuple[str, ...] = ()
    """Names of files beside the shards by which other programs read the set."""
    encode_companions: Callable[[Index], Sequence[bytes]] | None = None
