"""The state of a partition at one instant: the answer of GET …/segments. Pure.

Source: docs/reference/api.md#segments.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from pipeline.errors import Gap


class Loss(msgspec.Struct, frozen=True, kw_only=True, rename={"first": "from", "last": "to"}):
    """Seqs first <= seq <= last are lost within the log."""

    first: int
    last: int
    cause: str


class Renewal(msgspec.Struct, frozen=True, kw_only=True):
    """A recovery has cut off the end of the log after `head_seq`, and given it this epoch."""

    epoch: int
    head_seq: int


class SegmentInfo(msgspec.Struct, frozen=True, kw_only=True, rename={"size": "bytes"}):
    """Seqs first_seq <= seq < end_seq. `size`: bytes of .data. Only sealed segments can be downloaded."""

    first_seq: int
    end_seq: int
    size: int = 0
    first_ts: int = 0
    last_ts: int = 0
    sealed: bool = True
    generation: int = 0
    format: int = 1
    #: Without a broker: the file or object, or the frames themselves (of records that are not in a segment).
    file: str = ""
    cold: bool = False
    frames: bytes = b""
    #: Bit i (little-endian) is set: record first_seq + i is not live, whatever the file contains.
    dead: bytes = b""


class PartitionCounts(NamedTuple):
    """The owner's counts of a partition: `live` records with seqs up to `head_seq`."""

    partition: int
    epoch: int
    head_seq: int
    live: int


class LogView(msgspec.Struct, frozen=True, kw_only=True):
    """One partition. Records up to `durable_seq` survive any crash; records below `earliest_seq` are gone."""

    cluster_id: str
    #: The id of the partition's log; 0: a cold tier has nothing of it yet.
    topic_id: int
    epoch: int
    earliest_seq: int
    evict_floor: int
    head_seq: int
    durable_seq: int
    loss: Sequence[Loss] = ()
    segments: Sequence[SegmentInfo] = ()
    #: Why records below evict_floor are gone; "": only a read can show it.
    evicted_by: str = ""
    #: For a data directory: identifies its state at the read.
    mark: str = ""
    partition: int = 0
    renewals: Sequence[Renewal] = ()

    @property
    def end(self) -> int:
        """The seq after the last one to read: records that are not durable are read later."""
        return max(self.durable_seq + 1, 1)

    def shared_with(self, epoch: int) -> int | None:
        """The last seq of those that are of the same records as in an earlier epoch of the log.

        None: nobody knows, because the source does not say when the present epoch began.
        """
        if all(each.epoch != self.epoch for each in self.renewals):
            return None
        return min((each.head_seq for each in self.renewals if each.epoch > epoch), default=None)

    def gaps(self, topic: str, start: int, end: int) -> Iterator[Gap]:
        """The losses in seqs start <= seq < end, in order. The reason of an eviction may be ""."""
        if start < min(self.evict_floor, end):
            yield Gap(topic, self.partition, start, min(self.evict_floor, end) - 1, self.evicted_by)
        for each in self.loss:
            first, last = max(each.first, start, self.evict_floor), min(each.last, end - 1)
            if first <= last:
                yield Gap(topic, self.partition, first, last, each.cause)


def first_seq_since(view: LogView, ts_ms: int) -> int | None:
    """A seq at or before the first record of that time or later, from the segments; None: they do not contain it.

    Times never decrease, so that record is in the first segment whose last record is not older, if it is in any.
    """
    for segment in view.segments:
        if segment.last_ts >= ts_ms:
            return segment.first_seq
    return view.segments[-1].end_seq if view.segments else None
