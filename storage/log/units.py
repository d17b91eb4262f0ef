"""Groups the frames of a WAL file into atomic units: a unit appears only when its last frame has been verified.

Source: docs/reference/format.md#frames, docs/reference/guarantees.md#recovery.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec

import kernel
from kernel import Columns, GroupKind, Part
from kernel.columns import FLAGS_AT, ROW, ROW_SIZE
from storage.format import MORE, Batch, FrameFlag, FrameType, SyncPoint, control, wal_frame
from storage.log.position import MAX_OFFSET
from storage.log.reader import Chunk, FrameStream
from storage.log.submission import AppendStep, ControlStep, LoneAppendsStep, Step, Unit
from storage.records import AppendedRecords, LoneAppends

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
        """Append frames that lie one behind the other from `offset` to `end` of the file."""
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
                self.appended = last._replace(delayed=[*last.delayed, *found.delayed])
                self.steps[-1] = AppendStep(topic_id, self.appended, self.steps[-1].offset)  # type: ignore[union-attr]
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

    Frames that stand alone are units of their own. From the offset `group_from` on those of a log that follow one
    another may come as one unit; then their order is kept within each log only. `ahead`: the file is read and verified
    in a thread, a piece ahead.

    After `units()`: `end` = end of the last whole unit, `loose_frames` = valid frames behind it, `reason` as
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
        builder, inside, unpack = self._builder, False, ROW.unpack_from
        for chunk in self._stream.chunks_ahead() if self._ahead else self._stream.chunks():
            base, table, measured = chunk.base, chunk.frames.rows, _Measured(chunk)
            for first, end, kind in kernel.groups(chunk.frames, inside):
                if kind == GroupKind.ALONE:
                    yield from self._alone(chunk, chunk.frames.between(first, end))
                    continue
                row = unpack(table, first * ROW_SIZE)
                last = row if end == first + 1 else unpack(table, (end - 1) * ROW_SIZE)
                begins, ends = base + row[0], base + last[0] + last[4]
                if builder.frames == 0:
                    builder.begin(begins)
                if row[1] > self.max_topic_id:
                    self.max_topic_id = row[1]
                if kind == GroupKind.BATCHED:
                    builder.add(row[1], begins, ends, measured.appended(first, end, row))
                else:
                    self._control(chunk, row)
                if not last[9] & MORE:
                    yield self._finish(row[3], ends)
                elif builder.batch is None:
                    raise BadUnit("a batch does not begin with a Batch frame", builder.offset)
            inside = bool(table[-ROW_SIZE + FLAGS_AT] & MORE)
        self.loose_frames = builder.frames
        self.loose_steps = builder.steps if builder.frames else []
        if builder.frames and builder.batch is not None:
            # What the incomplete batch would have taken: nothing of it may be mistaken for a unit of its own.
            self.loose_end = builder.body_offset + builder.batch.body_bytes
        self.frames += builder.frames
        self.reason = self._stream.reason or ("batch" if builder.frames else "")

    def _alone(self, chunk: Chunk, frames: Columns) -> Iterator[ScannedUnit]:
        """Append frames that stand alone: together as far as they may be, and are data alone."""
        payloads, delayed, bad = kernel.measure(chunk.bytes, frames)
        tag_lens = frames.tag_lens
        apart = {number for number, _ in delayed}
        if any(tag_lens):
            apart.update(number for number, size in enumerate(tag_lens) if size)
        apart.update(range(bisect_left(frames.offsets, self._group_from - chunk.base)))
        if bad >= 0:
            apart.add(bad)
        due, begin = dict(delayed), 0
        for number in sorted(apart):
            yield from self._merged(chunk, frames, payloads, begin, number)
            offset, topic_id, seq, ts, size, *_ = frames.row(number)
            if number == bad:
                raise BadUnit("an Append frame does not hold a record", chunk.base + offset)
            self._builder.begin(chunk.base + offset)
            tagged = [(_tag(chunk, frames, number), seq)] if tag_lens[number] else []
            late = [(seq, due[number])] if number in due else ()
            found = AppendedRecords(seq, ts, array("I", [size]), payloads[number : number + 1], tagged, late)
            self._builder.add(topic_id, chunk.base + offset, chunk.base + offset + size, found)
            self.max_topic_id = max(self.max_topic_id, topic_id)
            yield self._finish(ts, chunk.base + offset + size)
            begin = number + 1
        yield from self._merged(chunk, frames, payloads, begin, len(frames))

    def _merged(
        self, chunk: Chunk, frames: Columns, payloads: array[int], begin: int, end: int
    ) -> Iterator[ScannedUnit]:
        """Those of these numbers, those of each log as one unit."""
        if begin == end:
            return
        some = frames.between(begin, end)
        logs: Iterable[tuple[Columns, array[int]]] = ((some, payloads[begin:end]),)
        if len(found := kernel.by_topic(some)) > 1:
            logs = ((each, kernel.measure(chunk.bytes, each).payloads) for each in found)
        start, self.end = chunk.base + some.row(0)[0], chunk.base + some.end
        for each, of_each in logs:
            _, topic_id, first_seq, *_ = each.row(0)
            stamps, begin_at = each.stamps, start - chunk.base
            offsets = array("Q", [offset - begin_at for offset in each.offsets]) if begin_at else each.offsets
            self.max_topic_id = max(self.max_topic_id, topic_id)
            self.last_ts = max(self.last_ts, stamps[-1])
            self.frames += len(stamps)
            lone = LoneAppends(first_seq, stamps, offsets, each.sizes, of_each)
            yield ScannedUnit(start, self.end, Unit(None, [LoneAppendsStep(topic_id, lone)]), len(stamps))

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
            raise BadUnit("a Batch frame does not fit the frames behind it", builder.offset)
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
    """The Append frames of a chunk, measured all at once when the first batch is asked for."""

    __slots__ = ("_bad", "_chunk", "_delayed", "_flags", "_payloads", "_sizes")

    def __init__(self, chunk: Chunk) -> None:
        self._chunk = chunk
        self._payloads: array[int] | None = None

    def appended(self, first: int, end: int, row: Row) -> AppendedRecords:
        """Frames of these numbers, which are of one log and time, with consecutive seqs; `row`: the first. Raises
        BadUnit."""
        chunk, payloads = self._chunk, self._payloads
        if payloads is None:
            payloads, self._delayed, self._bad = kernel.measure(chunk.bytes, chunk.frames)
            self._payloads, self._sizes, self._flags = payloads, chunk.frames.sizes, chunk.frames.flags
        if first <= self._bad < end:
            raise BadUnit("an Append frame does not hold a record", chunk.base + chunk.frames.row(self._bad)[0])
        _, _, first_seq, ts, *_ = row
        tagged: list[tuple[bytes, int]] = []
        if len(self._flags[first:end].translate(None, _TAGGED)) < end - first:
            tags = enumerate(kernel.cut(chunk.bytes, chunk.frames.between(first, end), Part.TAG), first_seq)
            tagged = [(tag, seq) for seq, tag in tags if tag]
        late: Sequence[tuple[int, int]] = ()
        if self._delayed:
            some = self._delayed[bisect_left(self._delayed, (first,)) : bisect_left(self._delayed, (end,))]
            late = [(first_seq + number - first, due) for number, due in some] or ()
        return AppendedRecords(first_seq, ts, self._sizes[first:end], payloads[first:end], tagged, late)


def _tag(chunk: Chunk, frames: Columns, number: int) -> bytes:
    return kernel.cut(chunk.bytes, frames.between(number, number + 1), Part.TAG)[0]
