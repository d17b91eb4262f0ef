"""Finds the segments of the logs in a directory, from the newest snapshot and the frames after it.

Pure: it takes frames and returns messages about contradictions.

Source: docs/reference/format.md#checkpointmark, docs/reference/format.md#segments, docs/reference/format.md#snapshots.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from msgspec.structs import replace

from storage.format import control
from storage.inspect.directory import SnapshotView
from storage.snapshot import Section
from storage.state import SegmentState, tag_match

Lsn: TypeAlias = tuple[int, int]
"""File number and offset in it."""


class LogSegments:
    """The segments of a log by first_seq, in order, and the deletions of records in them."""

    __slots__ = ("as_of", "deletes", "floor", "flushed", "segments")

    def __init__(self, section: Section | None = None) -> None:
        self.as_of: Lsn = section.as_of if section else (0, 0)
        self.flushed = section.absorbed if section else 0
        self.segments = {each.first_seq: each for each in section.segments} if section else {}
        self.floor = max([1, *(section.floors.values() if section else ())])
        #: Delete frames by tag or seq. Their records may not be flagged in the files yet.
        self.deletes: list[control.Delete] = []

    @property
    def active(self) -> SegmentState | None:
        last = next(reversed(self.segments.values()), None)
        return None if last is None or last.sealed else last

    def gone(self, seq: int, tag: bytes) -> bool:
        """Whether the log has deleted a record."""
        return seq < self.floor or any(_removes(each, seq, tag) for each in self.deletes)


def _removes(delete: control.Delete, seq: int, tag: bytes) -> bool:
    if seq > delete.bound_head or (delete.before_seq is not None and seq >= delete.before_seq):
        return False
    if delete.seqs is not None and seq not in delete.seqs:
        return False
    return delete.match is None or (bool(tag) and tag_match(delete.match).matches(tag))


class NamedSegments:
    """The segments of all logs. `deleted`: ids of deleted logs; `stale`: files were deleted while they were read."""

    def __init__(self, newest: SnapshotView | None = None) -> None:
        self.logs = {each.topic_id: LogSegments(each) for each in newest.sections} if newest else {}
        self.deleted = set(newest.body.pending_deletes) if newest else set[int]()
        self.stale = False

    def apply(self, lsn: Lsn, topic_id: int, value: Any) -> Iterator[str]:
        """Apply a verified control frame. Yields messages about contradictions."""
        if isinstance(value, control.CheckpointMark):
            for each, seq in value.absorbed.items():
                yield from self._mark(each, seq)
        elif isinstance(value, control.TopicCreate):
            self.logs.setdefault(topic_id, LogSegments())
        elif isinstance(value, control.TopicDelete):
            self.logs.pop(topic_id, None)
            self.deleted.add(topic_id)
        elif (log := self.logs.get(topic_id)) is not None:
            if isinstance(value, control.Delete):
                _delete(log, value)
            elif isinstance(value, control.EvictWatermark):
                log.floor = max([log.floor, *(value.floors or {}).values()])
            elif isinstance(value, control.Segment) and lsn >= log.as_of:
                yield from _take(log, value)

    def _mark(self, topic_id: int, seq: int) -> Iterator[str]:
        log = self.logs.get(topic_id)
        if log is None or seq <= log.flushed:
            return  # the log was deleted later, or the snapshot knows the mark
        active = log.active
        if active is None:
            yield f"Topic {topic_id} is in segments up to seq {seq} according to this mark, but no segment is open."
            return
        log.segments[active.first_seq] = replace(active, end_seq=seq + 1)
        log.flushed = seq


def _delete(log: LogSegments, value: control.Delete) -> None:
    if value.match is None and value.seqs is None:
        if value.before_seq is not None:
            log.floor = max(log.floor, min(value.before_seq, value.bound_head + 1))
    else:
        log.deletes.append(value)


def _take(log: LogSegments, value: control.Segment) -> Iterator[str]:
    first_seq = value.first_seq
    segment = log.segments.get(first_seq)
    if value.event == "opened":
        if log.active is not None or first_seq <= log.flushed:
            yield f"A segment is opened at seq {first_seq}, but records are in segments up to seq {log.flushed}."
            return
        log.segments[first_seq] = SegmentState(first_seq=first_seq, end_seq=first_seq, gen=value.gen)
        return
    if segment is None:
        yield f"The segment that begins with seq {first_seq} is {value.event}, but there is no such segment."
        return
    gen = segment.gen + (value.event == "rewritten")
    if (value.end_seq, value.gen) != (segment.end_seq, gen):
        yield (
            f"The segment that begins with seq {first_seq} is {value.event} as generation {value.gen} up to seq "
            f"{value.end_seq - 1}, but it should be generation {gen} up to seq {segment.end_seq - 1}."
        )
    if value.event == "dropped":
        del log.segments[first_seq]
        return
    log.segments[first_seq] = replace(
        segment,
        gen=value.gen,
        tier=value.tier,
        data_bytes=value.data_bytes,
        packed_bytes=value.packed_bytes or 0,
        sealed=segment.sealed or value.event == "sealed",
    )
