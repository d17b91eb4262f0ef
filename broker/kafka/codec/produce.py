"""Produce, versions 3 to 9, by hand: batches are slices of the frame, and answers are made in one go. Pure.

Version 9 is flexible. 5 added log_start_offset to the answer, 8 the sentence and which records are to blame.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from broker.kafka.codec.wire import Reader, Writer

FLEXIBLE_SINCE: Final = 9
#: Before it messages had other formats, and there was no transactional id.
FIRST_SERVED: Final = 3
_LOG_START_SINCE: Final = 5
_SENTENCE_SINCE: Final = 8


class PartitionData(NamedTuple):
    """A batch for one partition; None: there is none, which is wrong."""

    topic: str
    partition: int
    records: bytes | None


class ProduceRequest(NamedTuple):
    """`acks`: -1 all, 1, 0: no answer is wanted."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    #: In the order of the request; a topic's are together.
    batches: list[PartitionData]


class Produced(NamedTuple):
    """What has become of one batch. `base_offset` -1: nothing was stored, as `error` says."""

    topic: str
    partition: int
    error: int = 0
    base_offset: int = -1
    log_start_offset: int = -1
    sentence: str | None = None
    #: Which records of the batch are to blame, from 0; none: all of them, or not the records.
    to_blame: Sequence[int] = ()


def read_produce(version: int, body: memoryview) -> ProduceRequest:
    """Raises Malformed. Of versions before 3 only what names the partitions counts."""
    reader = Reader(body)
    flexible = version >= FLEXIBLE_SINCE
    string = reader.compact_string if flexible else reader.string
    transactional_id = string() if version >= FIRST_SERVED else None
    acks, timeout_ms = reader.int16(), reader.int32()
    batches: list[PartitionData] = []

    def partition(name: str, reader: Reader) -> None:
        number = reader.int32()
        batches.append(PartitionData(name, number, reader.compact_data() if flexible else reader.data()))
        if flexible:
            reader.skip_tagged_fields()

    def topic(reader: Reader) -> None:
        name = string() or ""
        (reader.compact_array if flexible else reader.array)(lambda reader: partition(name, reader))
        if flexible:
            reader.skip_tagged_fields()

    (reader.compact_array if flexible else reader.array)(topic)
    return ProduceRequest(transactional_id, acks, timeout_ms, batches)


def write_produced(version: int, outcomes: list[Produced]) -> bytes:
    """The answer. Topics stand in it as often as their batches do not follow one another."""
    writer = Writer()
    flexible = version >= FLEXIBLE_SINCE
    topics: list[list[Produced]] = []
    for each in outcomes:
        if not topics or topics[-1][0].topic != each.topic:
            topics.append([])
        topics[-1].append(each)

    def partition(writer: Writer, one: Produced) -> None:
        writer.int32(one.partition)
        writer.int16(one.error)
        writer.int64(one.base_offset)
        if version >= 2:
            writer.int64(-1)  # times are those of the producer
        if version >= _LOG_START_SINCE:
            writer.int64(one.log_start_offset)
        if version >= _SENTENCE_SINCE:
            (writer.compact_array if flexible else writer.array)([*one.to_blame], record)
            (writer.compact_string if flexible else writer.string)(one.sentence)
        if flexible:
            writer.no_tagged_fields()

    def record(writer: Writer, index: int) -> None:
        writer.int32(index)
        # The sentence of the batch holds for each.
        (writer.compact_string if flexible else writer.string)(None)
        if flexible:
            writer.no_tagged_fields()

    def topic(writer: Writer, parts: list[Produced]) -> None:
        (writer.compact_string if flexible else writer.string)(parts[0].topic)
        (writer.compact_array if flexible else writer.array)(parts, partition)
        if flexible:
            writer.no_tagged_fields()

    (writer.compact_array if flexible else writer.array)(topics, topic)
    if version >= 1:
        writer.int32(0)
    if flexible:
        writer.no_tagged_fields()
    return writer.done()
