"""What a router writes to dest: copies, or that something is lost; each in one atomic batch with its cursor.

So after any crash dest holds both or neither.

Source: docs/reference/api.md#routers, docs/reference/format.md#frames, docs/reference/format.md#evictwatermark.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from storage.config import Discard, Durability, TopicConfig
from storage.errors import RouterNotFound, ShuttingDown
from storage.format import control
from storage.format.blocks import total
from storage.format.wal_frame import FrameType
from storage.log.append import Write
from storage.log.blockers import Blocker
from storage.log.encode import WriteHeader, encode_controls
from storage.log.pending_losses import announce_losses
from storage.records.batches import AppendedRecords
from storage.records.values import LossCause
from storage.routers.copies import Copies
from storage.state.catalog import Topic
from storage.state.log import Log
from storage.state.routers.router import Router

if TYPE_CHECKING:
    from storage.engine import Engine


class CopyWrite(Write):
    """A range of copies on its way to dest. Exempt from the limits on single records that their originals kept."""

    __slots__ = ("_copies", "_router")

    def __init__(self, engine: Engine, dest: Topic, router: Router, copies: Copies, source_seq: int) -> None:
        super().__init__(
            engine,
            dest.name,
            cast("Any", copies),
            node=None,
            key=None,
            strict=False,
            create=False,
            config=None,
            expected_seq=None,
        )
        self._router = router
        self._copies = copies
        self.trailing = [control.RouterCursor(router_id=router.router_id, source_seq=source_seq)]

    def _check(self) -> None:
        self.payloads = self._copies.sizes
        self.total = total(self.payloads)

    def _blocker(self, topic: Topic | None) -> Blocker | None:
        check_alive(self.engine, self._router, topic)
        return super()._blocker(topic)

    def _encode(self, head: WriteHeader, *, more: bool) -> tuple[bytes, AppendedRecords]:
        return self._copies.encode(head)


def check_alive(engine: Engine, router: Router, dest: Topic | None) -> None:
    """Raises RouterNotFound when the router is no more, or is about to be no more."""
    known = engine.catalog.routes.by_id.get(router.router_id) is router
    if not known or router.leaving or dest is None or dest.topic_id != router.dest_id:
        raise RouterNotFound(router.name)


def fitting(config: TopicConfig, log: Log, copies: Copies) -> int:
    """How many of the first copies dest takes in one batch; 0: the first one can never be held there.

    At least 1 otherwise: whether there is room for that is the write's to say.
    """
    cap_bytes, most_bytes, reject = config.cap_bytes, config.most_bytes, config.discard is Discard.REJECT
    if not most_bytes and not (reject and config.cap_records):
        return len(copies)
    room_records = config.cap_records - log.assigned_count if reject and config.cap_records else len(copies)
    room_bytes = cap_bytes - log.assigned_bytes if reject and cap_bytes else 0
    count = size = 0
    for of_copy in copies.sizes[: max(1, room_records)]:
        if most_bytes and of_copy > most_bytes:
            break
        size += of_copy
        if count and reject and cap_bytes and size > room_bytes:
            break
        count += 1
    return count


async def lose(engine: Engine, dest: Topic, router: Router, source_seq: int) -> None:
    """Write that what the source had up to `source_seq` cannot be copied: a loss range of one seq."""
    log = dest.log
    shard = engine.shards[log.shard]
    while True:
        check_alive(engine, router, engine.catalog.by_id.get(router.dest_id))
        if engine.closing:
            raise ShuttingDown()
        shard.refuse_when_full()
        if (changing := engine.changing.get(dest.topic_id)) is not None:
            await asyncio.wait([changing])
        elif log.topic_id in engine.pending_losses:
            await announce_losses(engine, log)
        elif not shard.has_room(3, 0):
            await shard.wait_room(3, 0)
        elif dest.config.durability is not Durability.FSYNC and log.assigned_head + 1 > log.reserved:
            await engine.reservations.extend(log, 1)
        else:
            break
    lost = log.assigned_head + 1
    values: list[control.Control] = [
        control.EvictWatermark(loss=[(lost, lost, LossCause.SOURCE_TRIM)]),
        control.RouterCursor(router_id=router.router_id, source_seq=source_seq),
    ]
    if log.ephemeral:
        now = engine.now_ms()
        engine.catalog.apply(FrameType.EVICT_WATERMARK, log.topic_id, now, values[0])
        set_cursor(engine, router, source_seq)
        engine.publisher.wake(log.topic_id)
    else:
        durable = dest.config.durability is Durability.FSYNC
        encoded = encode_controls(values, log.topic_id, engine.now_ms(), durable=durable)
        log.assigned_head = lost  # no write that comes next gets it
        done = engine.submit_controls(log, encoded, generation=shard.generation, needs_sync=durable)
        await asyncio.shield(done)
    router.lost += 1


def set_cursor(engine: Engine, router: Router, source_seq: int) -> None:
    """The cursor of a router whose dest is in memory only: no frame says it."""
    value = control.RouterCursor(router_id=router.router_id, source_seq=source_seq)
    engine.catalog.move_router(router.dest_id, value, 0)


async def persist(engine: Engine, dest: Topic, router: Router) -> None:
    """Write how far the router has come where there was nothing to copy. Nobody may be writing copies of it just now.

    Raises Unavailable; then a restart has the same records examined again, and finds nothing to copy again.
    """
    log = dest.log
    if log.ephemeral:
        set_cursor(engine, router, router.position)
        return
    value = control.RouterCursor(router_id=router.router_id, source_seq=router.position)
    encoded = encode_controls([value], log.topic_id, engine.now_ms(), durable=False)
    await asyncio.shield(engine.submit_controls(log, encoded, needs_sync=False))
