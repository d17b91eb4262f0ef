"""The `.tag` sidecar of a segment: which entries have a tag, found by binary search.

    off  size       field
    0    4          magic "TTAG"
    4    4          version u32
    8    8          first_seq u64    of the segment
    16   8          data_bytes u64   length of the .data it covers: a sealed segment's whole length
    24   8          gen u64          of the segment's files
    32   4          tags u32         distinct tags
    36   4          entries u32      records that have a tag
    40   8          tag_bytes u64    length of all tags
    48   8          xxh3 u64         XXH3-64 over bytes 0-47 and everything after this field
    56   8 * tags   rows             one per tag, in the tags' order: tag_end u32, run_end u32
    .    4 * entries  runs           u32 each: seq - first_seq; the run of the first tag, then of the second, ...
    .    tag_bytes  tags             adjacent, without a separator, ascending bytewise, none empty

Tag i is at [tag_end of row i-1, tag_end of row i) of the tags, its run at [run_end of row i-1, run_end of row i) of
the runs (0 before the first row); a run is ascending. The file ends with the tags. Little-endian.
The file is derived from .data: when it is missing, damaged or of another version, it is created again.

Source: docs/reference/format.md#segments.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import TypeAlias

from xxhash import xxh3_64

MAGIC = b"TTAG"
VERSION = 1
PREFIX = struct.Struct("<4sIQQQIIQ")
CHECKSUM = struct.Struct("<Q")
HEADER_SIZE = PREFIX.size + CHECKSUM.size
ENTRY = struct.Struct("<II")
_TWO_ENTRIES = struct.Struct("<IIII")
_NUMBER_SIZE = 4
_U32_END = 1 << 32
_CHECK_BYTES = 1 << 20

#: (size, offset) -> at most `size` bytes from there, fewer only at the end: `File.pread`.
Pread: TypeAlias = Callable[[int, int], bytes]


class TagFileDamaged(ValueError):
    """The bytes are not a whole valid tag file."""


class TagFileUnsupported(ValueError):
    """A valid tag file of a version this program does not know."""


def encode(first_seq: int, gen: int, data_bytes: int, pairs: Iterable[tuple[bytes, int]]) -> bytes:
    """The file for (tag, seq) pairs in any order, no pair twice.

    Raises ValueError for an empty tag, and for a seq outside [first_seq, first_seq + 2**32).
    """
    seqs_of: dict[bytes, list[int]] = {}
    for tag, seq in pairs:
        index = seq - first_seq
        if not tag or not 0 <= index < _U32_END:
            raise ValueError(f"({tag!r}, {seq}) cannot be in a tag file that begins with seq {first_seq}")
        seqs_of.setdefault(tag, []).append(index)
    tags = sorted(seqs_of)
    numbers = [index for tag in tags for index in sorted(seqs_of[tag])]
    tag_ends, seq_ends = accumulate(map(len, tags)), accumulate(len(seqs_of[tag]) for tag in tags)
    table = b"".join(map(ENTRY.pack, tag_ends, seq_ends))
    names = b"".join(tags)
    body = table + struct.pack(f"<{len(numbers)}I", *numbers) + names
    prefix = PREFIX.pack(MAGIC, VERSION, first_seq, data_bytes, gen, len(tags), len(numbers), len(names))
    return prefix + CHECKSUM.pack(_checksum(prefix, [body])) + body


def _checksum(prefix: bytes, pieces: Iterable[bytes]) -> int:
    hasher = xxh3_64(prefix)
    for piece in pieces:
        hasher.update(piece)
    return hasher.intdigest()


class TagFile:
    """A verified tag file. Keeps only its header and reads the rest per search; as thread-safe as its `pread`."""

    __slots__ = ("_entries", "_names_at", "_pread", "_seqs_at", "_tag_bytes", "_tags", "data_bytes", "first_seq", "gen")

    def __init__(
        self, pread: Pread, *, first_seq: int, data_bytes: int, gen: int, tags: int, entries: int, tag_bytes: int
    ) -> None:
        """Use `open`."""
        self._pread = pread
        self.first_seq = first_seq
        self.data_bytes = data_bytes
        self.gen = gen
        self._tags = tags
        self._entries = entries
        self._tag_bytes = tag_bytes
        self._seqs_at = HEADER_SIZE + ENTRY.size * tags
        self._names_at = self._seqs_at + _NUMBER_SIZE * entries

    @classmethod
    def open(cls, source: bytes | Pread, size: int | None = None) -> TagFile:
        """Verify the whole file (1 MiB at a time) and keep its header.

        `source`: the file's bytes, or a function that reads from it; then `size` is the file's length in bytes.
        Raises TagFileDamaged, TagFileUnsupported when valid but of another version, and the errors of `source`.
        """
        if isinstance(source, bytes):
            pread, size = _pread_of(source), len(source)
        else:
            pread = source
        if size is None:
            raise TypeError("the length of the file is missing")
        header = pread(HEADER_SIZE, 0)
        if len(header) < HEADER_SIZE:
            raise TagFileDamaged(f"{len(header)} bytes are too few for a tag file")
        prefix = header[: PREFIX.size]
        magic, version, first_seq, data_bytes, gen, tags, entries, tag_bytes = PREFIX.unpack(prefix)
        if magic != MAGIC:
            raise TagFileDamaged("it does not begin with TTAG")
        pieces = (pread(min(_CHECK_BYTES, size - offset), offset) for offset in range(HEADER_SIZE, size, _CHECK_BYTES))
        if _checksum(prefix, pieces) != CHECKSUM.unpack_from(header, PREFIX.size)[0]:
            raise TagFileDamaged("checksum mismatch")
        if version != VERSION:  # the following bytes may mean something else
            raise TagFileUnsupported(f"tag file version {version}, this program knows {VERSION}")
        if HEADER_SIZE + ENTRY.size * tags + _NUMBER_SIZE * entries + tag_bytes != size:
            raise TagFileDamaged(f"the counts in the header do not come to the {size} bytes of the file")
        return cls(
            pread,
            first_seq=first_seq,
            data_bytes=data_bytes,
            gen=gen,
            tags=tags,
            entries=entries,
            tag_bytes=tag_bytes,
        )

    def exact(self, tag: bytes) -> list[int]:
        """Seqs of the records with exactly this tag, ascending. Raises TagFileDamaged, and the source's errors."""
        entry = bisect_left(range(self._tags), tag, key=self._tag)
        return self._seqs(entry, entry + 1) if entry < self._tags and self._tag(entry) == tag else []

    def prefix(self, text: bytes) -> list[int]:
        """Seqs of the records whose tag begins with `text` (b'': any tag), ascending. Raises as `exact`."""
        width = len(text)
        first = bisect_left(range(self._tags), text, key=self._tag)
        end = bisect_right(range(self._tags), text, lo=first, key=lambda entry: self._tag(entry)[:width])
        return sorted(self._seqs(first, end))

    def _tag(self, entry: int) -> bytes:
        begin, _, end, _ = self._ends_of(entry)
        if not begin < end <= self._tag_bytes:
            raise TagFileDamaged(f"tag {entry} lies at [{begin}, {end}) of {self._tag_bytes} bytes")
        return self._read(end - begin, self._names_at + begin)

    def _seqs(self, entry: int, end_entry: int) -> list[int]:
        if entry == end_entry:
            return []
        begin, end = self._ends_of(entry)[1], self._ends_of(end_entry - 1)[3]
        if not begin < end <= self._entries:
            raise TagFileDamaged(
                f"the run of tags {entry} to {end_entry} is [{begin}, {end}) of {self._entries} entries"
            )
        numbers = self._read((end - begin) * _NUMBER_SIZE, self._seqs_at + begin * _NUMBER_SIZE)
        return [self.first_seq + index for index in struct.unpack(f"<{end - begin}I", numbers)]

    def _ends_of(self, entry: int) -> tuple[int, int, int, int]:
        """tag_end and run_end of the previous row, then of this row."""
        if entry == 0:
            return 0, 0, *ENTRY.unpack(self._read(ENTRY.size, HEADER_SIZE))
        return _TWO_ENTRIES.unpack(self._read(_TWO_ENTRIES.size, HEADER_SIZE + ENTRY.size * (entry - 1)))

    def _read(self, size: int, offset: int) -> bytes:
        data = self._pread(size, offset)
        if len(data) != size:
            raise TagFileDamaged(
                f"{len(data)} of {size} bytes at offset {offset}: it was cut after it had been verified"
            )
        return data


def _pread_of(content: bytes) -> Pread:
    return lambda size, offset: content[offset : offset + size]
