"""Fetch, versions 4 to 18, by hand: batches go out as they are, one piece of the answer each. Pure.

Version 12 is flexible. 5 added log_start_offset, 7 sessions (which are not made here: the answer's session is always 0,
and the client names all partitions every time), 9 the leader epoch, 11 the rack and the replica to read from. From 13
on a topic has its id in the place of its name, and from 15 on no replica says which it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from broker.kafka.codec.wire import Buffer, Reader, Writer

FLEXIBLE_SINCE: Final = 12
_LOG_START_SINCE: Final = 5
_SESSIONS_SINCE: Final = 7
_EPOCH_SINCE: Final = 9
_RACK_SINCE: Final = 11
IDS_SINCE: Final = 13
_NO_REPLICA_SINCE: Final = 15


class Wanted(NamedTuple):
    """What is wanted of one partition. `leader_epoch` -1: the client does not know it.

    `topic_id`: in the place of a name, which is empty then.
    """

    topic: str
    partition: int
    leader_epoch: int
    offset: int
    max_bytes: int
    topic_id: bytes | None = None


class FetchRequest(NamedTuple):
    """`session_id` 0: none."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    session_id: int
    #: In the order of the request; a topic's are together.
    wanted: list[Wanted]


class Fetched(NamedTuple):
    """What there is of one partition: whole batches. `topic_id`: as it was asked for by that."""

    topic: str
    partition: int
    error: int = 0
    high_watermark: int = -1
    log_start_offset: int = -1
    batches: Sequence[Buffer] = ()
    #: Bytes of the batches before they were compressed.
    bare_size: int = 0
    topic_id: bytes | None = None

    @property
    def size(self) -> int:
        return sum(map(len, self.batches))


def read_fetch(version: int, body: memoryview) -> FetchRequest:
    """Raises Malformed."""
    reader = Reader(body)
    flexible = version >= FLEXIBLE_SINCE
    string = reader.compact_string if flexible else reader.string
    if version < _NO_REPLICA_SINCE:
        reader.int32()  # replica_id: only clients ask here
    max_wait_ms, min_bytes, max_bytes = reader.int32(), reader.int32(), reader.int32()
    reader.int8()  # isolation_level: all that is here is committed
    session_id = 0
    if version >= _SESSIONS_SINCE:
        session_id = reader.int32()
        reader.int32()
    wanted: list[Wanted] = []

    def partition(name: str, topic_id: bytes | None, reader: Reader) -> None:
        number = reader.int32()
        epoch = reader.int32() if version >= _EPOCH_SINCE else -1
        offset = reader.int64()
        if flexible:
            reader.int32()  # last_fetched_epoch: for replicas
        if version >= _LOG_START_SINCE:
            reader.int64()  # log_start_offset: of replicas
        wanted.append(Wanted(name, number, epoch, offset, reader.int32(), topic_id))
        if flexible:
            reader.skip_tagged_fields()

    def topic(reader: Reader) -> None:
        topic_id = reader.uuid() if version >= IDS_SINCE else None
        name = string() or "" if topic_id is None else ""
        (reader.compact_array if flexible else reader.array)(lambda reader: partition(name, topic_id, reader))
        if flexible:
            reader.skip_tagged_fields()

    (reader.compact_array if flexible else reader.array)(topic)
    # What a session forgets, the rack and tagged fields follow: nothing is made of them.
    return FetchRequest(max_wait_ms, min_bytes, max_bytes, session_id, wanted)


def write_fetched(version: int, error: int, fetched: Sequence[Fetched]) -> list[Buffer]:
    """The answer in pieces, of which batches are the ones they came in."""
    pieces: list[Buffer] = []
    writer = Writer()
    flexible = version >= FLEXIBLE_SINCE
    writer.int32(0)
    if version >= _SESSIONS_SINCE:
        writer.int16(error)
        writer.int32(0)
    topics: list[list[Fetched]] = []
    for each in fetched:
        if not topics or (topics[-1][0].topic, topics[-1][0].topic_id) != (each.topic, each.topic_id):
            topics.append([])
        topics[-1].append(each)
    _count(writer, len(topics), flexible)
    for parts in topics:
        topic_id = parts[0].topic_id
        if topic_id is not None:
            writer.uuid(topic_id)
        else:
            (writer.compact_string if flexible else writer.string)(parts[0].topic)
        _count(writer, len(parts), flexible)
        for one in parts:
            _head(writer, one, version)
            if one.batches:
                pieces.append(writer.done())
                pieces += one.batches
                writer = Writer()
            if flexible:
                writer.no_tagged_fields()
        if flexible:
            writer.no_tagged_fields()
    if flexible:
        writer.no_tagged_fields()
    pieces.append(writer.done())
    return pieces


def _count(writer: Writer, count: int, flexible: bool) -> None:
    if flexible:
        writer.varint(count + 1)
    else:
        writer.int32(count)


def _head(writer: Writer, one: Fetched, version: int) -> None:
    """Up to and including the length of the records."""
    flexible = version >= FLEXIBLE_SINCE
    writer.int32(one.partition)
    writer.int16(one.error)
    writer.int64(one.high_watermark)
    writer.int64(one.high_watermark)  # last_stable_offset: there are no transactions
    if version >= _LOG_START_SINCE:
        writer.int64(one.log_start_offset)
    _count(writer, 0, flexible)  # aborted_transactions
    if version >= _RACK_SINCE:
        writer.int32(-1)  # preferred_read_replica
    # None is said as no bytes, not as null: older clients do not take null for records.
    if flexible:
        writer.varint(one.size + 1)
    else:
        writer.int32(one.size)
