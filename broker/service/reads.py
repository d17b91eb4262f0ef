"""Reading records, and waiting for them.

Source: docs/reference/api.md#records.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from time import monotonic
from typing import TYPE_CHECKING, Final

import msgspec

from broker.memory.memory import SMALL
from broker.service.limits import Slots
from storage.errors import ShuttingDown
from storage.records.values import ReadQuery, ReadResult, StoredRecord, TagMatch

if TYPE_CHECKING:
    from storage.engine import Engine

DEFAULT_LIMIT, MAX_LIMIT = 256, 1000
DEFAULT_BATCH_BYTES, MAX_BATCH_BYTES = 1 << 20, 8 << 20
MAX_WAIT_MS: Final = 30_000


class Read(msgspec.Struct, kw_only=True):
    """What a reader asks for, as it asks: 0 means the default, and what is too much is clamped."""

    #: Its address.
    topic: str
    from_seq: int = 0
    limit: int = 0
    max_batch_bytes: int = 0
    nodes: Iterable[str] = ()
    tag: TagMatch | None = None
    wait_ms: int = 0
    from_ts: int | None = None
    epoch: int | None = None
    skip_corrupt: bool = False


class Reading(msgspec.Struct, kw_only=True):
    """A read as far as it has come."""

    topic: str
    query: ReadQuery
    result: ReadResult

    @property
    def empty(self) -> bool:
        """Whether waiting makes sense: everything there is was examined, and none of it is for this reader."""
        return has_nothing(self.result)


def has_nothing(result: ReadResult) -> bool:
    """Whether a read that may wait should: it has examined everything there is, and has nothing to tell."""
    return (
        not result.records
        and result.tombstone is None
        and not result.corrupt_seqs
        and result.next_from_seq >= result.head_seq
    )


async def read(engine: Engine, asked: Read) -> Reading:
    """What there is now, up to SMALL bytes of it: `read_whole` gives the rest. Raises InvalidRequest, TopicNotFound,
    RecordCorrupt.
    """
    query = ReadQuery(
        from_seq=asked.from_seq,
        limit=clamped(asked.limit, DEFAULT_LIMIT, MAX_LIMIT),
        max_bytes=min(bytes_asked(asked), SMALL),
        exclude_nodes=excluded_nodes(engine, asked.topic, asked.nodes),
        tag=asked.tag,
        from_ts=asked.from_ts,
        epoch=asked.epoch,
        skip_corrupt=asked.skip_corrupt,
    )
    return Reading(topic=asked.topic, query=query, result=await engine.read(asked.topic, query))


def bytes_asked(asked: Read) -> int:
    """How much a read may give."""
    return clamped(asked.max_batch_bytes, DEFAULT_BATCH_BYTES, MAX_BATCH_BYTES)


def is_partial(asked: Read, reading: Reading) -> bool:
    """Whether more is to be had than a look that is held small gives, or one record is more already."""
    result, query = reading.result, reading.query
    if result.bytes > SMALL:
        return True
    return (
        bytes_asked(asked) > query.max_bytes
        and len(result.records) > 0
        and len(result.records) < query.limit
        and result.next_from_seq < result.head_seq
    )


def dropped(engine: Engine, reading: Reading) -> None:
    """It is read anew: what it gave does not count as read."""
    engine.catalog.usage.traffic.unanswered(reading.result)


async def read_whole(engine: Engine, topic: str, query: ReadQuery, max_bytes: int) -> Reading:
    """The same read once more, of up to so many bytes. Raises as `read`."""
    query = msgspec.structs.replace(query, max_bytes=max_bytes)
    return Reading(topic=topic, query=query, result=await engine.read(topic, query))


def clamped(asked: int, default: int, most: int) -> int:
    """What is read at most: 0 means the default."""
    return min(asked or default, most)


def several(nodes: str | list[str] | None) -> Iterable[str]:
    """Of what a request says: one, many or none. An empty one is none."""
    if not nodes:
        return ()
    return (nodes,) if isinstance(nodes, str) else [node for node in nodes if node]


def excluded_nodes(engine: Engine, topic: str, nodes: Iterable[str]) -> frozenset[bytes]:
    """Whose records a reader is not given; nobody's where the topic says that nodes do not count."""
    exclude = frozenset(node.encode() for node in nodes)
    if exclude and not engine.state(topic).config.dedupe_node:
        return frozenset()
    return exclude


async def read_on(
    engine: Engine,
    parking: Slots,
    reading: Reading,
    wait_ms: int,
    acquire: Callable[[], Awaitable[None]] | None = None,
) -> Reading:
    """Go on with a read that was empty until there is something or `wait_ms` have passed.

    A write between two reads is not missed: the wait is for a head beyond what the last read examined, whenever it
    came. At shutdown what there is is returned at once. `acquire` is waited for before each read: many wait for the
    same write. Raises LimitReached (too many waiting), TopicNotFound (deleted meanwhile).
    """
    deadline = monotonic() + min(wait_ms, MAX_WAIT_MS) / 1000
    topic = reading.topic
    with parking.hold():
        while reading.empty:
            left_ms = int((deadline - monotonic()) * 1000)
            if left_ms <= 0:
                break
            position = reading.result.next_from_seq
            try:
                moved = await engine.wait_beyond(topic, position, left_ms)
            except ShuttingDown:
                break
            if not moved:
                break
            if acquire is not None:
                await acquire()
            query = msgspec.structs.replace(reading.query, from_seq=position)
            reading = Reading(topic=topic, query=query, result=await engine.read(topic, query))
    return reading


async def read_one(engine: Engine, topic: str, seq: int) -> StoredRecord:
    """Raises RecordNotFound whose detail says why."""
    return await engine.read_one(topic, seq)
