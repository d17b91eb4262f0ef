"""Tags of the records in the tail: deletes by tag search here for records that are in no segment yet.

A chunk has about a thousand tags, their bytes concatenated. So there is no object per record, and one search rules
out a tag that a chunk does not contain. Entries are added in seq order, and chunks are removed from the front.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Sequence

from kernel import Tags
from storage.records import TagMatch

_CHUNK = 1024


class _Chunk:
    """Seqs, lengths of their tags, and the tags, concatenated."""

    __slots__ = ("lens", "seqs", "tags")

    def __init__(self) -> None:
        self.seqs: array[int] = array("Q")
        self.lens: array[int] = array("H")
        self.tags = bytearray()

    def extend(self, seqs: Iterable[int], lens: Iterable[int], text: bytes) -> None:
        self.seqs.extend(seqs)
        self.lens.extend(lens)
        self.tags += text

    def find(self, match: TagMatch) -> list[int]:
        if match.text not in self.tags:
            return []
        found: list[int] = []
        at = 0
        for seq, size in zip(self.seqs, self.lens, strict=True):
            if (size == len(match.text) or match.prefix) and self.tags.startswith(match.text, at, at + size):
                found.append(seq)
            at += size
        return found


class TailTags:
    """Tags of a log's tail."""

    __slots__ = ("chunks",)

    def __init__(self) -> None:
        self.chunks: deque[_Chunk] = deque()

    def __len__(self) -> int:
        return sum(len(chunk.seqs) for chunk in self.chunks)

    def add(self, tagged: Sequence[tuple[bytes, int]]) -> None:
        """Add the (tag, seq) pairs of a batch, after all earlier ones."""
        if not tagged:
            return
        tags, seqs = zip(*tagged, strict=True)
        self._open().extend(seqs, map(len, tags), b"".join(tags))

    def extend(self, tags: Tags) -> None:
        """Add the tags of many batches, after all earlier ones."""
        begin = at = 0
        while begin < len(tags.seqs):
            chunk = self._open()
            end = begin + _CHUNK - len(chunk.seqs)
            lens = tags.lens[begin:end]
            size = sum(lens)
            chunk.extend(tags.seqs[begin:end], lens, tags.text[at : at + size])
            begin, at = end, at + size

    def _open(self) -> _Chunk:
        """The chunk that has room."""
        if not self.chunks or len(self.chunks[-1].seqs) >= _CHUNK:
            self.chunks.append(_Chunk())
        return self.chunks[-1]

    def forget_below(self, floor: int) -> None:
        """Drop chunks that are wholly below `floor`."""
        while self.chunks and self.chunks[0].seqs[-1] < floor:
            self.chunks.popleft()

    def find(self, match: TagMatch, last_seq: int) -> list[int]:
        """Seqs up to `last_seq` whose tag matches (deleted ones may be among them)."""
        return [seq for chunk in self.chunks for seq in chunk.find(match) if seq <= last_seq]
