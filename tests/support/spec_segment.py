"""A segment's .data and .idx, decoded from the storage specification alone.

Nothing of the package under test is imported here, so that a misunderstanding cannot be shared.

    .data frame                                     .idx entry, entry i is seq first_seq + i
    0   frame_len u32 = 42 + the three lengths      0   offset u32
    4   flags u8                                    4   len u32 = frame_len + 4; 0: no record
    5   topic_id u64                                8   ts u64; no record: the ts before it, 0 if none
    13  seq u64                                     16  flags u8: bit 0 tag, bit 1 node, bit 2 deleted
    21  ts u64                                      17  low 24 bits of xxh3 over bytes [0 .. 17)
    29  node_len u16, tag_len u16, data_len u32
    37  node, tag, data, xxh3 u64 over 0x01 ++ bytes [4 .. checksum), delete byte 0x00 or 0xD5

Readings, where the specification leaves a choice:

- frame_len keeps the log's value 42 + node_len + tag_len + data_len. The frame has one byte less (type) and one more
  (delete byte) than in the log, so all of it, delete byte included, is frame_len + 4 bytes: the len of its entry.
- Frames lie in .data in the order of their seqs without a gap from byte 0, and .data ends with the last one.
- An entry without a record has flags 0, and the offset at which the next frame is.
- A record's tag and node bits in .idx are those of its frame, and agree with the lengths.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

import xxhash

ENTRY_BYTES = 20
HEADER_BYTES = 37
LEAST_FRAME_LEN = 42
DELETE_BYTES = {0x00: False, 0xD5: True}

_NAME = re.compile(r"topics/([0-9a-f]{16})/seg-([0-9]{20})(\.[1-9][0-9]*)?\.(data|zdata|idx|tag|len)")


class SegmentViolation(Exception):
    """Bytes that are not as the specification says; names file, offset and reason."""

    def __init__(self, file: str, offset: int, reason: str) -> None:
        super().__init__(f"{file} at {offset}: {reason}")
        self.file, self.offset, self.reason = file, offset, reason


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRecord:
    """A record and where it is in .data."""

    offset: int
    size: int
    flags: int
    topic_id: int
    seq: int
    ts: int
    node: bytes
    tag: bytes
    data: bytes
    deleted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentIndexEntry:
    """One entry of .idx; `size` 0 when there is no record."""

    offset: int
    size: int
    ts: int
    has_tag: bool
    has_node: bool
    deleted: bool


def decode_name(path: str) -> tuple[int, int, int, str]:
    """(topic_id, first_seq, gen, ending) of a path below the data directory."""
    match = _NAME.fullmatch(path)
    if match is None:
        raise SegmentViolation(path, 0, "not the name of a segment's file")
    return int(match[1], 16), int(match[2]), int(match[3][1:]) if match[3] else 0, match[4]


def decode_data(content: bytes, name: str = "data") -> list[SegmentRecord]:
    """Every frame of a .data file, from byte 0 to its end."""
    records: list[SegmentRecord] = []
    offset = 0
    while offset < len(content):
        records.append(_decode_frame(content, offset, name))
        offset += records[-1].size
    return records


def _decode_frame(content: bytes, offset: int, name: str) -> SegmentRecord:
    def wrong(reason: str) -> SegmentViolation:
        return SegmentViolation(name, offset, reason)

    def integer(at: int, size: int) -> int:
        return int.from_bytes(content[offset + at : offset + at + size], "little")

    left = len(content) - offset
    if left < LEAST_FRAME_LEN + 4:
        raise wrong(f"{left} bytes are left, too few for a frame")
    frame_len, node_len, tag_len, data_len = integer(0, 4), integer(29, 2), integer(31, 2), integer(33, 4)
    if frame_len != LEAST_FRAME_LEN + node_len + tag_len + data_len:
        raise wrong(f"frame_len {frame_len} is not 42 + {node_len} + {tag_len} + {data_len}")
    checksum_at = HEADER_BYTES + node_len + tag_len + data_len
    size = checksum_at + 8 + 1
    if size > left:
        raise wrong(f"a frame of {size} bytes passes the end of the file")
    hashed = b"\x01" + content[offset + 4 : offset + checksum_at]
    if integer(checksum_at, 8) != xxhash.xxh3_64_intdigest(hashed, seed=0):
        raise wrong("the checksum does not fit")
    delete_byte = content[offset + size - 1]
    if delete_byte not in DELETE_BYTES:
        raise wrong(f"delete byte {delete_byte:#04x}")
    node_at = offset + HEADER_BYTES
    record = SegmentRecord(
        offset=offset,
        size=size,
        flags=content[offset + 4],
        topic_id=integer(5, 8),
        seq=integer(13, 8),
        ts=integer(21, 8),
        node=content[node_at : node_at + node_len],
        tag=content[node_at + node_len : node_at + node_len + tag_len],
        data=content[node_at + node_len + tag_len : offset + checksum_at],
        deleted=DELETE_BYTES[delete_byte],
    )
    if bool(record.flags & 1) != bool(record.tag) or bool(record.flags & 2) != bool(record.node):
        raise wrong("the bits for tag and node do not fit their lengths")
    return record


def decode_idx(content: bytes, name: str = "idx") -> list[SegmentIndexEntry]:
    """Every entry of an .idx file."""
    if len(content) % ENTRY_BYTES:
        raise SegmentViolation(name, len(content), "the last entry is cut short")
    return [_decode_entry(content[at : at + ENTRY_BYTES], at, name) for at in range(0, len(content), ENTRY_BYTES)]


def _decode_entry(entry: bytes, at: int, name: str) -> SegmentIndexEntry:
    digest = xxhash.xxh3_64_intdigest(entry[:17], seed=0)
    if int.from_bytes(entry[17:], "little") != digest % (1 << 24):
        raise SegmentViolation(name, at, "the low 24 bits of the checksum do not fit")
    flags = entry[16]
    if flags > 7:
        raise SegmentViolation(name, at, f"flags {flags:#04x}")
    return SegmentIndexEntry(
        offset=int.from_bytes(entry[0:4], "little"),
        size=int.from_bytes(entry[4:8], "little"),
        ts=int.from_bytes(entry[8:16], "little"),
        has_tag=bool(flags & 1),
        has_node=bool(flags & 2),
        deleted=bool(flags & 4),
    )


def _never(record: SegmentRecord) -> bool:
    return False


def decode_segment(
    data: bytes,
    idx: bytes,
    *,
    topic_id: int,
    first_seq: int,
    end_seq: int,
    name: str = "segment",
    being_flagged: Callable[[SegmentRecord], bool] = _never,
    idx_decides: bool = False,
) -> dict[int, SegmentRecord]:
    """Decode and compare both files of a settled segment. Returns its records by seq, including deleted ones.

    `being_flagged`: whether the log says that a record is gone, so that .idx may not know yet what .data knows.
    `idx_decides`: .data never changes, so .idx may name more records as deleted.
    """
    records = decode_data(data, f"{name}.data")
    entries = decode_idx(idx, f"{name}.idx")
    if len(entries) != end_seq - first_seq:
        raise SegmentViolation(f"{name}.idx", len(idx), f"{len(entries)} entries for [{first_seq}, {end_seq})")
    by_seq = {record.seq: record for record in records}
    if [*by_seq] != sorted(by_seq) or len(by_seq) != len(records):
        raise SegmentViolation(f"{name}.data", 0, "the frames are not in the order of their seqs")
    if wrong := [record for record in records if record.topic_id != topic_id]:
        raise SegmentViolation(f"{name}.data", wrong[0].offset, f"a frame of log {wrong[0].topic_id}")
    if outside := by_seq.keys() - range(first_seq, end_seq):
        raise SegmentViolation(f"{name}.data", 0, f"seqs {sorted(outside)} are not in [{first_seq}, {end_seq})")
    offset = ts = 0
    for index, entry in enumerate(entries):
        record = by_seq.get(first_seq + index)
        if record is not None and idx_decides and entry.deleted:
            record = by_seq[record.seq] = replace(record, deleted=True)
        if record is None:
            expected = SegmentIndexEntry(offset=offset, size=0, ts=ts, has_tag=False, has_node=False, deleted=False)
        else:
            if record.ts < ts:
                raise SegmentViolation(f"{name}.data", record.offset, f"ts {record.ts} after {ts}")
            offset, ts = record.offset + record.size, record.ts
            expected = SegmentIndexEntry(
                offset=record.offset,
                size=record.size,
                ts=ts,
                has_tag=bool(record.tag),
                has_node=bool(record.node),
                deleted=record.deleted,
            )
        if record is not None and record.deleted and not entry.deleted and being_flagged(record):
            expected = replace(expected, deleted=False)
        if entry != expected:
            raise SegmentViolation(f"{name}.idx", index * ENTRY_BYTES, f"{entry}, though .data says {expected}")
    return by_seq
