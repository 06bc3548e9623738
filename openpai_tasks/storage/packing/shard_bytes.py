"""Produce the bytes of a shard from the files of a store."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

from openpai_tasks.storage.copying.progress import Watch
from openpai_tasks.storage.crc import crc32c, crc32c_each
from openpai_tasks.storage.packing.formats import find_format
from openpai_tasks.storage.packing.members import PackMember
from openpai_tasks.storage.packing.sources import batches, streamed
from openpai_tasks.storage.store import Store


class ShardBytes:
    """One try to produce a shard; ``offsets`` and ``crcs`` have a number for each file that was read."""

    def __init__(
        self, source: Store, members: list[PackMember], format: str, workers: int, watch: Watch
    ) -> None:
        self._source, self._members, self._workers, self._watch = source, members, workers, watch
        self._encoder = find_format(format).encoder(members)
        self._at = self._moved = 0
        self.offsets, self.crcs = array("Q"), array("q")

    @property
    def files(self) -> list[PackMember]:
        return [member for member in self._members if not member.is_folder]

    def __iter__(self) -> Iterator[Sequence[bytes]]:
        """Yield the pieces in groups."""
        yield ((head := self._encoder.head()),)
        self._at = len(head)
        for batch, contents in batches(self._source, self._members, self._workers, self._watch):
            if contents is None:
                yield from ((piece,) for piece in self._large(batch[0]))
            else:
                yield self._small(batch, contents)
        yield (self._encoder.tail(),)

    def take_back(self) -> None:
        """Subtract what was counted, as the try has failed."""
        self._watch.moved(-self._moved)
        self._moved = 0

    def _small(self, batch: list[PackMember], contents: list[bytes]) -> list[bytes]:
        encoder, at, pieces = self._encoder, self._at, list[bytes]()
        add, ended = self.offsets.append, self._watch.ended
        for member, content in zip(batch, contents, strict=True):
            before = encoder.before(member, at)
            encoder.passing(content)
            after = encoder.after(member)
            at += len(before)
            if not member.is_folder:
                add(at)
                ended(member.path, "copied", member.size)
            pieces += before, content, after
            at += len(content) + len(after)
        self._at = at
        pairs = zip(batch, contents, strict=True)
        self.crcs.extend(crc32c_each([content for member, content in pairs if not member.is_folder]))
        self._count(sum(map(len, contents)))
        return pieces

    def _large(self, member: PackMember) -> Iterator[bytes]:
        before, crc = self._encoder.before(member, self._at), 0
        yield before
        for piece in streamed(self._source, member, self._watch):
            crc = crc32c(piece, crc)
            self._encoder.passing(piece)
            self._count(len(piece))
            yield piece
        self._ended(member, self._at + len(before), crc)
        yield (after := self._encoder.after(member))
        self._at += len(before) + member.size + len(after)

    def _ended(self, member: PackMember, offset: int, crc: int) -> None:
        self.offsets.append(offset)
        self.crcs.append(crc)
        self._watch.ended(member.path, "copied", member.size)

    def _count(self, size: int) -> None:
        self._moved += size
        self._watch.moved(size)
