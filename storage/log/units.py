"""Groups the frames of a WAL file into atomic units: a unit appears only when its last frame has been verified.

Source: docs/reference/format.md#frames, docs/reference/guarantees.md#recovery.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import msgspec

import kernel
from kernel import GroupKind, Part
from kernel.rows import FLAGS_AT, ROW, ROW_SIZE
from storage.format import MORE, Batch, FrameFlag, FrameType, SyncPoint, control, wal_frame
from storage.log.files import MAX_OFFSET, position
from storage.log.reader import Chunk, FrameStream
from storage.log.submission import AppendStep, BatchesStep, ControlStep, Step, Unit
from storage.records import AppendedRecords

Row: TypeAlias = tuple[int, int, int, int, int, int, int, int, int, int, int, int]
_TAGGED = bytes(flags for flags in range(256) if flags & FrameFlag.HAS_TAG)


class ScannedUnit(NamedTuple):
    """A whole unit and its byte offsets in the file."""

    offset: int
    end: int
    unit: Unit
    frames: int


class BadUnit(ValueError):
    """Frames with valid checksums that do not make sense together; `offset` in the file."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


class _Builder:
    """The unit whose last frame has not come yet."""

    __slots__ = ("appended", "batch", "body_offset", "frames", "offset", "size", "steps")

    def __init__(self) -> None:
        self.frames = 0

    def begin(self, offset: int) -> None:
        self.offset = offset
        self.frames = 0
        self.size = 0
        self.body_offset = 0
        self.batch: Batch | None = None
        self.steps: list[Step] = []
        self.appended: AppendedRecords | None = None

    def add(self, topic_id: int, offset: int, end: int, found: AppendedRecords) -> None:
        """Append frames that are adjacent from `offset` to `end` of the file."""
        last, count = self.appended, len(found.sizes)
        if (
            last is None
            or found.first_seq != last.last_seq + 1
            or last.ts != found.ts
            or self.steps[-1].topic_id != topic_id
        ):
            self.appended = found
            self.steps.append(AppendStep(topic_id, found, offset - self.offset))
        else:
            last.sizes.extend(found.sizes)
            last.payloads.extend(found.payloads)
            last.tagged.extend(found.tagged)
            if found.delayed:
                last.delayed = [*last.delayed, *found.delayed]
        self.frames += count
        self.size += end - offset

    def control(self, type_: int, topic_id: int, ts: int, node: bytes, data: bytes) -> None:
        self.appended = None
        value: Any = control.decode_control(type_, data)
        if isinstance(value, Batch):
            self.batch = value
            self.size = 0
            return
        self.steps.append(ControlStep(type_, topic_id, ts, value, node.decode()))


class UnitScan:
    """Units of one file.

    From the offset `group_from` on, consecutive units of a log that hold only data may be merged into one; then only
    the order within each log is kept. `ahead`: the file is read and verified in a thread, a piece ahead.

    After `units()`: `end` = end of the last whole unit, `loose_frames` = valid frames after it, `reason` as
    FrameStream's, `sync_point` = the newest seen, `last_ts` and `max_topic_id` over all frames.
    """

    def __init__(self, stream: FrameStream, number: int, group_from: int = MAX_OFFSET, *, ahead: bool = False) -> None:
        self.end = stream.end
        self.frames = 0
        self.loose_frames = 0
        self.loose_end = 0
        self.loose_steps: list[Step] = []
        self.reason = ""
        self.sync_point: SyncPoint | None = None
        self.last_ts = 0
        self.max_topic_id = 0
        self._stream = stream
        self._ahead = ahead
        self._group_from = group_from
        self._number = number
        self._builder = _Builder()

    def units(self) -> Iterator[ScannedUnit]:
        """Raises BadUnit, control.UnknownFrameType, OSError."""
        builder, inside = self._builder, False
        for chunk in self._stream.chunks_ahead() if self._ahead else self._stream.chunks():
            measured = _Measured(chunk)
            for first, end, kind in kernel.groups(chunk.bytes, chunk.frames, inside):
                if kind == GroupKind.DATA:
                    yield from self._data(chunk, measured, first, end)
                elif (unit := self._take(chunk, measured, first, end, kind)) is not None:
                    yield unit
            inside = bool(chunk.frames.rows[-ROW_SIZE + FLAGS_AT] & MORE)
        self.loose_frames = builder.frames
        self.loose_steps = builder.steps if builder.frames else []
        if builder.frames and builder.batch is not None:
            # The extent of the incomplete batch: no frame in it may be mistaken for a separate unit.
            self.loose_end = builder.body_offset + builder.batch.body_bytes
        self.frames += builder.frames
        self.reason = self._stream.reason or ("batch" if builder.frames else "")

    def _take(self, chunk: Chunk, measured: _Measured, first: int, end: int, kind: int) -> ScannedUnit | None:
        """The next frames of a unit: a control frame, or Appends with consecutive seqs. The unit, if it is whole."""
        base, table, builder = chunk.base, chunk.frames.rows, self._builder
        row = ROW.unpack_from(table, first * ROW_SIZE)
        last = row if end == first + 1 else ROW.unpack_from(table, (end - 1) * ROW_SIZE)
        begins, ends = base + row[0], base + last[0] + last[4]
        if builder.frames == 0:
            builder.begin(begins)
        if row[1] > self.max_topic_id:
            self.max_topic_id = row[1]
        if kind == GroupKind.CONTROL:
            self._control(chunk, row)
        else:
            builder.add(row[1], begins, ends, measured.appended(first, end, row))
        if not last[9] & MORE:
            return self._finish(row[3], ends)
        if builder.batch is None:
            raise BadUnit("a batch does not begin with a Batch frame", builder.offset)
        return None

    def _data(self, chunk: Chunk, measured: _Measured, first: int, end: int) -> Iterator[ScannedUnit]:
        """Whole units that hold only data, merged as far as allowed."""
        begin = first
        for number in measured.apart(first, end, self._group_from - chunk.base):
            if number < begin:
                continue  # of a unit that was taken already
            start, stop = measured.unit_of(number)
            yield from self._merged(chunk, measured, begin, start)
            begin = stop
            if stop > start + 1:
                self._take(chunk, measured, start, start + 1, GroupKind.CONTROL)
                start += 1
            unit = self._take(chunk, measured, start, stop, GroupKind.BATCHED)
            assert unit is not None
            yield unit
        yield from self._merged(chunk, measured, begin, end)

    def _merged(self, chunk: Chunk, measured: _Measured, begin: int, end: int) -> Iterator[ScannedUnit]:
        """Merge the frames of these numbers into one unit for each log."""
        if begin == end:
            return
        some = chunk.frames.between(begin, end)
        start, self.end = chunk.base + some.row(0)[0], chunk.base + some.end
        base = position(self._number, chunk.base)
        payloads = measured.payloads[begin:end]
        for batches in kernel.by_topic(chunk.bytes, some, payloads, base):
            self.max_topic_id = max(self.max_topic_id, batches.topic_id)
            self.last_ts = max(self.last_ts, batches.stamps[-1])
            frames = len(batches.sizes) + len(batches.leads) - batches.leads.count(0)
            self.frames += frames
            yield ScannedUnit(start, self.end, Unit(None, [BatchesStep(batches.topic_id, batches)]), frames)

    def _control(self, chunk: Chunk, row: Row) -> None:
        at, topic_id, _, ts, size, data_len, node_len, tag_len, type_, *_ = row
        node_at, offset, builder = at + wal_frame.HEADER_SIZE, chunk.base + at, self._builder
        data_at = node_at + node_len + tag_len
        node, data = chunk.bytes[node_at : node_at + node_len], chunk.bytes[data_at : data_at + data_len]
        try:
            builder.control(type_, topic_id, ts, node, data)
        except msgspec.DecodeError as error:
            raise BadUnit(f"a control frame of type {type_} does not decode: {error}", offset) from error
        builder.frames += 1
        if type_ == FrameType.BATCH:
            builder.size = 0  # `bytes` counts what follows the Batch frame
            builder.body_offset = offset + size
        else:
            builder.size += size

    def _finish(self, ts: int, end: int) -> ScannedUnit:
        builder = self._builder
        batch = builder.batch
        if batch is not None and (batch.frames != builder.frames - 1 or batch.body_bytes != builder.size):
            raise BadUnit("a Batch frame does not fit the frames after it", builder.offset)
        self.last_ts = max(self.last_ts, ts)
        self.frames += builder.frames
        self.end = end
        steps = builder.steps
        if len(steps) == 1 and isinstance(steps[0], ControlStep) and isinstance(steps[0].value, SyncPoint):
            if steps[0].value.at != builder.offset or steps[0].value.file != self._number:
                raise BadUnit("a SyncPoint stands where it does not belong", builder.offset)
            self.sync_point = steps[0].value
            steps = []
        found = ScannedUnit(builder.offset, self.end, Unit(batch, steps), builder.frames)
        builder.frames = 0
        return found


class _Measured:
    """The frames of a chunk, all measured at once on first use."""

    def __init__(self, chunk: Chunk) -> None:
        self._chunk = chunk

    @cached_property
    def _all(self) -> kernel.Measured:
        return kernel.measure(self._chunk.bytes, self._chunk.frames)

    @cached_property
    def _sizes(self) -> array[int]:
        return self._chunk.frames.sizes

    @cached_property
    def _flags(self) -> bytes:
        return self._chunk.frames.flags

    @property
    def payloads(self) -> array[int]:
        return self._all.payloads

    def appended(self, first: int, end: int, row: Row) -> AppendedRecords:
        """Frames of these numbers, which are of one log and time, with consecutive seqs; `row`: the first. Raises
        BadUnit."""
        chunk, (payloads, _, bad) = self._chunk, self._all
        if first <= bad < end:
            raise BadUnit("an Append frame does not hold a record", chunk.base + chunk.frames.row(bad)[0])
        _, _, first_seq, ts, *_ = row
        tagged: list[tuple[bytes, int]] = []
        if len(self._flags[first:end].translate(None, _TAGGED)) < end - first:
            tags = enumerate(kernel.cut(chunk.bytes, chunk.frames.between(first, end), Part.TAG), first_seq)
            tagged = [(tag, seq) for seq, tag in tags if tag]
        late = [(first_seq + number - first, due) for number, due in self._delayed(first, end)] or ()
        return AppendedRecords(first_seq, ts, self._sizes[first:end], payloads[first:end], tagged, late)

    def apart(self, first: int, end: int, group_from: int) -> list[int]:
        """The frames of these numbers whose units must be taken one by one, ascending. `group_from`: units that begin
        before it are."""
        apart = {number for number, _ in self._delayed(first, end)}
        if first <= self._all.bad < end:
            apart.add(self._all.bad)
        if group_from > self._chunk.frames.row(first)[0]:
            apart.update(range(first, bisect_left(self._chunk.frames.offsets, group_from, first, end)))
        return sorted(apart)

    def _delayed(self, first: int, end: int) -> list[tuple[int, int]]:
        delayed = self._all.delayed
        return delayed[bisect_left(delayed, (first,)) : bisect_left(delayed, (end,))] if delayed else []

    def unit_of(self, number: int) -> tuple[int, int]:
        """First and end of the unit with this frame, which is whole."""
        first, end = number, number + 1
        while first and self._flags[first - 1] & MORE:
            first -= 1
        while self._flags[end - 1] & MORE:
            end += 1
        return first, end
