"""Frames by reference: where each frame is in a buffer, and the fields of its header, as columns of numbers.

There is one row per frame, in the machine's own byte order, so that compiled code reads and writes only rows:

    off  size  field
    0    8     offset u64       of the frame in the buffer
    8    8     topic_id u64
    16   8     seq u64
    24   8     ts u64           ms since the epoch
    32   4     size u32         bytes of the whole frame
    36   4     data_len u32
    40   2     node_len u16
    42   2     tag_len u16
    44   1     type u8          FrameType; of a segment's frame always Append
    45   1     flags u8         FrameFlag bits and the hop count
    46   1     delete_byte u8   0 in the log
    47   1     header_len u8    bytes in front of the node: 38 in the log, 37 in a segment

Rows never reach a disk or another machine.

Source: docs/reference/format.md#frames.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Iterator

ROW = struct.Struct("=QQQQIIHHBBBB")
ROW_SIZE = ROW.size  # 48
#: Where in a row the flags are.
FLAGS_AT = 45
#: Flags of a frame that has a tag or a node.
_LABELS = bytes(flags for flags in range(256) if flags & 0b11)


class Columns:
    """Verified frames, in the order of their buffer. The buffer itself is not kept.

    Immutable. Each use of a property creates a new array (about 10 ns per frame): read it once and keep it.
    """

    __slots__ = ("count", "rows")

    def __init__(self, rows: bytes = b"") -> None:
        """`rows`: as above. The caller guarantees that they are correct."""
        self.rows = rows
        #: The number of frames, like `len`.
        self.count = len(rows) // ROW_SIZE

    def __len__(self) -> int:
        return self.count

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Columns) and self.rows == other.rows

    def __hash__(self) -> int:
        return hash(self.rows)

    def __repr__(self) -> str:
        return f"<{len(self)} frames>"

    def __iter__(self) -> Iterator[tuple[int, int, int, int, int, int, int, int, int, int, int, int]]:
        """Each frame as `row` returns it."""
        return ROW.iter_unpack(self.rows)

    def row(self, index: int) -> tuple[int, int, int, int, int, int, int, int, int, int, int, int]:
        """(offset, topic_id, seq, ts, size, data_len, node_len, tag_len, type, flags, delete_byte, header_len) of one
        frame. Raises IndexError."""
        return ROW.unpack_from(self.rows, range(self.count)[index] * ROW_SIZE)

    def between(self, begin: int, end: int) -> Columns:
        """The frames with numbers [begin, end), counted from 0."""
        return self if begin <= 0 and end >= self.count else Columns(self.rows[begin * ROW_SIZE : end * ROW_SIZE])

    def with_seqs(self, seqs: array[int]) -> Columns:
        """The same frames with these seqs (u64, one for each)."""
        rows = array("Q", self.rows)
        rows[2 :: ROW_SIZE // 8] = seqs
        return Columns(rows.tobytes())

    def take(self, numbers: Iterable[int]) -> Columns:
        """The frames with these numbers, in this order."""
        rows = self.rows
        return Columns(b"".join([rows[number * ROW_SIZE : (number + 1) * ROW_SIZE] for number in numbers]))

    @property
    def offsets(self) -> array[int]:
        """Where each frame begins in the buffer; u64."""
        return self._u64(0)

    @property
    def topic_ids(self) -> array[int]:
        """u64."""
        return self._u64(1)

    @property
    def seqs(self) -> array[int]:
        """u64; 0 of frames other than Append."""
        return self._u64(2)

    @property
    def stamps(self) -> array[int]:
        """Times, ms since the epoch; u64."""
        return self._u64(3)

    @property
    def sizes(self) -> array[int]:
        """Bytes of each whole frame; u32."""
        return self._u32(8)

    @property
    def data_lens(self) -> array[int]:
        """Bytes of each body; u32."""
        return self._u32(9)

    @property
    def node_lens(self) -> array[int]:
        """u16."""
        return self._u16(20)

    @property
    def tag_lens(self) -> array[int]:
        """u16."""
        return self._u16(21)

    @property
    def types(self) -> bytes:
        """FrameType, a byte each."""
        return self.rows[44::ROW_SIZE]

    @property
    def flags(self) -> bytes:
        """FrameFlag bits 0-4 and the hop count in bits 5-7, a byte each."""
        return self.rows[FLAGS_AT::ROW_SIZE]

    @property
    def delete_bytes(self) -> bytes:
        """0x00 live, 0xD5 deleted, a byte each; of frames of the log always 0."""
        return self.rows[46::ROW_SIZE]

    @property
    def body_bytes(self) -> int:
        """Bytes of all bodies."""
        rows, count = self.rows, self.count
        if not count:
            return 0
        begin, _, first_seq, _, size, data_len, _, _, _, _, _, _ = ROW.unpack_from(rows)
        if count == 1:
            return data_len
        last, _, last_seq, _, last_size, *_ = ROW.unpack_from(rows, len(rows) - ROW_SIZE)
        if last_seq - first_seq == count - 1 and len(rows[FLAGS_AT::ROW_SIZE].translate(None, _LABELS)) == count:
            return last + last_size - begin - count * (size - data_len)  # adjacent frames without nodes and tags
        return sum(self.data_lens)

    @property
    def data_offsets(self) -> array[int]:
        """Where in the buffer each body begins; u64."""
        parts = zip(self.offsets, self.node_lens, self.tag_lens, self.rows[47::ROW_SIZE], strict=True)
        return array("Q", [offset + node_len + tag_len + header for offset, node_len, tag_len, header in parts])

    @property
    def end(self) -> int:
        """Where in the buffer the last frame ends; 0 if there is none."""
        if not self.rows:
            return 0
        row = ROW.unpack_from(self.rows, len(self.rows) - ROW_SIZE)
        return row[0] + row[4]

    def _u64(self, index: int) -> array[int]:
        return _column("Q", memoryview(self.rows).cast("Q")[index :: ROW_SIZE // 8])

    def _u32(self, index: int) -> array[int]:
        return _column("I", memoryview(self.rows).cast("I")[index :: ROW_SIZE // 4])

    def _u16(self, index: int) -> array[int]:
        return _column("H", memoryview(self.rows).cast("H")[index :: ROW_SIZE // 2])


def _column(typecode: str, view: memoryview[int]) -> array[int]:
    column: array[int] = array(typecode)  # pyright: ignore
    column.frombytes(view.tobytes())
    return column


# -- columns whose numbers are usually all equal ----------------------------------------------------------------------

#: Up to this count, adding the numbers one by one is as fast as comparing them.
_FEW = 8


def all_equal(numbers: array[int]) -> bool:
    """Whether all numbers are equal, as sizes usually are. Creates no Python number for each."""
    return numbers[:1] * len(numbers) == numbers


def total(numbers: array[int]) -> int:
    """The sum. If all numbers are equal, creates no Python number for each."""
    count = len(numbers)
    return numbers[0] * count if count > _FEW and numbers[:1] * count == numbers else sum(numbers)


def largest(numbers: array[int]) -> int:
    """The largest number. If all are equal, creates no Python number for each. Raises ValueError for no numbers."""
    return numbers[0] if len(numbers) > _FEW and all_equal(numbers) else max(numbers)
