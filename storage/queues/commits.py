"""Writes decisions about jobs to the log, and waits for them.

Source: docs/reference/guarantees.md#durability-classes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from storage.config import Durability
from storage.errors import TopicNotFound
from storage.format.control import Control, Lease
from storage.format.wal_frame import FrameType
from storage.log.encode import EncodedUnit, encode_controls, internal
from storage.queues.callback_outcome import CallbackOutcome
from storage.state.catalog import Topic
from storage.state.log import Log

if TYPE_CHECKING:
    from storage.engine import Engine


async def commit(engine: Engine, topic: Topic, values: Sequence[Control], nodes: Sequence[str], *, sync: bool) -> None:
    """See `Queues.commit`."""
    log = topic.log
    if engine.catalog.by_id.get(topic.topic_id) is not topic:
        raise TopicNotFound(topic.name)
    if log.in_memory_only:
        for value, node in zip(values, nodes or [""] * len(values), strict=True):
            type_ = FrameType.LEASE if isinstance(value, Lease) else FrameType.DELETE
            engine.catalog.apply(type_, log.topic_id, engine.now_ms(), value, 0, node)
        engine.publisher.wake(log.topic_id)
        return
    needs_sync = sync or topic.config.durability is Durability.FSYNC
    encoded = encode_controls(values, log.topic_id, engine.now_ms(), durable=needs_sync, nodes=nodes)
    shard = engine.shards[log.shard]
    while not shard.has_room(encoded.frames, len(encoded.payload), internal=True):
        await shard.wait_room(encoded.frames, len(encoded.payload))
    if engine.catalog.by_id.get(topic.topic_id) is not topic:
        raise TopicNotFound(topic.name)
    await asyncio.shield(engine.submit_controls(log, encoded, frees=True, needs_sync=needs_sync))


def try_commit(
    engine: Engine,
    log: Log,
    encoded: EncodedUnit,
    now_ms: int,
    pending: set[asyncio.Future[Any]],
    on_result: Callable[[Exception | None], None],
    *,
    needs_sync: bool,
) -> bool:
    """Submit a unit to the log without a task. False, and nothing was done, when there is no room at once.

    `on_result` is called with the error, or None. `pending` holds a future until then.
    """
    shard = engine.shards[log.shard]
    if not shard.has_room(encoded.frames, len(encoded.payload), internal=True):
        return False
    ended: asyncio.Future[None] = engine.loop.create_future()
    pending.add(ended)

    def end(outcome: object) -> None:
        try:
            on_result(outcome if isinstance(outcome, Exception) else None)
        finally:  # waiters for the end come after the callback
            pending.discard(ended)
            ended.set_result(None)

    submission = internal(encoded, log.topic_id, now_ms, frees=True, needs_sync=needs_sync)
    shard.enqueue(submission, CallbackOutcome(engine.loop, end))
    return True
