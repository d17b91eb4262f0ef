"""Describes a log's segments for clients that fetch whole files. Pure.

A record is *withheld* when a client has deleted it: by tag or seq (a bit of the segment's `dead`, whether or not the
files are flagged yet), or with everything below a seq (the floor of that cause; nothing is flagged for it). Records
that a cap or ttl has removed are not withheld: readers drop records below `earliest_seq`.

Source: docs/reference/api.md#segments.
"""

from __future__ import annotations

import msgspec

from storage.errors import RequestError
from storage.log import ShardLog, position
from storage.records import LossCause
from storage.state import Log, Segment, Topic

#: The version of frames in .data and entries in .idx (docs/reference/format.md).
FILE_FORMAT = 1


class SegmentNotFound(RequestError):
    """There is no sealed segment that begins with that seq."""

    code = "not_found"


class LossView(msgspec.Struct, frozen=True, kw_only=True, rename={"from_seq": "from", "to_seq": "to"}):
    """Seqs from_seq to to_seq (inclusive) are lost inside the log."""

    from_seq: int
    to_seq: int
    cause: str


class RenewalView(msgspec.Struct, frozen=True, kw_only=True):
    """The log got this epoch when its head was `head_seq`: seqs above it may have been of other records before."""

    epoch: int
    head_seq: int


class SegmentView(msgspec.Struct, frozen=True, kw_only=True):
    """Seqs first_seq <= seq < end_seq, in files of `generation`. Sizes are bytes of .data, times ms.

    `records` counts those that have a frame and are not withheld, `live` those of them above all floors. Only sealed
    segments can be fetched.
    """

    first_seq: int
    end_seq: int
    records: int
    live: int
    bytes: int
    first_ts: int
    last_ts: int
    sealed: bool
    tier: str
    generation: int
    format: int = FILE_FORMAT


class TailView(msgspec.Struct, frozen=True, kw_only=True):
    """Seqs first_seq <= seq < end_seq that are in no segment; `Engine.read` has them."""

    first_seq: int
    end_seq: int


class SegmentsView(msgspec.Struct, frozen=True, kw_only=True):
    """A log at one instant. A crash takes nothing up to `durable_seq`."""

    cluster_id: str
    topic_id: int
    epoch: int
    earliest_seq: int
    evict_floor: int
    head_seq: int
    durable_seq: int
    loss: list[LossView]
    segments: list[SegmentView]
    tail: TailView
    renewals: list[RenewalView]


def view_of(topic: Topic, cluster_id: str, shard: ShardLog) -> SegmentsView:
    """The segments of a topic's log now. `shard`: the one that its log is in."""
    log = topic.log
    return SegmentsView(
        cluster_id=cluster_id,
        topic_id=log.topic_id,
        epoch=log.epoch,
        earliest_seq=log.earliest_seq,
        evict_floor=log.marks.evict_floor,
        head_seq=log.head,
        durable_seq=durable_seq(log, synced_lsn(shard)),
        loss=[LossView(from_seq=begin, to_seq=end, cause=cause) for begin, end, cause in log.marks.loss],
        # A segment that was opened and never written to may have no files yet.
        segments=[_view(log, segment) for segment in log.held.manifest.segments if segment.count],
        tail=TailView(first_seq=log.held.flushed + 1, end_seq=log.head + 1),
        renewals=[RenewalView(epoch=epoch, head_seq=head) for epoch, head in log.renewals],
    )


def _view(log: Log, segment: Segment) -> SegmentView:
    return SegmentView(
        first_seq=segment.first_seq,
        end_seq=segment.end_seq,
        records=segment.count - withheld(log, segment).bit_count(),
        live=segment.live,
        bytes=segment.data_bytes,
        first_ts=segment.first_ts,
        last_ts=segment.last_ts,
        sealed=segment.sealed,
        tier=segment.tier,
        generation=segment.gen,
    )


def withheld(log: Log, segment: Segment) -> int:
    """A bitset: bit i is set when the record first_seq + i has no frame or is withheld."""
    below = log.marks.floors.get(LossCause.DELETE, 1) - segment.first_seq
    return segment.dead | ((1 << min(segment.count, below)) - 1) if below > 0 else segment.dead


def sealed(topic: Topic, first_seq: int) -> Segment:
    """The sealed segment that begins with `first_seq`. Raises SegmentNotFound, whose detail says why."""
    segment = topic.log.held.manifest.named(first_seq)
    if segment is not None and not segment.sealed:
        raise SegmentNotFound(
            f"Segment {first_seq} of {topic.name} is still written to; its files are given out once it is sealed.",
            reason="active",
            first_seq=first_seq,
        )
    if segment is None or not segment.count:
        raise SegmentNotFound(
            f"{topic.name} has no segment that begins with seq {first_seq}: never, or not any more.",
            reason="absent",
            first_seq=first_seq,
        )
    return segment


def durable_seq(log: Log, synced: int) -> int:
    """The last seq that survives a crash, when the log's shard is durable below the LSN `synced`."""
    # Records in segments were synced before they were marked, and below the floor there is nothing to lose.
    first = max(log.held.flushed + 1, log.marks.live_floor)
    last = min(log.head, log.durable_head) if log.ephemeral else log.head
    low, high = first, last + 1
    while low < high:  # the first seq whose batch, or the next one in the log, is not synced
        seq = (low + high) // 2
        lsn = log.tail.oldest_lsn(seq)
        if lsn is not None and lsn < synced:
            low = seq + 1
        else:
            high = seq
    if low > last or log.tail.oldest_lsn(low) is None:
        return max(log.held.flushed, last)  # nothing is written of the seqs from there on: they are lost for good
    return low - 1


def synced_lsn(log: ShardLog) -> int:
    """Everything of the shard below this LSN is durable. A sync never ends inside a batch.

    The writer's thread continues meanwhile. During a change of files the result may be too high, but only for LSNs in
    the new file, where nothing published can be yet: the old file was synced before.
    """
    while True:
        active = log._active  # pyright: ignore[reportPrivateUsage]
        synced = log._synced  # pyright: ignore[reportPrivateUsage]
        if log._active is active:  # pyright: ignore[reportPrivateUsage]
            return log.end_lsn if active is None else position(active.number, synced)
