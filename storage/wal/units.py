"""Groups the frames of a WAL file into atomic units: a unit appears only when its last frame has been verified.

Source: storage.md §2 (bit3), §6.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from storage.format import control
from storage.format.control import Batch, SyncPoint
from storage.format.record import payload_size
from storage.format.wal_frame import HEADER_SIZE, MORE, FrameType
from storage.tail import Run
from storage.wal.reader import FrameStream, RawFrame, frame_data, frame_size, frame_tag
from storage.wal.submission import ControlStep, PlaceStep, RunStep, Unit

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


class _Builder:
    """The unit whose last frame has not come yet."""

    __slots__ = ("batch", "body_offset", "frames", "offset", "run", "run_seq", "size", "steps")

    def __init__(self) -> None:
        self.frames = 0

    def begin(self, offset: int) -> None:
        self.offset = offset
        self.frames = 0
        self.size = 0
        self.body_offset = 0
        self.batch: Batch | None = None
        self.steps: list[ControlStep | RunStep | PlaceStep] = []
        self.run: Run | None = None
        self.run_seq = 0

    def append(self, frame: RawFrame, chunk: bytes, base: int) -> None:
        start, _, _, topic_id, seq, ts, node_len, tag_len, data_len = frame
        run = self.run
        if run is None or seq != self.run_seq or run.ts != ts or self.steps[-1].topic_id != topic_id:
            run = self.run = Run(seq, ts, array("I"), array("I"), [])
            self.steps.append(RunStep(topic_id, run, base + start - self.offset))
            self.run_seq = seq
        begin = start + HEADER_SIZE + node_len + tag_len
        run.sizes.append(begin - start + data_len + 8)
        run.payloads.append(payload_size(chunk, begin, begin + data_len))
        if tag_len:
            run.tagged.append((frame_tag(frame, chunk), seq))
        self.run_seq += 1

    def control(self, frame: RawFrame, chunk: bytes) -> None:
        self.run = None
        value: Any = control.decode_control(frame[1], frame_data(frame, chunk))
        if isinstance(value, Batch):
            self.batch = value
            self.size = 0
            return
        self.steps.append(ControlStep(frame[1], frame[3], frame[5], value))


class UnitScan:
    """Units of one file. After `units()`: `end` = end of the last whole unit, `loose_frames` = valid frames behind it,
    `reason` as FrameStream's, `sync_point` = the newest seen, `last_ts` and `max_topic_id` over all frames."""

    def __init__(self, stream: FrameStream, number: int) -> None:
        self._stream = stream
        self._number = number
        self.end = stream.end
        self.frames = 0
        self.loose_frames = 0
        self.loose_end = 0
        self.loose_steps: list[ControlStep | RunStep | PlaceStep] = []
        self.reason = ""
        self.sync_point: SyncPoint | None = None
        self.last_ts = 0
        self.max_topic_id = 0

    def units(self) -> Iterator[ScannedUnit]:
        """Raises BadUnit, control.UnknownFrameType, OSError."""
        builder = _Builder()
        for chunk in self._stream.chunks():
            data, base = chunk.bytes, chunk.base
            for frame in chunk.frames:
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
                    yield self._finish(builder, frame, base)
                elif builder.frames == 1 and builder.batch is None:
                    raise BadUnit("a batch does not begin with a Batch frame", base + frame[0])
        self.loose_frames = builder.frames
        self.loose_steps = builder.steps if builder.frames else []
        if builder.frames and builder.batch is not None:
            # What the incomplete batch would have taken: nothing of it may be mistaken for a unit of its own.
            self.loose_end = builder.body_offset + builder.batch.body_bytes
        self.frames += builder.frames
        self.reason = self._stream.reason or ("batch" if builder.frames else "")

    def _control(self, builder: _Builder, frame: RawFrame, data: bytes, base: int) -> None:
        try:
            builder.control(frame, data)
        except msgspec.DecodeError as error:
            raise BadUnit(f"a control frame of type {frame[1]} does not decode: {error}", base + frame[0]) from error
        if frame[1] == FrameType.BATCH:
            builder.size = -frame_size(frame)  # `bytes` counts what follows the Batch frame
            builder.body_offset = base + frame[0] + frame_size(frame)

    def _finish(self, builder: _Builder, frame: RawFrame, base: int) -> ScannedUnit:
        batch = builder.batch
        if batch is not None and (batch.frames != builder.frames - 1 or batch.body_bytes != builder.size):
            raise BadUnit("a Batch frame does not fit the frames behind it", builder.offset)
        self.last_ts = max(self.last_ts, frame[5])
        self.frames += builder.frames
        self.end = base + frame[0] + frame_size(frame)
        steps = builder.steps
        if len(steps) == 1 and isinstance(steps[0], ControlStep) and isinstance(steps[0].value, SyncPoint):
            if steps[0].value.at != builder.offset or steps[0].value.file != self._number:
                raise BadUnit("a SyncPoint stands where it does not belong", builder.offset)
            self.sync_point = steps[0].value
            steps = []
        found = ScannedUnit(builder.offset, self.end, Unit(batch, steps), builder.frames)
        builder.frames = 0
        return found
