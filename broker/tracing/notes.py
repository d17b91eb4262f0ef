"""What an endpoint notes of a request for its span, when somebody traces. Knows nothing of how spans are made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from broker.tracing.carried import Carried, of_bodies, of_metas
from storage.queues.lease_queue import Claimed
from storage.records.values import Appended, NewRecord, PlainRecords, StoredRecord
from storage.state.queues.values import Settled

#: As the semantic conventions for messaging have them.
Kind = Literal["send", "receive", "settle"]


class Note(NamedTuple):
    """An operation on so many records of a topic, which carry these contexts."""

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
    """Jobs handed out."""
    return Note("claim", "receive", done.topic, len(done.jobs), of_bodies(job.record.body for job in done.jobs))


def ack_note(operation: str, done: Settled) -> Note:
    """Jobs acked, given back or kept for longer."""
    return Note(operation, "settle", done.topic, len(done.done))


def read(operation: str, topic: str, records: Sequence[StoredRecord]) -> Note:
    """Records given to a reader."""
    return Note(operation, "receive", topic, len(records), of_bodies(each.body for each in records))


def moved(operation: str, topic: str, bodies: Iterable[bytes], count: int) -> Note:
    """Copies written to another topic."""
    return Note(operation, "send", topic, count, of_bodies(bodies))
