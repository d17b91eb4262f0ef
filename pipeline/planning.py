"""Plans reads: turns options into a range of seqs for each partition. It uses views of logs, never records."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from pipeline import options as said
from pipeline.broker import Page
from pipeline.errors import BadOption, Gap, log_name
from pipeline.options import EARLIEST, LATEST, Bound, ReadOptions, Stamps
from pipeline.split_reader import OnGap
from pipeline.splits import Split, splits_of, target_for
from pipeline.view import LogView, PartitionCounts, first_seq_since

Key = TypeVar("Key", str, int, tuple[str, str])


class Catalogue(Protocol):
    """The calls of an origin that planning needs."""

    def topics(self) -> list[str]: ...

    def partitions(self, topic: str) -> int: ...

    def view(self, topic: str, partition: int = 0) -> LogView: ...

    def is_ephemeral(self, topic: str) -> bool: ...

    def held(self, topic: str) -> list[PartitionCounts]: ...

    def reason(self, topic: str, view: LogView, seq: int) -> str: ...

    def page(self, topic: str, view: LogView, after_seq: int, *, limit: int = ..., from_ts: int = ...) -> Page: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Seqs start <= seq < end of a partition, with its view at one instant."""

    topic: str
    view: LogView
    start: int
    end: int


def wanted(origin: Catalogue, options: ReadOptions) -> list[str]:
    """The names of the topics to read, sorted. A pattern is matched again at each call."""
    if options.pattern is None:
        return list(options.topics)
    pattern = re.compile(options.pattern)
    return [name for name in origin.topics() if pattern.fullmatch(name)]


def wanted_first(origin: Catalogue, options: ReadOptions) -> list[str]:
    """The same for a read that begins. Raises BadOption if offsets or times name a topic that is not read."""
    found = wanted(origin, options)
    for name, bound in _bounds(options):
        said.check_topics(bound, name, found)
    return found


def wanted_partitions(origin: Catalogue, topic: str, options: ReadOptions) -> list[int]:
    """The partitions of a topic to read: all, or the assigned ones.

    Raises BadOption for a partition that does not exist, and if offsets name others than are read.
    """
    count = origin.partitions(topic)
    chosen = sorted(options.assigned.get(topic, ())) or list(range(count))
    if chosen[-1] >= count:
        raise BadOption(f"assign names partition {chosen[-1]} of {topic}, which has {count}, counted from 0.")
    for name, bound in _bounds(options):
        said.check_named(bound, name, topic, chosen)
    return chosen


def _bounds(options: ReadOptions) -> list[tuple[str, Bound | Stamps | None]]:
    return [
        ("startingOffsets", options.starting),
        ("endingOffsets", options.ending),
        ("startingOffsetsByTimestamp", options.starting_ts),
        ("endingOffsetsByTimestamp", options.ending_ts),
    ]


def earliest(view: LogView) -> int:
    """The first seq that can be read without a gap before it."""
    return max(1, view.evict_floor)


def batch_ranges(origin: Catalogue, topic: str, options: ReadOptions) -> list[Range]:
    """The ranges of a batch read of a topic, by partition. Raises BadOption, SourceUnreadable."""
    return [_batch_range(origin, topic, at, options) for at in wanted_partitions(origin, topic, options)]


def _batch_range(origin: Catalogue, topic: str, partition: int, options: ReadOptions) -> Range:
    view = origin.view(topic, partition)
    start = starting(origin, topic, view, options, "earliest")
    end = view.end
    if options.ending_ts is not None:
        end = min(end, seq_at(origin, topic, view, _stamp(options.ending_ts, topic, partition)))
    else:
        end = _end_of(options.ending, topic, view)
    return Range(topic=topic, view=view, start=start, end=max(start, end))


def _end_of(bound: Bound | None, topic: str, view: LogView) -> int:
    seq = said.first_seq(bound, topic, view.partition, "latest")
    if seq == EARLIEST:
        raise BadOption("endingOffsets cannot be earliest (-2).")
    if seq == LATEST:
        return view.end
    if seq > view.end:
        raise BadOption(
            f"{log_name(topic, view.partition)}: endingOffsets ends before seq {seq}, but the last durable seq is "
            f"{view.durable_seq}."
        )
    return seq


def starting(origin: Catalogue, topic: str, view: LogView, options: ReadOptions, default: str) -> int:
    """The first seq to read. Raises BadOption, also if there is no record of the wanted time or later."""
    if options.starting_ts is not None:
        stamp = _stamp(options.starting_ts, topic, view.partition)
        seq = seq_at(origin, topic, view, stamp)
        if seq == view.end and options.starting_ts_must_exist:
            raise BadOption(
                f"{log_name(topic, view.partition)}: no durable record is of {stamp} (ms since 1970) or later. With "
                "startingOffsetsByTimestampStrategy=latest, such a partition is read from its end on."
            )
        return seq
    seq = said.first_seq(options.starting, topic, view.partition, default)
    if seq == EARLIEST:
        return earliest(view)
    if seq > view.end:
        raise BadOption(
            f"{log_name(topic, view.partition)}: startingOffsets begins at seq {seq}, but the last durable seq is "
            f"{view.durable_seq}."
        )
    return view.end if seq == LATEST else seq


def _stamp(stamps: Stamps, topic: str, partition: int) -> int:
    return stamps[topic][partition] if isinstance(stamps, dict) else stamps


def seq_at(origin: Catalogue, topic: str, view: LogView, ts_ms: int) -> int:
    """The first seq of that time or later; `view.end` if there is none."""
    known = first_seq_since(view, ts_ms)
    after = max(earliest(view), known or 1) - 1
    while after + 1 < view.end:
        page = origin.page(topic, view, after, limit=1, from_ts=ts_ms)
        if page.rows:
            return min(page.rows[0].seq, view.end)
        if page.last_seq <= after:
            break
        after = page.last_seq
    return view.end


def gaps_of(origin: Catalogue, found: Range) -> Iterator[Gap]:
    """The losses in a range, each with its reason."""
    for gap in found.view.gaps(found.topic, found.start, found.end):
        yield gap if gap.reason else gap._replace(reason=origin.reason(found.topic, found.view, gap.first))


def shares(waiting: Mapping[Key, int], most: int) -> dict[Key, int]:
    """Divide `most` in proportion to what waits. Each gets at least one, while any are left. Pure."""
    total = sum(waiting.values())
    if total <= most:
        return dict(waiting)
    found: dict[Key, int] = {}
    left = most
    for key in sorted(waiting, key=lambda key: (waiting[key], key)):
        found[key] = min(left, max(1, waiting[key] * most // total)) if waiting[key] else 0
        left -= found[key]
    return found


def splits_for(origin: Catalogue, ranges: Iterable[Range], options: ReadOptions, on_gap: OnGap) -> list[Split]:
    """The splits of all ranges. `on_gap` is called for each loss in them, and may raise."""
    ranges = [each for each in ranges if each.start < each.end]
    for each in ranges:
        for gap in gaps_of(origin, each):
            on_gap(gap)
    target = target_for(((each.view, each.start, each.end) for each in ranges), options.min_partitions)
    return [
        split
        for each in ranges
        for start, end in windows(each, options.max_task_records)
        for split in splits_of(each.topic, each.view, start, end, target_bytes=target)
    ]


def windows(found: Range, most: int | None) -> Iterator[tuple[int, int]]:
    """The bounds (start, end) of parts of at most `most` seqs; None: of the whole range."""
    step = found.end - found.start if most is None else most
    for start in range(found.start, found.end, step):
        yield start, min(start + step, found.end)
