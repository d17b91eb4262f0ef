"""Checks the frames of one shard: batches are whole, seqs and times continue, control data is known.

Pure: takes frames, and returns problems as sentences.

Source: docs/reference/format.md#frames, docs/reference/guarantees.md#crash-points-of-a-write,
docs/reference/guarantees.md#recovery.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import msgspec

from storage.format import FrameFlag, FrameType, control
from storage.inspect.directory import Entry, type_name
from storage.inspect.manifest import NamedSegments

Complain: TypeAlias = Callable[[int, str], None]
"""Takes the file offset and a sentence."""


class _Step(NamedTuple):
    """A frame of a batch that is not complete yet. `value` is the decoded map of a control frame."""

    file: int
    offset: int
    type: int
    topic_id: int
    seq: int
    ts: int
    value: Any


class _Log:
    """The frames seen so far of one log. `head` is None while unknown."""

    __slots__ = ("floor", "head", "last_ts", "reserved")

    def __init__(self, head: int | None) -> None:
        self.head = head
        self.reserved = 0
        self.floor = 1
        self.last_ts = 0


class Counts:
    """Numbers of the valid frames, records and bytes."""

    def __init__(self) -> None:
        self.frames = 0
        self.records = 0
        self.bytes = 0


class FrameChecks:
    """Checks one shard's frames in order. Calls `complain` for each problem.

    `names` collects topics' names, `segments` the segments.
    """

    def __init__(self, complain: Complain, counts: Counts, names: dict[int, str], segments: NamedSegments) -> None:
        self._complain = complain
        self._counts = counts
        self._names = names
        self._segments = segments
        self._logs: dict[int, _Log] = {}
        self._head: Entry | None = None
        self._announced: control.Batch | None = None
        self._steps: list[_Step] = []
        self._bytes = 0
        #: Whether salvage has replaced damage by a filler frame: records may be missing there.
        self._salvaged = False

    @property
    def open_batch_offset(self) -> int | None:
        """Where the unfinished batch begins; None between batches."""
        return self._head.offset if self._head else None

    def drop_open_batch(self) -> None:
        """The file ends within a batch: none of it counts."""
        self._head = self._announced = None
        self._steps.clear()
        self._bytes = 0

    def forget(self) -> None:
        """The next frame does not follow the last one: the files between them are missing."""
        self.drop_open_batch()
        self._logs.clear()
        self._segments.stale = True

    def feed(self, entry: Entry, file_number: int) -> None:
        """Take the next frame."""
        value = self._decode(entry, file_number)
        step = _Step(file_number, entry.offset, entry.type, entry.topic_id, entry.seq, entry.ts, value)
        more = bool(entry.flags & FrameFlag.MORE)
        if self._head is not None:
            self._in_batch(entry, step, more)
        elif entry.type == FrameType.BATCH:
            self._open(entry, value, more)
        else:
            if more:
                self._complain(entry.offset, "This frame says that its batch continues, but no Batch frame opened one.")
            self._count(entry)
            self._apply(step)

    # -- batches -----------------------------------------------------------------------------------------------------

    def _open(self, entry: Entry, value: control.Batch | None, more: bool) -> None:
        if value is None:
            return
        if not more:
            self._complain(entry.offset, "This Batch frame says that nothing follows it.")
            return
        self._head, self._announced = entry, value

    def _in_batch(self, entry: Entry, step: _Step, more: bool) -> None:
        head, announced = self._head, self._announced
        assert head is not None
        assert announced is not None
        self._steps.append(step)
        self._bytes += entry.size
        if entry.type in (FrameType.BATCH, FrameType.SYNC_POINT):
            self._complain(entry.offset, f"A {type_name(entry.type)} frame lies within the batch at {head.offset}.")
        if more and len(self._steps) < announced.frames:
            return
        self._count(head)
        self._counts.frames += len(self._steps) - 1
        self._count(entry, records=sum(step.type == FrameType.APPEND for step in self._steps), size=self._bytes)
        self._close(head, announced)

    def _close(self, head: Entry, announced: control.Batch) -> None:
        steps, found_bytes = list(self._steps), self._bytes
        self.drop_open_batch()
        if (len(steps), found_bytes) != (announced.frames, announced.body_bytes):
            self._complain(
                head.offset,
                f"This Batch frame announces {announced.frames} frames of {announced.body_bytes} bytes, "
                f"but {len(steps)} of {found_bytes} bytes follow.",
            )
        appends = [step for step in steps if step.type == FrameType.APPEND]
        if announced.first_seq != (appends[0].seq if appends else None):
            self._complain(head.offset, "The first_seq of this Batch frame is not the seq of its first Append.")
        for step in steps:
            self._apply(step)

    def _count(self, entry: Entry, *, records: int | None = None, size: int | None = None) -> None:
        self._counts.frames += 1
        self._counts.records += entry.type == FrameType.APPEND if records is None else records
        self._counts.bytes += entry.size if size is None else size

    # -- single frames -----------------------------------------------------------------------------------------------

    def _decode(self, entry: Entry, file_number: int) -> Any:
        if bool(entry.flags & FrameFlag.HAS_TAG) != bool(entry.tag) or bool(entry.flags & FrameFlag.HAS_NODE) != bool(
            entry.node
        ):
            self._complain(entry.offset, "The flags has_tag and has_node contradict the lengths of tag and node.")
        if entry.type == FrameType.APPEND:
            if not entry.flags & FrameFlag.BINARY and not entry.data.startswith(b'{"data":'):
                self._complain(entry.offset, 'The record is not a JSON object that begins with "data".')
            return None
        try:
            value = control.decode_control(entry.type, entry.data)
        except control.UnknownFrameType:
            self._complain(
                entry.offset,
                f"This version does not know frames of {type_name(entry.type)}: a newer version wrote it.",
            )
            return None
        except msgspec.DecodeError as error:
            self._complain(entry.offset, f"The data of this {type_name(entry.type)} frame cannot be read: {error}.")
            return None
        if isinstance(value, control.SyncPoint):
            self._check_sync_point(entry, value, file_number)
        return value

    def _check_sync_point(self, entry: Entry, value: control.SyncPoint, file_number: int) -> None:
        if (value.file, value.at) != (file_number, entry.offset):
            self._complain(
                entry.offset,
                f"This SyncPoint was written for offset {value.at} of file {value.file}. It is in the wrong place.",
            )
        elif value.offset > value.at:
            self._complain(
                entry.offset, f"This SyncPoint says that {value.offset} bytes were synced, but fewer bytes precede it."
            )

    # -- logs --------------------------------------------------------------------------------------------------------

    def _apply(self, step: _Step) -> None:
        for text in self._segments.apply((step.file, step.offset), step.topic_id, step.value):
            self._complain(step.offset, text)
        if step.topic_id == 0:
            self._salvaged = self._salvaged or step.type == FrameType.EVICT_WATERMARK
            return
        if isinstance(step.value, control.TopicCreate):
            self._logs[step.topic_id] = _Log(0)
            self._names[step.topic_id] = step.value.name
        log = self._logs.setdefault(step.topic_id, _Log(None))
        if step.type == FrameType.APPEND:
            self._check_seq(log, step)
            log.head, log.last_ts = step.seq, step.ts
        elif isinstance(step.value, control.HeadWatermark):
            log.reserved = step.value.reserved
        elif isinstance(step.value, control.EvictWatermark):
            log.floor = max([log.floor, *(step.value.floors or {}).values()])
            if log.head is not None:
                log.head = max([log.head, *(last for _, last, _ in step.value.loss or ())])
        elif isinstance(step.value, control.Consumer):
            self._check_consumer(log, step, step.value)
        elif step.type == FrameType.TOPIC_DELETE:
            del self._logs[step.topic_id]

    def _check_seq(self, log: _Log, step: _Step) -> None:
        if step.ts < log.last_ts:
            self._complain(step.offset, f"Time goes back in {self._called(step)}: from {log.last_ts} to {step.ts}.")
        if log.head is None or step.seq in (log.head + 1, log.reserved + 1):
            return
        if step.seq <= log.head:
            self._complain(
                step.offset,
                f"Seq {step.seq} of {self._called(step)} is repeated: the last seq before it is {log.head}.",
            )
        elif step.seq > log.floor:
            self._complain(
                step.offset,
                f"Seq {step.seq} of {self._called(step)} follows seq {log.head}, "
                "but no loss range or reservation covers the seqs between them.",
            )

    def _check_consumer(self, log: _Log, step: _Step, value: control.Consumer) -> None:
        if log.head is not None and (value.seq or 0) > log.head and not self._salvaged:
            self._complain(
                step.offset,
                f"Consumer {value.name} of {self._called(step)} is at seq {value.seq}, beyond the last seq {log.head}.",
            )

    def _called(self, step: _Step) -> str:
        name = self._names.get(step.topic_id)
        return f"topic {step.topic_id} ({name})" if name else f"topic {step.topic_id}"
