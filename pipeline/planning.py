"""From options to ranges of seqs, one a topic. Asks the origin for views, and decides nothing about records."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from pipeline import options as said
from pipeline.broker import Page
from pipeline.errors import BadOption, Gap
from pipeline.options import EARLIEST, LATEST, Bound, ReadOptions
from pipeline.reading import OnGap
from pipeline.splits import Split, splits_of, target_for
from pipeline.view import LogView, first_seq_since


class Catalogue(Protocol):
    """What planning asks of an origin."""

    def topics(self) -> list[str]: ...

    def view(self, topic: str) -> LogView: ...

    def reason(self, topic: str, view: LogView, seq: int) -> str: ...

    def page(self, topic: str, view: LogView, after_seq: int, *, limit: int = ..., from_ts: int = ...) -> Page: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Seqs start <= seq < end of a topic's partition 0, as it was at one instant."""

    topic: str
    view: LogView
    start: int
    end: int


def wanted(origin: Catalogue, options: ReadOptions) -> list[str]:
    """Names of the topics to read, sorted; those that a pattern fits are looked up anew each time."""
    if options.pattern is None:
        return list(options.topics)
    pattern = re.compile(options.pattern)
    return [name for name in origin.topics() if pattern.fullmatch(name)]


def earliest(view: LogView) -> int:
    """The first seq that can still be read without a gap in front of it."""
    return max(1, view.evict_floor)


def batch_range(origin: Catalogue, topic: str, options: ReadOptions) -> Range:
    """What a batch read of a topic covers. Raises BadOption, SourceUnreadable."""
    view = origin.view(topic)
    start = starting(origin, topic, view, options, "earliest")
    end = view.end
    if options.ending_ts is not None:
        end = min(end, seq_at(origin, topic, view, options.ending_ts))
    else:
        end = _end_of(options.ending, topic, view)
    if start > view.end:
        raise BadOption(
            f"{topic}: startingOffsets begins at seq {start}, and the last durable seq is {view.durable_seq}."
        )
    return Range(topic=topic, view=view, start=start, end=max(start, end))


def _end_of(bound: Bound | None, topic: str, view: LogView) -> int:
    seq = said.first_seq(bound, topic, "latest")
    if seq == EARLIEST:
        raise BadOption("endingOffsets cannot be earliest (-2).")
    if seq == LATEST:
        return view.end
    if seq > view.end:
        raise BadOption(
            f"{topic}: endingOffsets ends before seq {seq}, and the last durable seq is {view.durable_seq}."
        )
    return seq


def starting(origin: Catalogue, topic: str, view: LogView, options: ReadOptions, default: str) -> int:
    """The first seq to read."""
    if options.starting_ts is not None:
        return seq_at(origin, topic, view, options.starting_ts)
    seq = said.first_seq(options.starting, topic, default)
    if seq == EARLIEST:
        return earliest(view)
    return view.end if seq == LATEST else seq


def seq_at(origin: Catalogue, topic: str, view: LogView, ts_ms: int) -> int:
    """The seq from which on all records of that time or later are; `view.end` when there is none."""
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
    """What is lost of a range by now, each with its reason."""
    for gap in found.view.gaps(found.topic, found.start, found.end):
        yield gap if gap.reason else gap._replace(reason=origin.reason(found.topic, found.view, gap.first))


def splits_for(origin: Catalogue, ranges: Iterable[Range], options: ReadOptions, on_gap: OnGap) -> list[Split]:
    """The splits of all ranges; `on_gap` is told of what is lost in them, and may raise."""
    ranges = [each for each in ranges if each.start < each.end]
    for each in ranges:
        for gap in gaps_of(origin, each):
            on_gap(gap)
    target = target_for(((each.view, each.start, each.end) for each in ranges), options.min_partitions)
    return [
        split
        for each in ranges
        for split in splits_of(each.topic, each.view, each.start, each.end, target_bytes=target)
    ]
