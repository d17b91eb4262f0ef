"""The last batches of each idempotent producer of a log: they distinguish repeats from new batches. Pure.

A producer numbers its records per log, from 0 on in each epoch, in 31 bits that wrap around. A batch is accepted when
it continues the last one. A repeat of one of the last REMEMBERED batches is recognised and gets the same answer. There
are two views, as of a log: published, and assigned, which is ahead by the batches in flight. So several
batches of one producer may be in flight.

    no entry (never seen, or idle for too long)          any sequence is accepted, as in Kafka
    an older epoch than the entry's                      InvalidProducerEpoch
    a newer epoch                                        sequence 0 is accepted, any other is OutOfOrderSequence
    first and last sequence of a remembered batch        a repeat
    the sequence after the last one                      accepted
    any other                                            OutOfOrderSequence

The log decides, not the clock: entries are forgotten by time only in memory and in snapshots.

Source: docs/guides/kafka.md#producing-and-consuming.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from storage.errors import InvalidProducerEpoch, OutOfOrderSequence
from storage.records import ProducerBatch

REMEMBERED = 5
MAX_SEQUENCE = (1 << 31) - 1
MAX_EPOCH = (1 << 15) - 1
MAX_PRODUCER_ID = (1 << 63) - 1


class Sent(NamedTuple):
    """An accepted batch: its first and last sequence, and the seq of its first record."""

    base: int
    last: int
    first_seq: int


class Entry(NamedTuple):
    """A producer: its epoch, the time of its last write (ms since the epoch), and its last batches, oldest first."""

    epoch: int
    ts: int
    sent: tuple[Sent, ...]


class ProducerSection(msgspec.Struct, frozen=True, kw_only=True):
    """An entry in the snapshot section of its log."""

    producer_id: int
    epoch: int
    ts: int
    batches: list[tuple[int, int, int]]


def last_sequence(base: int, count: int) -> int:
    """The sequence of the last of `count` records whose first has `base`."""
    return (base + count - 1) & MAX_SEQUENCE


class ProducerTable:
    """Producers of one log, the longest idle first. `len` counts the published ones."""

    __slots__ = ("_assigned", "_published")

    def __init__(self) -> None:
        self._published: dict[int, Entry] = {}
        self._assigned: dict[int, Entry] = {}

    def __len__(self) -> int:
        return len(self._published)

    def entry(self, producer_id: int) -> Entry | None:
        """The entry in the assigned view."""
        return self._assigned.get(producer_id) or self._published.get(producer_id)

    def known(self, batch: ProducerBatch, count: int, now_ms: int, idle_ms: int) -> Sent | None:
        """The batch that this batch of `count` records repeats, possibly still in flight; None: it may be written.

        A producer that has not written for `idle_ms` is forgotten. Raises InvalidProducerEpoch, OutOfOrderSequence.
        """
        entry = self.entry(batch.producer_id)
        if entry is None or now_ms - entry.ts > idle_ms:
            return None
        base, last = batch.base_sequence, last_sequence(batch.base_sequence, count)
        if batch.epoch < entry.epoch:
            raise InvalidProducerEpoch(
                f"Producer {batch.producer_id} has written with epoch {entry.epoch}; this batch is of {batch.epoch}.",
                producer_id=batch.producer_id,
                epoch=entry.epoch,
            )
        expected = (entry.sent[-1].last + 1) & MAX_SEQUENCE
        if batch.epoch > entry.epoch:
            expected = 0
        else:
            for sent in reversed(entry.sent):
                if sent.base == base and sent.last == last:
                    return sent
        if base != expected:
            raise OutOfOrderSequence(
                f"Producer {batch.producer_id} continues with sequence {expected}; this batch begins at {base}.",
                producer_id=batch.producer_id,
                base_sequence=base,
                expected=expected,
            )
        return None

    def assign(self, batch: ProducerBatch, count: int, first_seq: int, ts: int) -> None:
        """The batch is in flight."""
        entry = self.entry(batch.producer_id)
        self._assigned[batch.producer_id] = _after(entry, batch, count, first_seq, ts)

    def take(self, batch: ProducerBatch, count: int, first_seq: int, ts: int) -> int:
        """The batch is committed; returns the change in the number of producers."""
        before = self._published.pop(batch.producer_id, None)
        entry = self._published[batch.producer_id] = _after(before, batch, count, first_seq, ts)
        ahead = self._assigned.get(batch.producer_id)
        if ahead is not None and ahead.sent[-1] == entry.sent[-1]:
            del self._assigned[batch.producer_id]
        return int(before is None)

    def take_all(self, batches: Sequence[tuple[int, int, int, int, int, int]]) -> int:
        """`take` for each of these batches, oldest first: (first seq, records, time, producer id, epoch, base
        sequence). Only the last REMEMBERED batches of each producer make a difference."""
        left = dict[int, int]()
        wanted: list[tuple[int, int, int, int, int, int]] = []
        for batch in reversed(batches):
            more = left.get(batch[3], REMEMBERED)
            if more:
                left[batch[3]] = more - 1
                wanted.append(batch)
        return sum(
            [
                self.take(ProducerBatch(producer_id, epoch, base), count, first_seq, ts)
                for first_seq, count, ts, producer_id, epoch, base in reversed(wanted)
            ]
        )

    def roll_back(self) -> None:
        """Writes in flight have failed."""
        self._assigned.clear()

    def expire(self, now_ms: int, idle_ms: int) -> int:
        """Forget producers that were idle for longer; returns their number."""
        gone: list[int] = []
        for producer_id, entry in self._published.items():
            if now_ms - entry.ts <= idle_ms:
                break
            gone.append(producer_id)
        for producer_id in gone:
            del self._published[producer_id]
        return len(gone)

    def forget_one(self) -> int:
        """Forget the producer that was idle longest; returns how many were forgotten, 0 or 1."""
        oldest = next(iter(self._published), None)
        if oldest is None:
            return 0
        del self._published[oldest]
        return 1

    def renew(self, last_ms: int, idle_ms: int, now_ms: int) -> int:
        """Producers that were not idle for too long at `last_ms` are idle from now on; returns how many are
        forgotten."""
        before = len(self._published)
        live = {key: entry for key, entry in self._published.items() if last_ms - entry.ts <= idle_ms}
        self._published = {key: entry._replace(ts=now_ms) for key, entry in live.items()}
        return before - len(live)

    def capture(self, head: int) -> list[ProducerSection]:
        """The table for a snapshot, for records up to `head`."""
        found: list[ProducerSection] = []
        for producer_id, entry in self._published.items():
            batches = [(sent.base, sent.last, sent.first_seq) for sent in entry.sent if sent.first_seq <= head]
            if batches:
                found.append(ProducerSection(producer_id=producer_id, epoch=entry.epoch, ts=entry.ts, batches=batches))
        return found

    @classmethod
    def of(cls, sections: Iterable[ProducerSection]) -> ProducerTable:
        """The table restored from a snapshot."""
        table = cls()
        for each in sections:
            sent = tuple(Sent(*batch) for batch in each.batches)
            table._published[each.producer_id] = Entry(each.epoch, each.ts, sent)
        return table


def _after(entry: Entry | None, batch: ProducerBatch, count: int, first_seq: int, ts: int) -> Entry:
    """The entry after a batch. The caller has checked the batch; batches that it does not continue are forgotten."""
    sent = Sent(batch.base_sequence, last_sequence(batch.base_sequence, count), first_seq)
    before: tuple[Sent, ...] = ()
    same = entry is not None and entry.epoch == batch.epoch
    if entry is not None and same and batch.base_sequence == (entry.sent[-1].last + 1) & MAX_SEQUENCE:
        before = entry.sent[1 - REMEMBERED :]
    return Entry(batch.epoch, ts, (*before, sent))
