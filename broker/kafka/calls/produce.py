"""Produce: one atomic append for each batch, acked according to the topic's class.

Appends are submitted when the request starts. Later requests of the connection wait only while an append cannot be
submitted (no room in the log, a seq reservation, a topic that is being changed: these delay HTTP requests, too), or
while a thread reads a large batch. The answer waits for its commits without blocking the connection.

Source: docs/guides/kafka.md#how-kafka-maps-to-topics, docs/guides/kafka.md#producing-and-consuming.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from broker.auth import WRITE
from broker.kafka.apis import ApiKey
from broker.kafka.call import Answer, Body, Call, Handler, Later, located, log_start_offset
from broker.kafka.codec.produce import (
    FIRST_SERVED,
    PartitionData,
    Produced,
    ProduceRequest,
    read_produce,
    write_produced,
)
from broker.kafka.errors import ErrorCode, code_of, message_of
from broker.kafka.mapping import to_stored
from broker.kafka.records import (
    CODEC_MASK,
    MAX_BATCH_BYTES,
    NO_PRODUCER,
    BatchError,
    BatchHeader,
    BatchTooLarge,
    CorruptBatch,
    InvalidTimestamp,
    KeyMissing,
    UnsupportedCodec,
    UnsupportedMagic,
)
from broker.kafka.records.batch_reader import read_batch
from broker.kafka.settings import COMPACTED, key_missing
from storage.records import Appended, ProducerBatch, StoredBodies

if TYPE_CHECKING:
    from storage.state import Topic

#: acks=all: the answer is sent when the write is durable, as the topic's class defines it.
ALL: Final = -1
NO_ANSWER: Final = 0
_ACKS: Final = (ALL, NO_ANSWER, 1)
#: Batches with more uncompressed bytes are read on a thread.
_ON_LOOP_BYTES: Final = 256 << 10

_BATCH_CODES: Final[dict[type[BatchError], ErrorCode]] = {
    CorruptBatch: ErrorCode.CORRUPT_MESSAGE,
    UnsupportedMagic: ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    UnsupportedCodec: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    BatchTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    InvalidTimestamp: ErrorCode.INVALID_TIMESTAMP,
    KeyMissing: ErrorCode.INVALID_RECORD,
}


class _Outcomes:
    """Collects the results of the batches of a request."""

    def __init__(self, call: Call, request: ProduceRequest) -> None:
        self._call = call
        self._batches = request.batches
        self._found: list[Produced | None] = [None] * len(request.batches)
        #: The number of batches without a result.
        self.open = len(request.batches)
        self._whole: asyncio.Future[Body | None] | None = None

    def refused(self, number: int, error: Exception) -> None:
        """Set an error as the result: nothing was stored, as far as is known."""
        if isinstance(error, BatchError):
            code, message = _BATCH_CODES.get(type(error), ErrorCode.INVALID_RECORD), str(error)
        else:
            code, message = code_of(error), message_of(error)
        self._call.errors.append(code)
        batch = self._batches[number]
        invalid_records = error.at if isinstance(error, KeyMissing) else ()
        self._set(
            number, Produced(batch.topic, batch.partition, code, message=message, invalid_records=invalid_records)
        )

    def callback_for(self, number: int, topic: Topic) -> Callable[[Appended | Exception], None]:
        """The callback for the result of an append."""

        def on_result(outcome: Appended | Exception) -> None:
            if isinstance(outcome, Exception):
                self.refused(number, outcome)
                return
            batch = self._batches[number]
            start = log_start_offset(topic)
            self._set(number, Produced(batch.topic, batch.partition, 0, outcome.first_seq - 1, start))

        return on_result

    def _set(self, number: int, outcome: Produced) -> None:
        self._found[number] = outcome
        self.open -= 1
        if not self.open and self._whole is not None and not self._whole.done():
            self._whole.set_result(self.body())

    def body(self) -> bytes:
        """The answer. All results must be known."""
        return write_produced(self._call.version, [each for each in self._found if each is not None])

    def coming(self) -> asyncio.Future[Body | None]:
        """The answer, when all results are known."""
        self._whole = asyncio.get_running_loop().create_future()
        return self._whole


async def produce(call: Call, body: memoryview) -> Answer:
    """Append the batches of a request. Raises Malformed."""
    request = read_produce(call.version, body)
    is_plain = call.version >= FIRST_SERVED and request.acks in _ACKS and request.transactional_id is None
    refusal = None if is_plain else _refusal(call, request)
    if refusal is not None:
        call.errors.append(refusal)
        answer = write_produced(
            call.version, [Produced(each.topic, each.partition, refusal) for each in request.batches]
        )
        return None if request.acks == NO_ANSWER else answer
    outcomes = _Outcomes(call, request)
    for number, batch in enumerate(request.batches):
        try:
            await _begin(call, request, batch, number, outcomes)
        except Exception as error:
            outcomes.refused(number, error)
    if request.acks == NO_ANSWER:
        if call.errors:
            call.connection.rejected = True  # as in Kafka: without an answer, only the end of the connection tells
        return None
    return Later(outcomes.coming()) if outcomes.open else outcomes.body()


def _refusal(call: Call, request: ProduceRequest) -> ErrorCode | None:
    """The error of the whole request."""
    if call.version < FIRST_SERVED:
        return ErrorCode.UNSUPPORTED_VERSION
    if request.acks not in _ACKS:
        return ErrorCode.INVALID_REQUIRED_ACKS
    if request.transactional_id is not None:
        return ErrorCode.INVALID_TXN_STATE
    return None


async def _begin(call: Call, request: ProduceRequest, batch: PartitionData, number: int, outcomes: _Outcomes) -> None:
    """Submit one batch to the engine. Raises the error that prevents it."""
    engine = call.broker.engine
    partition_name, topic = located(call, WRITE, batch.topic, batch.partition)
    if call.broker.pressure.refusing:
        call.broker.pressure.check()
    most = topic.config.max_message_bytes
    if most and len(batch.records or b"") > most:
        raise BatchTooLarge(f"A batch for {batch.topic} may have at most {most} bytes.")
    stored, header = await _read(call, batch, keyed=topic.config.cleanup_policy in COMPACTED)
    producer = _producer_of(header)
    hasten = request.acks == ALL
    on_result = outcomes.callback_for(number, topic)
    if not engine.try_append(partition_name, stored, on_result, producer=producer, hasten=hasten):
        # Awaited here, so that no later batch of the connection is stored before it.
        on_result(await engine.append(partition_name, stored, create=False, producer=producer, hasten=hasten))
    codec = header.attributes & CODEC_MASK
    if codec:  # uncompressed batches do not count
        call.broker.kafka_codecs.sent(topic, codec)


async def _read(call: Call, batch: PartitionData, *, keyed: bool) -> tuple[StoredBodies, BatchHeader]:
    """The contents to store. Raises BatchError.

    The size of a batch is known only after decompression. On the loop, at most a small part is decompressed.
    """
    most = call.broker.engine.options.max_batch_records
    if len(batch.records or b"") <= _ON_LOOP_BYTES:
        try:
            return _stored(batch, most, _ON_LOOP_BYTES, keyed=keyed)
        except BatchTooLarge:
            pass  # too large for the loop, maybe also for the topic
    return await call.broker.unpacking.run(_stored, batch, most, MAX_BATCH_BYTES, keyed=keyed)


def _stored(batch: PartitionData, max_records: int, max_bytes: int, *, keyed: bool) -> tuple[StoredBodies, BatchHeader]:
    if batch.records is None:
        raise CorruptBatch("The batch is missing.")
    found = read_batch(batch.records, max_records=max_records, max_bytes=max_bytes)
    if keyed and None in found.keys:
        at = [index for index, key in enumerate(found.keys) if key is None]
        raise KeyMissing(key_missing(batch.topic, batch.partition), at)
    return to_stored(found.keys, found.values, found.headers, found.stamps), found.header


def _producer_of(header: BatchHeader) -> ProducerBatch | None:
    if header.producer_id == NO_PRODUCER:
        return None
    return ProducerBatch(header.producer_id, header.producer_epoch, header.base_sequence)


HANDLERS: Final[dict[int, Handler]] = {ApiKey.PRODUCE: produce}
