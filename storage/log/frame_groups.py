"""Reads the frames of a log the way recovery wants them: many alike in one go.

The same frames as `reader.parse` finds, verified in the same way. But plain Append frames (data alone, no tag) that go
on from one another come together, as columns of numbers instead of a tuple each: the frames of a batch as one
`FrameGroup`, frames that stand alone as one `LoneFrames` a log. Nearly all of a large log is such frames; reading it
becomes several times faster.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from storage.format.checksum import checksum
from storage.format.record import PLAIN_OVERHEAD, FurtherKeys
from storage.format.wal_frame import CHECKSUM, FIXED_LEN, HEADER, HEADER_SIZE, MORE, OVERHEAD, FrameType
from storage.log.reader import RawFrame

_APPEND = int(FrameType.APPEND)
# wal_frame.HEADER in parts that the frames of a run have in common (opening: type, flags, topic_id; middle: ts,
# node_len, tag_len) and parts that differ. _NEXT begins with the checksum of the frame before.
_FIRST = struct.Struct("<I10sQ12sI")
_NEXT = struct.Struct("<QI10sQ12sI")
_FLAGS_OFFSET = 5
#: So many frames are taken as a range at least: fewer are read faster one by one.
_MIN_EQUAL = 16
_MAX_EQUAL = 256


class FrameGroup(NamedTuple):
    """Append frames of one batch, back to back in a chunk's bytes from `start` to `end`: consecutive seqs, and the same
    log, ts and length of node. `ends`: the last one completes the batch.
    """

    start: int
    end: int
    topic_id: int
    first_seq: int
    ts: int
    node_len: int
    data_lens: list[int]
    ends: bool


class LoneFrames(NamedTuple):
    """Append frames of one log with consecutive seqs, each a unit of its own; frames of other logs may lie between."""

    topic_id: int
    first_seq: int
    stamps: list[int]
    starts: list[int]
    sizes: list[int]
    payloads: list[int]


class LoneGroup(NamedTuple):
    """All that stands in a chunk's bytes from `start` to `end`."""

    start: int
    end: int
    logs: list[LoneFrames]


Item: TypeAlias = RawFrame | FrameGroup | LoneGroup


class FrameGroupParser:
    """Parses the chunks of one file in order. Lone frames are taken together from the offset `group_from` on."""

    def __init__(self, group_from: int) -> None:
        self._group_from = group_from
        self._inside = False  # the frame before says that its batch goes on

    def parse(self, data: bytes, base: int) -> tuple[list[Item], int, str]:
        """As `reader.parse` from the beginning of `data`, which lies at `base` in the file."""
        items: list[Item] = []
        unpack, unpack_sum = HEADER.unpack_from, CHECKSUM.unpack_from
        further, lone = FurtherKeys(data), _Lone(items)
        at, size, inside, lone_from = 0, len(data), self._inside, self._group_from - base
        reason = ""
        while True:
            if size - at < OVERHEAD:
                reason = "short" if at < size else ""
                break
            length, type_, flags, topic_id, seq, ts, node_len, tag_len, data_len = unpack(data, at)
            if length != FIXED_LEN + node_len + tag_len + data_len:
                reason = "zero" if length == 0 else "length"
                break
            end = at + length - 4
            if end + 8 > size:
                reason = "short"
                break
            plain = type_ == _APPEND and not tag_len and data_len > PLAIN_OVERHEAD and further.next_from(at) >= end
            if plain and inside and flags & MORE:
                stop = further.next_from(at)
                count, ends = _parse_equal(data, at, length + 4, stop)
                if count:
                    stop, data_lens = at + count * (length + 4), [data_len] * count
                else:
                    data_lens, stop, ends = _parse_group(data, at, stop)
                if data_lens:
                    items.append(FrameGroup(at, stop, topic_id, seq, ts, node_len, data_lens, ends))
                    at, inside = stop, not ends
                    continue
            if checksum(data[at + 4 : end]) != unpack_sum(data, end)[0]:
                reason = "checksum"
                break
            if plain and not inside and not flags & MORE and at >= lone_from:
                lone.add(at, topic_id, seq, ts, length + 4, data_len - PLAIN_OVERHEAD)
            else:
                lone.flush(at)
                items.append((at, type_, flags, topic_id, seq, ts, node_len, tag_len, data_len))
                inside = flags & MORE != 0
            at = end + 8
        lone.flush(at)
        self._inside = inside
        return items, at, reason


class _Lone:
    """Frames that stand alone, by log, until something else comes."""

    def __init__(self, items: list[Item]) -> None:
        self._items = items
        self._start = 0
        self._logs: dict[int, LoneFrames] = {}
        self._next: dict[int, int] = {}

    def add(self, at: int, topic_id: int, seq: int, ts: int, size: int, payload: int) -> None:
        if self._next.get(topic_id) != seq:
            self._begin(at, topic_id, seq)
        log = self._logs[topic_id]
        log[2].append(ts)
        log[3].append(at)
        log[4].append(size)
        log[5].append(payload)
        self._next[topic_id] = seq + 1

    def _begin(self, at: int, topic_id: int, seq: int) -> None:
        if topic_id in self._logs:
            self.flush(at)
        if not self._logs:
            self._start = at
        self._logs[topic_id] = LoneFrames(topic_id, seq, [], [], [], [])

    def flush(self, end: int) -> None:
        if self._logs:
            self._items.append(LoneGroup(self._start, end, list(self._logs.values())))
            self._logs, self._next = {}, {}


def _parse_group(data: bytes, at: int, stop: int) -> tuple[list[int], int, bool]:
    """Data lengths of the verified frames from `at` on that continue one another and end before `stop`; where they end;
    whether the last one ends their batch. The frame at `at` is a plain Append. A frame that cannot be told here (its
    checksum is wrong, or it is too near the end of the bytes) is left to the caller.
    """
    length, opening, seq, middle, data_len = _FIRST.unpack_from(data, at)
    unpack, limit = _NEXT.unpack_from, min(stop, len(data) - _NEXT.size)
    fixed, last_opening = length - data_len, opening[:1] + bytes((opening[1] & ~MORE,)) + opening[2:]
    data_lens: list[int] = []
    add, final = data_lens.append, False
    while (end := at + length - 4) <= limit:
        # In one go: this frame's checksum, and as much of the next one's header as has to be compared.
        stored, length, next_opening, next_seq, next_middle, next_len = unpack(data, end)
        if checksum(data[at + 4 : end]) != stored:
            break
        add(data_len)
        at = end + 8
        if final:
            return data_lens, at, True
        if next_opening != opening:
            final = next_opening == last_opening
            if not final:
                break
        seq, data_len = seq + 1, next_len
        if next_seq != seq or next_middle != middle or length != fixed + data_len or data_len <= PLAIN_OVERHEAD:
            break
    return data_lens, at, False


@lru_cache(maxsize=256)
def _fields(size: int, count: int) -> tuple[struct.Struct, struct.Struct]:
    """Take `count` frames of `size` bytes each apart: the header of each in three parts; of each what is under the
    checksum, and the checksum. All in one tuple, which is cheaper to make and to slice than one for each frame.
    """
    headers, frames = f"14sQ16s{size - HEADER_SIZE}x", f"4x{size - 12}sQ"
    return struct.Struct("<" + headers * count), struct.Struct("<" + frames * count)


def _parse_equal(data: bytes, at: int, size: int, stop: int) -> tuple[int, bool]:
    """How many verified frames of `size` bytes there are from `at` on, all before `stop`, that differ in data alone and
    have consecutive seqs, 0 = hardly any; whether the last one ends their batch. Says what `_parse_group` would say of
    them, in less time.

    The frame at `at` is a plain Append of `size` bytes whose batch goes on.
    """
    count = min((min(stop, len(data)) - at) // size, _MAX_EQUAL)
    if count < _MIN_EQUAL:
        return 0, False
    flags = data[at + _FLAGS_OFFSET : at + count * size : size]
    going_on = count - len(flags.lstrip(flags[:1]))
    ends = going_on < count and flags[going_on] == flags[0] & ~MORE
    count = going_on + ends
    if count < _MIN_EQUAL:
        return 0, False
    headers, frames = _fields(size, count)
    parts = headers.unpack_from(data, at)
    opening, first_seq, middle = parts[:3]
    openings = opening * going_on
    if ends:
        openings += opening[:_FLAGS_OFFSET] + flags[going_on : going_on + 1] + opening[_FLAGS_OFFSET + 1 :]
    if b"".join(parts[::3]) != openings or b"".join(parts[2::3]) != middle * count:
        return 0, False
    if parts[1::3] != tuple(range(first_seq, first_seq + count)):
        return 0, False
    found = frames.unpack_from(data, at)
    sums, stored = tuple(map(checksum, found[::2])), found[1::2]
    if sums != stored:
        return next(index for index in range(count) if sums[index] != stored[index]), False
    return count, ends
