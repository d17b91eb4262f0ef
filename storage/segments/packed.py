"""Reads and writes the .zdata of a packed segment, and opens the records of any segment. Blocking.

A reader sees the bytes of .data, except that every delete byte is 0x00: the .idx says which records are deleted, as
for a cold segment.

A block that fails its check is read as zeros, so the frames in it fail their checks too. Damage therefore costs only
the records in that block, and each of them is reported when it is read. Without a valid header and table nothing of
the file can be read.

Source: docs/reference/format.md.
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from typing import Any

import cramjam
from xxhash import xxh3_64_intdigest

from storage.format import BLOCK_BYTES, LIVE, Header, PackedDamaged, Table, packed_file, segment_frame
from storage.platform import Buffer, File, FileSystem, Readable
from storage.segments import names
from storage.segments.errors import SegmentCorrupt, SegmentShort
from storage.segments.files import write_all
from storage.segments.names import SegmentId

_zstd: Any = cramjam.zstd  # pyright: ignore
_LEVEL = 1
_DELETED = bytes((segment_frame.DELETED,))
_DIGITS = bytes(b"01"[value == segment_frame.DELETED] for value in range(256))
#: Largest window that a zstd frame may ask for. Frames written here never ask for more.
_MAX_WINDOW = 1 << 20
#: Cache for a file that one reader goes through: the blocks that one record can span, and the next one.
_CACHED_BYTES = 4 * BLOCK_BYTES
#: This many blocks of a .data are compressed to estimate what packing would save.
_SAMPLES = 4
#: Packing has to save at least a fifth.
_WORTH = 0.8


class BlockCache:
    """The blocks uncompressed last, at most `max_bytes`; the least recently used goes first. For any thread."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._blocks: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self._bytes = 0

    @property
    def size_bytes(self) -> int:
        """What is kept."""
        return self._bytes

    def get(self, key: tuple[int, int]) -> bytes | None:
        with self._lock:
            block = self._blocks.get(key)
            if block is not None:
                self._blocks.move_to_end(key)
            return block

    def put(self, key: tuple[int, int], block: bytes) -> None:
        with self._lock:
            if key in self._blocks:
                return
            self._blocks[key] = block
            self._bytes += len(block)
            while self._bytes > self._max_bytes and self._blocks:
                self._bytes -= len(self._blocks.popitem(last=False)[1])


_numbers = itertools.count()


class PackedData:
    """Reads a .zdata as if it were an open .data. From any thread."""

    def __init__(self, file: File, path: str, id: SegmentId, cache: BlockCache | None = None) -> None:
        """Checks header and table. Raises SegmentShort, OSError; then the caller still owns the file."""
        self._file, self._path = file, path
        self._cache = cache or BlockCache(_CACHED_BYTES)
        self._number = next(_numbers)
        #: By block number: what is wrong with blocks that were found damaged.
        self.damage: dict[int, str] = {}
        try:
            size = file.size()
            self.header: Header = packed_file.decode_header(file.pread(packed_file.HEADER_SIZE, 0))
            if self.header[:3] != id[:3]:
                raise PackedDamaged(0, "it is another segment's")
            if size < self.header.blocks_at + self.header.table_bytes:  # before that much is asked for
                raise PackedDamaged(size, "the file ends before its table does")
            at = size - self.header.table_bytes
            self._table: Table = packed_file.decode_table(self.header, file.pread(self.header.table_bytes, at), size)
        except PackedDamaged as error:
            raise SegmentShort(path, error.offset, str(error)) from error

    def pread(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes of .data; shorter only where it ends. Raises OSError."""
        end = min(offset + size, self.header.data_bytes)
        if offset >= end:
            return b""
        first, last = offset // BLOCK_BYTES, (end - 1) // BLOCK_BYTES
        begin, stop = offset - first * BLOCK_BYTES, end - last * BLOCK_BYTES
        if first == last:
            return self._block(first)[begin:stop]
        # The next read, forward or backward, wants the blocks at both ends again, and no others.
        inner = (self._load(number) for number in range(first + 1, last))
        return b"".join([self._block(first)[begin:], *inner, self._block(last)[:stop]])

    def size(self) -> int:
        """Bytes of .data."""
        return self.header.data_bytes

    def delete_bytes(self) -> bytes:
        """One byte for each seq. Raises SegmentCorrupt, OSError."""
        found = self._file.pread(self.header.seqs, packed_file.HEADER_SIZE)
        if found.count(LIVE) + found.count(segment_frame.DELETED) != self.header.seqs:
            number = next(
                (number for number, each in enumerate(found) if each not in (LIVE, segment_frame.DELETED)), len(found)
            )
            raise SegmentCorrupt(self._path, packed_file.HEADER_SIZE + number, "this is no delete byte")
        return found

    def deleted_bits(self) -> int:
        """A bitset: bit i is set when the record first_seq + i is deleted. Raises SegmentCorrupt, OSError."""
        found = self.delete_bytes()
        return int(found[::-1].translate(_DIGITS), 2) if segment_frame.DELETED in found else 0

    def is_deleted(self, number: int) -> bool:
        """Whether the delete byte of a seq is set now. Raises OSError."""
        return self._file.pread(1, packed_file.HEADER_SIZE + number) == _DELETED

    def block_offset(self, number: int) -> int:
        """Where a block begins in the file."""
        return self._table.offsets[number]

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _block(self, number: int) -> bytes:
        key = self._number, number
        block = self._cache.get(key)
        if block is None:
            block = self._load(number)
            if number not in self.damage:
                self._cache.put(key, block)
        return block

    def _load(self, number: int) -> bytes:
        at, size = self._table.offsets[number], self.header.block_bytes(number)
        stored = self._file.pread(self._table.offsets[number + 1] - at, at)
        try:
            if xxh3_64_intdigest(stored) != self._table.sums[number]:
                raise PackedDamaged(at, "it fails its check")
            return _unpacked(stored, size, at)
        except PackedDamaged as error:
            self.damage[number] = str(error)
            return bytes(size)


def _unpacked(stored: bytes, size: int, at: int) -> bytes:
    """Uncompress a block into at most `size` bytes, whatever its header says. Raises PackedDamaged."""
    if len(stored) == size:
        return stored
    if _window(stored) > _MAX_WINDOW:
        raise PackedDamaged(at, "it asks for more memory than any block that was ever written")
    block = bytearray(size)
    try:
        found = _zstd.decompress_into(stored, block)
    except cramjam.DecompressionError as error:
        raise PackedDamaged(at, f"it cannot be uncompressed: {error}") from error
    if found != size:
        raise PackedDamaged(at, f"it comes to {found} bytes, not {size}")
    return bytes(block)


def _window(stored: bytes) -> int:
    """The window in bytes that a zstd frame header asks for. The decoder refuses anything that is no zstd frame."""
    if len(stored) < 6 or stored[4] & 0x20:  # a single-segment frame: no larger than its content, which is bounded
        return 0
    return (8 + (stored[5] & 7)) << (7 + (stored[5] >> 3))


class PackedWriter:
    """Writes a .zdata from its first byte on, all records live. Syncs nothing. Raises OSError, SegmentBroken."""

    def __init__(self, file: File, path: str, header: Header) -> None:
        self._file, self._path, self._header = file, path, header
        self._pending = bytearray()
        self._entries: list[tuple[int, int]] = []
        #: Bytes written.
        self.size = 0
        self._write(header.encode() + bytes(header.seqs))

    def add(self, data: Buffer) -> None:
        """The next bytes of .data."""
        self._pending += data
        whole = len(self._pending) // BLOCK_BYTES * BLOCK_BYTES
        for at in range(0, whole, BLOCK_BYTES):
            self._put(bytes(self._pending[at : at + BLOCK_BYTES]))
        del self._pending[:whole]

    def finish(self) -> None:
        """Write the last block. `add` was given as many bytes as the header says."""
        if self._pending:
            self._put(bytes(self._pending))
        self._write(packed_file.encode_table(self._header, self._entries))

    def _put(self, block: bytes) -> None:
        packed = bytes(_zstd.compress(block, level=_LEVEL))
        stored = packed if len(packed) < len(block) else block
        self._entries.append((len(stored), xxh3_64_intdigest(stored)))
        self._write(stored)

    def _write(self, data: bytes) -> None:
        write_all(self._file, self._path, data, self.size)
        self.size += len(data)


def is_worth_packing(file: Readable) -> bool:
    """Whether packing a .data would save enough, estimated from a few of its blocks. Raises OSError."""
    blocks = -(-file.size() // BLOCK_BYTES)
    before = after = 0
    for number in {blocks * sample // _SAMPLES for sample in range(_SAMPLES)}:
        block = file.pread(BLOCK_BYTES, number * BLOCK_BYTES)
        before += len(block)
        after += len(_zstd.compress(block, level=_LEVEL))
    return after < before * _WORTH


def open_data(fs: FileSystem, root: str, id: SegmentId) -> Readable:
    """Open the .data of a hot segment, or what reads like it. Raises FileNotFoundError, SegmentShort, OSError."""
    path = names.records_path(root, id)
    return read_as_data(fs.open(path, write=False), path, id)


def read_as_data(file: File, path: str, id: SegmentId, cache: BlockCache | None = None) -> Readable:
    """The same for a file that is already open. Closes the file on failure."""
    if not id.packed:
        return file
    try:
        return PackedData(file, path, id, cache)
    except BaseException:
        file.close()
        raise
