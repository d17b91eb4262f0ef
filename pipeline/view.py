"""A partition at one instant, as its reader must know it: what GET …/segments answers. Pure.

Source: docs/reference/api.md#segments.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from pipeline.errors import Gap


class Loss(msgspec.Struct, frozen=True, kw_only=True, rename={"first": "from", "last": "to"}):
    """Seqs first <= seq <= last are lost inside the log."""

    first: int
    last: int
    cause: str


class SegmentInfo(msgspec.Struct, frozen=True, kw_only=True, rename={"size": "bytes"}):
    """Seqs first_seq <= seq < end_seq; `size`: bytes of .data. Only sealed ones are given out as files."""

    first_seq: int
    end_seq: int
    size: int = 0
    first_ts: int = 0
    last_ts: int = 0
    sealed: bool = True
    generation: int = 0
    format: int = 1
    #: Of one that is read without a broker: the file or object, or the frames themselves (what is in no segment).
    file: str = ""
    cold: bool = False
    frames: bytes = b""
    #: Bit i (little-endian) set: there is no live record first_seq + i, whatever the file says.
    dead: bytes = b""


class Held(NamedTuple):
    """What there is in a partition by the books of who keeps it: `live` records with seqs up to `head_seq`."""

    partition: int
    epoch: int
    head_seq: int
    live: int


class LogView(msgspec.Struct, frozen=True, kw_only=True):
    """One partition. What lies up to `durable_seq` survives anything; records below `earliest_seq` are gone."""

    cluster_id: str
    #: Of the partition's log. 0: a cold tier has nothing of it yet.
    topic_id: int
    epoch: int
    earliest_seq: int
    evict_floor: int
    head_seq: int
    durable_seq: int
    loss: Sequence[Loss] = ()
    segments: Sequence[SegmentInfo] = ()
    #: Why records below evict_floor are gone; "" where only a read can tell.
    evicted_by: str = ""
    #: Of a data directory: what it was like when this was read.
    mark: str = ""
    partition: int = 0

    @property
    def end(self) -> int:
        """The seq behind the last one that may be read: what a power loss may take is left for later."""
        return max(self.durable_seq + 1, 1)

    def gaps(self, topic: str, start: int, end: int) -> Iterator[Gap]:
        """What is lost of the seqs start <= seq < end, in order. The reason of an eviction may be ""."""
        if start < min(self.evict_floor, end):
            yield Gap(topic, self.partition, start, min(self.evict_floor, end) - 1, self.evicted_by)
        for each in self.loss:
            first, last = max(each.first, start, self.evict_floor), min(each.last, end - 1)
            if first <= last:
                yield Gap(topic, self.partition, first, last, each.cause)


def first_seq_since(view: LogView, ts_ms: int) -> int | None:
    """A seq from which on all records of that time or later are, by the segments alone; None: they do not say.

    Times never go back, so the first segment whose last record is not older holds the first such record, if any does.
    """
    for segment in view.segments:
        if segment.last_ts >= ts_ms:
            return segment.first_seq
    return view.segments[-1].end_seq if view.segments else None
