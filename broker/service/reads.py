"""Reading records, and waiting for them (source: api.md §3)."""

from __future__ import annotations

from collections.abc import Iterable
from time import monotonic
from typing import TYPE_CHECKING, Final

import msgspec

from broker.service.limits import Places
from storage.errors import ShuttingDown
from storage.records import ReadQuery, ReadResult, StoredRecord, TagMatch

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
    """What there is now. Raises InvalidRequest, TopicNotFound, RecordCorrupt."""
    query = ReadQuery(
        from_seq=asked.from_seq,
        limit=clamped(asked.limit, DEFAULT_LIMIT, MAX_LIMIT),
        max_bytes=clamped(asked.max_batch_bytes, DEFAULT_BATCH_BYTES, MAX_BATCH_BYTES),
        exclude_nodes=left_out(engine, asked.topic, asked.nodes),
        tag=asked.tag,
        from_ts=asked.from_ts,
        epoch=asked.epoch,
        skip_corrupt=asked.skip_corrupt,
    )
    return Reading(topic=asked.topic, query=query, result=await engine.read(asked.topic, query))


def clamped(asked: int, default: int, most: int) -> int:
    """What is read at most: 0 means the default."""
    return min(asked or default, most)


def several(nodes: str | list[str] | None) -> Iterable[str]:
    """Of what a request says: one, many or none. An empty one is none."""
    if not nodes:
        return ()
    return (nodes,) if isinstance(nodes, str) else [node for node in nodes if node]


def left_out(engine: Engine, topic: str, nodes: Iterable[str]) -> frozenset[bytes]:
    """Whose records a reader is not given; nobody's where the topic says that nodes do not count."""
    exclude = frozenset(node.encode() for node in nodes)
    if exclude and not engine.state(topic).config.dedupe_node:
        return frozenset()
    return exclude


async def read_on(engine: Engine, parking: Places, reading: Reading, wait_ms: int) -> Reading:
    """Go on with a read that was empty until there is something or `wait_ms` have passed.

    A write between two reads is not missed: the wait is for a head beyond what the last read examined, whenever it
    came. At shutdown what there is is returned at once. Raises LimitReached (too many waiting), TopicNotFound
    (deleted meanwhile).
    """
    deadline = monotonic() + min(wait_ms, MAX_WAIT_MS) / 1000
    topic = reading.topic
    with parking.place():
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
            query = msgspec.structs.replace(reading.query, from_seq=position)
            reading = Reading(topic=topic, query=query, result=await engine.read(topic, query))
    return reading


async def read_one(engine: Engine, topic: str, seq: int) -> StoredRecord:
    """Raises RecordNotFound whose detail says why."""
    return await engine.read_one(topic, seq)
