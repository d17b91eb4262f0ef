"""Groups the frames of a WAL file into atomic units: a unit appears only when its last frame has been verified.

Source: docs/reference/format.md#frames, docs/reference/guarantees.md#recovery.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from storage.format import control
from storage.format.control import Batch, SyncPoint
from storage.format.record import PLAIN_OVERHEAD, delivered_at, payload_size
from storage.format.wal_frame import HEADER_SIZE, MORE, OVERHEAD, FrameType
from storage.log.frame_groups import FrameGroup, FrameGroupParser, LoneGroup
from storage.log.position import MAX_OFFSET
from storage.log.reader import FrameStream, RawFrame, frame_data, frame_node, frame_size, frame_tag
from storage.log.submission import AppendStep, ControlStep, LoneAppendsStep, Step, Unit
from storage.records.batches import AppendedRecords, LoneAppends

_APPEND = int(FrameType.APPEND)


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

    def __reduce__(self) -> tuple[type[BadUnit], tuple[str, int]]:
        return BadUnit, (str(self), self.offset)


class _Builder:
    """The unit whose last frame has not come yet."""

    __slots__ = ("appended", "batch", "body_offset", "frames", "next_seq_of_batch", "offset", "size", "steps")

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
        self.next_seq_of_batch = 0

    def append(self, frame: RawFrame, chunk: bytes, base: int) -> None:
        start, _, _, topic_id, seq, ts, node_len, tag_len, data_len = frame
        appended = self.appended
        if (
            appended is None
            or seq != self.next_seq_of_batch
            or appended.ts != ts
            or self.steps[-1].topic_id != topic_id
        ):
            appended = self.appended = AppendedRecords(seq, ts, array("I"), array("I"), [])
            self.steps.append(AppendStep(topic_id, appended, base + start - self.offset))
            self.next_seq_of_batch = seq
        begin = start + HEADER_SIZE + node_len + tag_len
        appended.sizes.append(begin - start + data_len + 8)
        try:
            appended.payloads.append(payload_size(chunk, begin, begin + data_len))
        except (msgspec.DecodeError, OverflowError) as error:
            raise BadUnit("an Append frame does not hold a record", base + start) from error
        if tag_len:
            appended.tagged.append((frame_tag(frame, chunk), seq))
        deliver_at = delivered_at(chunk, begin, begin + data_len)
        if deliver_at:
            self._delay(appended, seq, deliver_at)
        self.next_seq_of_batch += 1

    def _delay(self, appended: AppendedRecords, seq: int, deliver_at: int) -> None:
        if isinstance(appended.delayed, list):
            appended.delayed.append((seq, deliver_at))
            return
        self.appended = appended._replace(delayed=[(seq, deliver_at)])
        step = self.steps[-1]
        assert isinstance(step, AppendStep)
        self.steps[-1] = step._replace(appended=self.appended)

    def extend(self, found: FrameGroup, base: int) -> None:
        overhead = OVERHEAD + found.node_len
        first, count = found.data_lens[0], len(found.data_lens)
        if found.data_lens.count(first) == count:
            sizes, payloads = array("I", [first + overhead]) * count, array("I", [first - PLAIN_OVERHEAD]) * count
        else:
            sizes = array("I", [size + overhead for size in found.data_lens])
            payloads = array("I", [size - PLAIN_OVERHEAD for size in found.data_lens])
        appended = self.appended
        if (
            appended is None
            or found.first_seq != self.next_seq_of_batch
            or appended.ts != found.ts
            or self.steps[-1].topic_id != found.topic_id
        ):
            self.appended = AppendedRecords(found.first_seq, found.ts, sizes, payloads, [])
            self.steps.append(AppendStep(found.topic_id, self.appended, base + found.start - self.offset))
        else:
            appended.sizes.extend(sizes)
            appended.payloads.extend(payloads)
        self.next_seq_of_batch = found.first_seq + len(sizes)
        self.frames += len(sizes)
        self.size += found.end - found.start

    def control(self, frame: RawFrame, chunk: bytes) -> None:
        self.appended = None
        value: Any = control.decode_control(frame[1], frame_data(frame, chunk))
        if isinstance(value, Batch):
            self.batch = value
            self.size = 0
            return
        node = frame_node(frame, chunk).decode() if frame[6] else ""
        self.steps.append(ControlStep(frame[1], frame[3], frame[5], value, node))


class Scan(ABC):
    """Units of one file. After `units()`: `end` = end of the last whole unit, `loose_frames` = valid frames behind it,
    `reason` as FrameStream's, `sync_point` = the newest seen, `last_ts` and `max_topic_id` over all frames.
    """

    def __init__(self, start: int) -> None:
        self.end = start
        self.frames = 0
        self.loose_frames = 0
        self.loose_end = 0
        self.loose_steps: list[Step] = []
        self.reason = ""
        self.sync_point: SyncPoint | None = None
        self.last_ts = 0
        self.max_topic_id = 0

    @abstractmethod
    def units(self) -> Iterator[ScannedUnit]:
        """Raises BadUnit, control.UnknownFrameType, OSError."""

    def findings(self) -> dict[str, Any]:
        """All that is public here but the units."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def take(self, findings: dict[str, Any]) -> None:
        """Take over what another scan found."""
        vars(self).update(findings)


class UnitScan(Scan):
    """Scans here and now.

    Frames that stand alone are units of their own. From the offset `group_from` on those of a log that follow one
    another may come as one unit; then their order is kept within each log only.
    """

    def __init__(self, stream: FrameStream, number: int, group_from: int = MAX_OFFSET) -> None:
        super().__init__(stream.end)
        self._stream = stream
        self._parser = FrameGroupParser(group_from)
        self._number = number

    def units(self) -> Iterator[ScannedUnit]:
        builder = _Builder()
        for base, data, items in self._stream.read(self._parser.parse):
            for frame in items:
                if isinstance(frame, FrameGroup):
                    self.max_topic_id = max(self.max_topic_id, frame.topic_id)
                    builder.extend(frame, base)
                    if frame.ends:
                        yield self._finish(builder, frame.ts, base + frame.end)
                    continue
                if isinstance(frame, LoneGroup):
                    yield from self._lone(frame, base)
                    continue
                if builder.frames == 0:
                    builder.begin(base + frame[0])
                builder.frames += 1
                if frame[1] == _APPEND:
                    builder.append(frame, data, base)
                else:
                    self._control(builder, frame, data, base)
                if frame[3] > self.max_topic_id:
                    self.max_topic_id = frame[3]
                builder.size += frame_size(frame)
                if not frame[2] & MORE:
                    yield self._finish(builder, frame[5], base + frame[0] + frame_size(frame))
                elif builder.frames == 1 and builder.batch is None:
                    raise BadUnit("a batch does not begin with a Batch frame", base + frame[0])
        self.loose_frames = builder.frames
        self.loose_steps = builder.steps if builder.frames else []
        if builder.frames and builder.batch is not None:
            # What the incomplete batch would have taken: nothing of it may be mistaken for a unit of its own.
            self.loose_end = builder.body_offset + builder.batch.body_bytes
        self.frames += builder.frames
        self.reason = self._stream.reason or ("batch" if builder.frames else "")

    def _lone(self, group: LoneGroup, base: int) -> Iterator[ScannedUnit]:
        begin, self.end = base + group.start, base + group.end
        for topic_id, first_seq, stamps, starts, sizes, payloads in group.logs:
            self.max_topic_id = max(self.max_topic_id, topic_id)
            self.last_ts = max(self.last_ts, stamps[-1])
            self.frames += len(sizes)
            offsets = array("Q", [start - group.start for start in starts])
            lone = LoneAppends(first_seq, array("Q", stamps), offsets, array("I", sizes), array("I", payloads))
            yield ScannedUnit(begin, self.end, Unit(None, [LoneAppendsStep(topic_id, lone)]), len(sizes))

    def _control(self, builder: _Builder, frame: RawFrame, data: bytes, base: int) -> None:
        try:
            builder.control(frame, data)
        except msgspec.DecodeError as error:
            raise BadUnit(f"a control frame of type {frame[1]} does not decode: {error}", base + frame[0]) from error
        if frame[1] == FrameType.BATCH:
            builder.size = -frame_size(frame)  # `bytes` counts what follows the Batch frame
            builder.body_offset = base + frame[0] + frame_size(frame)

    def _finish(self, builder: _Builder, ts: int, end: int) -> ScannedUnit:
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
