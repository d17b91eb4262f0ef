"""The results of a consumer's read: one record, or many with the losses and positions around them.

Source: docs/guides/embedding.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, overload

import structlog

from storage.records import StoredRecord, Tombstone, data_of
from storage.state.consumers import ConsumerRead

_log = structlog.get_logger("storage")


class Record(StoredRecord):
    """A single delivered record, with the losses before it."""

    #: The records lost before this one, except deletions on request; None: none.
    lost: Tombstone | None = None
    #: Seqs before it that failed their check and were skipped, because the reader asked for that.
    corrupt_seqs: tuple[int, ...] = ()


_record: Callable[[Iterable[Any]], Record] = partial(tuple.__new__, Record)  # pyright: ignore


class RecordBatch(Sequence[StoredRecord]):
    """Verified records in seq order. Each access creates a new record object.

    `tombstone`: the loss before the first record; deletions on request are no loss. `corrupt_seqs`: records skipped
    because they failed their check. `cursor_seq`, `unread`, `head_seq`: the state of consumer and topic after this
    read. `repeated`: this is the answer of an earlier read.
    """

    __slots__ = (
        "consumer",
        "corrupt_seqs",
        "cursor_seq",
        "head_seq",
        "next_from_seq",
        "records",
        "repeated",
        "tombstone",
        "topic",
        "unread",
    )

    def __init__(self, read: ConsumerRead) -> None:
        result = read.result
        self.topic = result.topic
        self.consumer = read.consumer
        self.records: Sequence[StoredRecord] = result.records
        self.next_from_seq = result.next_from_seq
        self.head_seq = result.head_seq
        self.cursor_seq = read.cursor_seq
        self.unread = read.unread
        self.repeated = read.repeated
        self.tombstone: Tombstone | None = result.tombstone
        self.corrupt_seqs: tuple[int, ...] = tuple(result.corrupt_seqs or ())

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[StoredRecord]:
        return iter(self.records)

    @overload
    def __getitem__(self, index: int) -> StoredRecord: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[StoredRecord]: ...

    def __getitem__(self, index: int | slice) -> StoredRecord | Sequence[StoredRecord]:
        return self.records[index]

    def data(self) -> list[bytes]:
        """`data` of each record, byte for byte as appended."""
        return data_of(self.records)

    def follow(self, before: RecordBatch | None) -> None:
        """Also report the losses of the batch before, which had no record to report them."""
        if before is not None:
            self.tombstone = merge_tombstones(before.tombstone, self.tombstone)
            self.corrupt_seqs = before.corrupt_seqs + self.corrupt_seqs

    def announce(self) -> None:
        """Log the records that the cursor passes without delivering them."""
        if self.tombstone is not None:
            _log.warning(
                "reader_lost_records",
                topic=self.topic,
                consumer=self.consumer,
                reason=self.tombstone.reason,
                gap_from=self.tombstone.gap_from,
                gap_to=self.tombstone.gap_to,
            )
        if self.corrupt_seqs:
            _log.warning("corrupt_records_skipped", topic=self.topic, consumer=self.consumer, seqs=self.corrupt_seqs)

    def __repr__(self) -> str:
        return f"<{len(self.records)} records of {self.topic} up to {self.cursor_seq}, {self.unread} unread>"


def first_record(batch: RecordBatch) -> Record | None:
    """The first record of a batch, if any; it reports the batch's losses."""
    if not batch.records:
        return None
    record = _record(batch.records[0])
    if batch.tombstone is not None:
        record.lost = batch.tombstone
    if batch.corrupt_seqs:
        record.corrupt_seqs = batch.corrupt_seqs
    return record


def records_in(batch: RecordBatch) -> Iterator[Record]:
    """The batch's records one by one; the first one reports the batch's losses."""
    first = first_record(batch)
    if first is not None:
        yield first
        yield from map(_record, islice(batch.records, 1, None))


def merge_tombstones(first: Tombstone | None, second: Tombstone | None) -> Tombstone | None:
    """One tombstone for two losses, the second after the first."""
    if first is None or second is None:
        return first or second
    return Tombstone(
        gap_from=first.gap_from,
        gap_to=second.gap_to,
        reason=first.reason if first.reason == second.reason else "mixed",
        missed_estimate=first.missed_estimate + second.missed_estimate,
        earliest_seq=second.earliest_seq,
        head_seq=second.head_seq,
    )
