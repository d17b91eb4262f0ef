"""What a handler records about a request for its span, while tracing is on. Independent of OpenTelemetry."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from broker.tracing.carried import Carried, of_bodies, of_metas
from storage.queues import Claimed
from storage.records import Appended, NewRecord, PlainRecords, StoredRecord
from storage.state.queues import Settled

#: The operation types of the semantic conventions for messaging.
Kind = Literal["send", "receive", "settle"]


class Note(NamedTuple):
    """An operation on `records` records of a topic, and the trace contexts in them."""

    operation: str
    kind: Kind
    topic: str
    records: int
    carried: Sequence[Carried] = ()


def appended(done: Appended, records: Sequence[NewRecord] | PlainRecords = ()) -> Note:
    """A write."""
    if isinstance(records, PlainRecords):
        records = ()  # they have no meta
    metas = (None if each.meta is None else bytes(each.meta) for each in records)
    return Note("append", "send", done.topic, done.count, of_metas(metas))


def claimed(done: Claimed) -> Note:
    """A claim: jobs leased to a worker."""
    return Note("claim", "receive", done.topic, len(done.jobs), of_bodies(job.record.body for job in done.jobs))


def ack_note(operation: str, done: Settled) -> Note:
    """An ack, nack or extend."""
    return Note(operation, "settle", done.topic, len(done.done))


def read(operation: str, topic: str, records: Sequence[StoredRecord]) -> Note:
    """A read."""
    return Note(operation, "receive", topic, len(records), of_bodies(each.body for each in records))


def moved(operation: str, topic: str, bodies: Iterable[bytes], count: int) -> Note:
    """Records copied or moved to another topic."""
    return Note(operation, "send", topic, count, of_bodies(bodies))
