"""Hand-written codec of Produce, versions 3 to 9. Pure.

Version 5 added log_start_offset to the answer, 8 the error message and the indexes of invalid records. Version 9 is
flexible.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, error
from typing import Final, NamedTuple

from broker.kafka.codec.wire import Reader, Writer

FLEXIBLE_SINCE: Final = 9
#: Older versions have other message formats and no transactional id.
FIRST_SERVED: Final = 3
_LOG_START_SINCE: Final = 5
_MESSAGE_SINCE: Final = 8
_MAX_VARINT_BYTES: Final = 5
_ACKS_AND_TIMEOUT: Final = Struct(">hi")
_INT32: Final = Struct(">i")
#: Partition, error, base offset, time, log start offset.
_NUMBERS: Final = Struct(">ihqqq")
#: The rest of an answer for one partition: no invalid records, no message, no tagged fields of the partition and of the
#: topic, no throttling, no tagged fields of the answer.
_REST: Final = b"\1\0" + b"\0\0" + b"\0\0\0\0" + b"\0"


class PartitionData(NamedTuple):
    """A batch for one partition. `records` None: the client sent none, which is an error."""

    topic: str
    partition: int
    records: bytes | None


class ProduceRequest(NamedTuple):
    """`acks`: -1 all, 1, or 0: the client wants no answer."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    #: In the order of the request: grouped by topic.
    batches: list[PartitionData]


class Produced(NamedTuple):
    """The result for one batch. `base_offset` -1: nothing was stored, and `error` says why."""

    topic: str
    partition: int
    error: int = 0
    base_offset: int = -1
    log_start_offset: int = -1
    message: str | None = None
    #: Indexes of the invalid records in the batch, from 0. Empty: all are invalid, or the error is not about records.
    invalid_records: Sequence[int] = ()


def read_produce(version: int, body: memoryview) -> ProduceRequest:
    """Decode a request. Raises Malformed. Of versions before 3, only the names of the partitions are used."""
    found = _read_one(body) if version >= FLEXIBLE_SINCE else None
    return read_any(version, body) if found is None else found


def _read_one(body: memoryview) -> ProduceRequest | None:
    """Decode the usual request: one batch for one partition. None: another request, or a malformed one.

    null transactional id · acks · timeout · one topic · its name · one partition · its number · its batch · no tagged
    fields of partition and topic
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
    """Decode any request. Raises Malformed."""
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
    """Encode the answer. A topic occurs several times in it if its batches are not consecutive."""
    if version >= FLEXIBLE_SINCE and len(outcomes) == 1:
        one = outcomes[0]
        name = one.topic.encode()
        if one.message is None and not one.invalid_records and len(name) < 0x7F:
            numbers = _NUMBERS.pack(one.partition, one.error, one.base_offset, -1, one.log_start_offset)
            return b"\2%c%b\2%b%b" % (len(name) + 1, name, numbers, _REST)
    return write_any(version, outcomes)


def write_any(version: int, outcomes: list[Produced]) -> bytes:
    """Encode the answer to any request."""
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
            writer.int64(-1)  # log_append_time: records have the time of the producer
        if version >= _LOG_START_SINCE:
            writer.int64(one.log_start_offset)
        if version >= _MESSAGE_SINCE:
            (writer.compact_array if flexible else writer.array)([*one.invalid_records], record)
            (writer.compact_string if flexible else writer.string)(one.message)
        if flexible:
            writer.no_tagged_fields()

    def record(writer: Writer, index: int) -> None:
        writer.int32(index)
        # The message of the batch applies to each record.
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
