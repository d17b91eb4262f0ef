"""Produce, versions 3 to 9, by hand: batches are slices of the frame, and answers are made in one go. Pure.

Version 9 is flexible. 5 added log_start_offset to the answer, 8 the sentence and which records are to blame.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, error
from typing import Final, NamedTuple

from broker.kafka.codec.wire import Reader, Writer

FLEXIBLE_SINCE: Final = 9
#: Before it messages had other formats, and there was no transactional id.
FIRST_SERVED: Final = 3
_LOG_START_SINCE: Final = 5
_SENTENCE_SINCE: Final = 8
_MAX_VARINT_BYTES: Final = 5
_ACKS_AND_TIMEOUT: Final = Struct(">hi")
_INT32: Final = Struct(">i")
#: Partition, error, base offset, time, log start offset.
_NUMBERS: Final = Struct(">ihqqq")
#: No records to blame, no sentence, no tagged fields of the partition and of the topic, no throttling, no tagged fields
#: of the answer.
_BEHIND_ONE: Final = b"\1\0" + b"\0\0" + b"\0\0\0\0" + b"\0"


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
    found = _read_one(body) if version >= FLEXIBLE_SINCE else None
    return read_any(version, body) if found is None else found


def _read_one(body: memoryview) -> ProduceRequest | None:
    """A request of a batch for one partition, as nearly all are; None: it is another, or malformed.

    null transactional id · acks · timeout · one topic · its name · one partition · its number · its batch · no tagged
    fields of these two
    """
    try:
        acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack_from(body, 1)
        name_size = body[8] - 1
        at = 9 + name_size
        if body[0] or body[7] != 2 or not 0 < name_size < 0x7F or body[at] != 2:
            return None
        name = str(body[9:at], "utf-8")
        (number,) = _INT32.unpack_from(body, at + 1)
        at += 5
        size = shift = 0
        for _ in range(_MAX_VARINT_BYTES):
            byte = body[at]
            at += 1
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        else:
            return None
        end = at + size - 1
        if not size or body[end] or body[end + 1]:
            return None
    except (IndexError, error, UnicodeDecodeError):
        return None
    return ProduceRequest(None, acks, timeout_ms, [PartitionData(name, number, bytes(body[at:end]))])


def read_any(version: int, body: memoryview) -> ProduceRequest:
    """Any request. Raises Malformed."""
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
    if version >= FLEXIBLE_SINCE and len(outcomes) == 1:
        one = outcomes[0]
        name = one.topic.encode()
        if one.sentence is None and not one.to_blame and len(name) < 0x7F:
            numbers = _NUMBERS.pack(one.partition, one.error, one.base_offset, -1, one.log_start_offset)
            return b"\2%c%b\2%b%b" % (len(name) + 1, name, numbers, _BEHIND_ONE)
    return write_any(version, outcomes)


def write_any(version: int, outcomes: list[Produced]) -> bytes:
    """The answer to any request."""
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
