"""Hand-written codec of Fetch, versions 4 to 18. Batches are pieces of the answer and are not copied. Pure.

Version 5 added log_start_offset, 7 sessions, 9 the leader epoch, 11 the rack and the preferred read replica. Version 12
is flexible. From 13 on a topic has its id instead of its name. Version 15 removed the replica's id from the front.

The broker makes no fetch sessions: it answers with session 0, and the client names all partitions in every request.
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


class FetchPartition(NamedTuple):
    """One partition of a request. `leader_epoch` -1: the client does not know it.

    `topic_id`: the topic's id if the request names topics by id; `topic` is then "".
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
    #: In the order of the request: grouped by topic.
    partitions: list[FetchPartition]


class Fetched(NamedTuple):
    """The result for one partition: whole batches. `topic_id`: as in the request."""

    topic: str
    partition: int
    error: int = 0
    high_watermark: int = -1
    log_start_offset: int = -1
    batches: Sequence[Buffer] = ()
    #: Bytes of the batches before compression.
    uncompressed_size: int = 0
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
        reader.int32()  # replica_id: there are no replicas
    max_wait_ms, min_bytes, max_bytes = reader.int32(), reader.int32(), reader.int32()
    reader.int8()  # isolation_level: there are no transactions
    session_id = 0
    if version >= _SESSIONS_SINCE:
        session_id = reader.int32()
        reader.int32()
    partitions: list[FetchPartition] = []

    def partition(name: str, topic_id: bytes | None, reader: Reader) -> None:
        number = reader.int32()
        epoch = reader.int32() if version >= _EPOCH_SINCE else -1
        offset = reader.int64()
        if flexible:
            reader.int32()  # last_fetched_epoch: for replicas
        if version >= _LOG_START_SINCE:
            reader.int64()  # log_start_offset: for replicas
        partitions.append(FetchPartition(name, number, epoch, offset, reader.int32(), topic_id))
        if flexible:
            reader.skip_tagged_fields()

    def topic(reader: Reader) -> None:
        topic_id = reader.uuid() if version >= IDS_SINCE else None
        name = string() or "" if topic_id is None else ""
        (reader.compact_array if flexible else reader.array)(lambda reader: partition(name, topic_id, reader))
        if flexible:
            reader.skip_tagged_fields()

    (reader.compact_array if flexible else reader.array)(topic)
    # The rest is not read: topics that the session forgets, the rack, tagged fields.
    return FetchRequest(max_wait_ms, min_bytes, max_bytes, session_id, partitions)


def write_fetched(version: int, error: int, fetched: Sequence[Fetched]) -> list[Buffer]:
    """The answer in pieces: the given batches, and the bytes between them."""
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
    """Write the fields of a partition up to and including the length of its records."""
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
    # No records are written as empty bytes: older clients do not accept null.
    if flexible:
        writer.varint(one.size + 1)
    else:
        writer.int32(one.size)
