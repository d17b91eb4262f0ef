"""Consumers: administration, reading, committing. Fields are checked before the topic.

`topic` is the name of the partition in the engine.

Source: docs/reference/api.md#consumers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from heapq import merge
from itertools import chain
from time import monotonic
from typing import TYPE_CHECKING, Final

import msgspec

from broker.content import Slices
from broker.scheduling import Slots
from broker.service import reads
from broker.service.predicates import check_consumer_name
from broker.service.topics import DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE, decode_cursor, encode_cursor
from schemas import ConsumerChange, ConsumerRequest, SeekRequest
from storage import InvalidRequest, ShuttingDown
from storage.log import check_text
from storage.records import ReadQuery, split
from storage.state.consumers import Consistency, ConsumerConfig

if TYPE_CHECKING:
    from storage import Engine
    from storage.state import Topic
    from storage.state.consumers import ConsumerRead, ConsumerState

MAX_ATTEMPT_KEY_BYTES: Final = 128
#: Between the names in the order of all consumers.
_AND: Final = "\n"
#: What looking at a partition counts for in a slice.
_PARTITION_BYTES: Final = 256


class Read(msgspec.Struct, kw_only=True):
    """The options of a read, as in the request: 0 means the default, and too large values are clamped."""

    topic: str
    consumer: str
    limit: int = 0
    max_batch_bytes: int = 0
    nodes: Iterable[str] = ()
    checkpoint: bool = True
    wait_ms: int = 0
    attempt_key: str | None = None
    skip_corrupt: bool = False


async def put(engine: Engine, topic: str, consumer: str, asked: ConsumerRequest) -> tuple[ConsumerState, bool]:
    """Create the consumer or replace its settings. True: it was created. Durable on return.

    Raises InvalidRequest, TopicNotFound, LimitReached, Unavailable.
    """
    check_consumer_name(consumer)
    config = ConsumerConfig(consistency=Consistency(asked.consistency), persist_every=asked.persist_every)
    return await engine.consumers.put(topic, consumer, config, asked.start)


async def change(engine: Engine, topic: str, consumer: str, asked: ConsumerChange) -> ConsumerState:
    """Change the given settings. Durable on return.

    Raises InvalidRequest, TopicNotFound, ConsumerNotFound, Unavailable.
    """
    check_consumer_name(consumer)
    named = asked.model_dump(include=asked.model_fields_set)
    return await engine.consumers.change(
        topic, consumer, lambda config: ConsumerConfig.from_map({**config.to_map(), **named})
    )


async def describe(engine: Engine, topic: str, consumer: str) -> ConsumerState:
    """The state of a consumer. Raises InvalidRequest, TopicNotFound, ConsumerNotFound."""
    check_consumer_name(consumer)
    await engine.let_expire((topic,))
    return engine.consumers.state(topic, consumer)


async def page(
    engine: Engine, topic: str, *, prefix: str, page_size: int | None, cursor: str | None
) -> tuple[list[ConsumerState], str | None]:
    """A page of a topic's consumers, ordered by name, and the cursor of the next page, if there is one."""
    size = min(page_size or DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE)
    after = decode_cursor(cursor) if cursor else ""
    await engine.let_expire((topic,))
    found = engine.consumers.list(topic, prefix, after, size + 1)
    if len(found) <= size:
        return found, None
    return found[:size], encode_cursor(found[size - 1].consumer)


async def page_of_all(
    engine: Engine, *, page_size: int | None, cursor: str | None, only: tuple[str, ...]
) -> tuple[list[ConsumerState], str | None]:
    """A page of the consumers of all topics whose names begin with one of `only` (() = any), by topic, partition and
    name, and the cursor of the next page, if there is one."""
    size = min(page_size or DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE)
    after = decode_cursor(cursor) if cursor else ""
    found: list[ConsumerState] = []
    work = Slices()
    for partition in _partitions(engine, after.partition(_AND)[0], only):
        await work.done(_PARTITION_BYTES)
        title = split(partition.name)[0]
        for consumer in partition.log.consumers.named():
            key = key_of(title, partition.partition, consumer.name)
            if key <= after:
                continue
            if len(found) == size:
                last = found[-1]
                return found, encode_cursor(key_of(*split(last.topic), last.consumer))
            found.append(engine.consumers.state(partition.name, consumer.name))
    return found, None


def key_of(topic: str, partition: int, consumer: str) -> str:
    """What the consumers of all topics are sorted by. No name contains a line feed, which comes before all of them."""
    return f"{topic}{_AND}{partition:04d}{_AND}{consumer}"


def _partitions(engine: Engine, first: str, only: tuple[str, ...]) -> Iterator[Topic]:
    """The partitions of this engine from those of the topic `first` on, in the order of `key_of`."""
    catalog = engine.logs.catalog
    begins = (*([catalog.topics[first]] if first in catalog.topics else []),)
    own = (
        partition
        for topic in chain((each for each in begins if not only or first.startswith(only)), _named(engine, first, only))
        for partition in (topic, *topic.others)
    )
    if catalog.cell is None:
        return own
    # Partitions of topics of other cells.
    foreign = [
        topic
        for topic in catalog.topics.values()
        if topic.partition and catalog.is_foreign(topic.root_id) and (not only or topic.name.startswith(only))
    ]
    return merge(own, sorted(foreign, key=_order), key=_order)


def _named(engine: Engine, after: str, only: tuple[str, ...]) -> Iterator[Topic]:
    return chain.from_iterable(engine.logs.catalog.named(prefix, after) for prefix in only or ("",))


def _order(topic: Topic) -> tuple[str, int]:
    return split(topic.name)[0], topic.partition


async def delete(engine: Engine, topic: str, consumer: str) -> bool:
    """Delete a consumer; False: it did not exist. Durable on return. Raises InvalidRequest, TopicNotFound."""
    check_consumer_name(consumer)
    return await engine.consumers.delete(topic, consumer)


async def read(engine: Engine, asked: Read) -> ConsumerRead:
    """Read without waiting. Raises InvalidRequest, TopicNotFound, ConsumerNotFound, RecordCorrupt, Unavailable."""
    check_consumer_name(asked.consumer)
    if asked.attempt_key is not None:
        check_text(asked.attempt_key, "attempt_key", MAX_ATTEMPT_KEY_BYTES)
    return await _read(engine, asked, 0)


async def read_on(
    engine: Engine,
    parking: Slots,
    asked: Read,
    empty: ConsumerRead,
    began: float,
    acquire: Callable[[], Awaitable[None]] | None = None,
) -> ConsumerRead:
    """Continue a read that found nothing, until there is a record or wait_ms since `began` have passed. `acquire` is
    awaited before each read, because many may wait for the same write.

    If it is cancelled while it waits, it has delivered nothing. At shutdown it returns `empty` at once. Raises
    LimitReached (too many wait) and the errors of `read`.
    """
    left_ms = min(asked.wait_ms, reads.MAX_WAIT_MS) - int((monotonic() - began) * 1000)
    if left_ms <= 0:
        return empty
    with parking.hold():
        try:
            return await _read(engine, asked, left_ms, acquire)
        except ShuttingDown:
            return empty


async def _read(
    engine: Engine, asked: Read, wait_ms: int, acquire: Callable[[], Awaitable[None]] | None = None
) -> ConsumerRead:
    query = ReadQuery(
        limit=reads.clamped(asked.limit, reads.DEFAULT_LIMIT, reads.MAX_LIMIT),
        max_bytes=reads.clamped(asked.max_batch_bytes, reads.DEFAULT_BATCH_BYTES, reads.MAX_BATCH_BYTES),
        exclude_nodes=reads.excluded_nodes(engine, asked.topic, asked.nodes),
        skip_corrupt=asked.skip_corrupt,
    )
    return await engine.consumers.read(
        asked.topic,
        asked.consumer,
        query,
        checkpoint=asked.checkpoint,
        wait_ms=wait_ms,
        acquire=acquire,
        attempt_key=asked.attempt_key,
    )


async def commit(engine: Engine, topic: str, consumer: str, seq: int, epoch: int | None = None) -> ConsumerState:
    """Set the cursor. Durable on return.

    Raises InvalidRequest, TopicNotFound, EpochConflict, ConsumerNotFound, Unavailable.
    """
    check_consumer_name(consumer)
    return await engine.consumers.commit(topic, consumer, seq, epoch)


async def seek(engine: Engine, topic: str, consumer: str, asked: SeekRequest) -> ConsumerState:
    """Move the cursor, forward or back. Durable on return. Raises the errors of `commit`."""
    check_consumer_name(consumer)
    given = [name for name in ("seq", "ts", "to") if getattr(asked, name) is not None]
    if len(given) != 1:
        field = given[-1] if given else "seq"
        raise InvalidRequest(f"{field}: give exactly one of seq, ts and to.", field=field)
    return await engine.consumers.seek(topic, consumer, seq=asked.seq, ts=asked.ts, to=asked.to)
