"""Writes a router's copies and losses to the destination, each in one atomic batch with the router's cursor.

After any crash the destination has both or neither.

Source: docs/reference/api.md#routers, docs/reference/format.md#frames, docs/reference/format.md#evictwatermark.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from kernel import Header, total
from storage.errors import RouterNotFound, ShuttingDown
from storage.format import FrameType, control
from storage.log import Appender, Blocker, Logs, Reservations, Surroundings, Write, encode_controls
from storage.records import AppendedRecords, Discard, Durability, LossCause, TopicConfig
from storage.routers.copies import Copies
from storage.state import Log, Topic
from storage.state.routers import Router, Routes


class CopyWrite(Write):
    """The write of a range of copies to the destination. Limits on single records do not apply: the originals have
    passed them."""

    __slots__ = ("_copies", "_router", "_routes")

    def __init__(self, appender: Appender, dest: Topic, router: Router, copies: Copies, source_seq: int) -> None:
        super().__init__(
            appender,
            dest.name,
            cast("Any", copies),
            node=None,
            key=None,
            strict=False,
            create=False,
            config=None,
            expected_seq=None,
        )
        self._routes = appender.logs.catalog.routes
        self._router = router
        self._copies = copies
        self.trailing = [control.RouterCursor(router_id=router.router_id, source_seq=source_seq)]

    def _wait_for(self, router: Router, head: int) -> Blocker | None:
        # Each cycle has a router with `allow_cycle`: without this, its routers could all wait for the next one.
        return None if self._router.definition.allow_cycle else super()._wait_for(router, head)

    def _check(self) -> None:
        self.payloads = self._copies.sizes
        self.total = total(self.payloads)

    def _blocker(self, topic: Topic | None) -> Blocker | None:
        check_alive(self._routes, self._router, topic)
        return super()._blocker(topic)

    def _encode(self, head: Header, *, more: bool, around: Surroundings | None) -> tuple[bytes, AppendedRecords]:
        appends, appended = self._copies.encode(head)
        if around is None:
            return appends, appended
        front, behind = around(len(appends))
        return b"".join((front, appends, behind)), appended


def check_alive(routes: Routes, router: Router, dest: Topic | None) -> None:
    """Raises RouterNotFound if the router is deleted or being deleted."""
    known = routes.by_id.get(router.router_id) is router
    if not known or router.leaving or dest is None or dest.topic_id != router.dest_id:
        raise RouterNotFound(router.name)


def fitting(config: TopicConfig, log: Log, copies: Copies) -> int:
    """How many of the first copies the destination can take in one batch. 0: the first one can never fit there.

    Otherwise at least 1: the write itself finds out whether there is room for that.
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


async def write_loss(logs: Logs, reservations: Reservations, dest: Topic, router: Router, source_seq: int) -> None:
    """Write to the destination that records of the source up to `source_seq` cannot be copied: a loss range of one
    seq."""
    log = dest.log
    shard = logs.shards[log.shard]
    while True:
        check_alive(logs.catalog.routes, router, logs.catalog.by_id.get(router.dest_id))
        if logs.closing:
            raise ShuttingDown()
        shard.refuse_when_full()
        if (changing := logs.changing.get(dest.topic_id)) is not None:
            await asyncio.wait([changing])
        elif log.topic_id in logs.unannounced_losses:
            await logs.announce_losses(log)
        elif not shard.has_room(3, 0):
            await shard.wait_room(3, 0)
        elif dest.config.durability is not Durability.FSYNC and log.assigned_head + 1 > log.reserved:
            await reservations.extend(log, 1)
        else:
            break
    lost = log.assigned_head + 1
    values: list[control.Control] = [
        control.EvictWatermark(loss=[(lost, lost, LossCause.SOURCE_TRIM)]),
        control.RouterCursor(router_id=router.router_id, source_seq=source_seq),
    ]
    if log.ephemeral:
        now = logs.now_ms()
        logs.catalog.apply(FrameType.EVICT_WATERMARK, log.topic_id, now, values[0])
        set_cursor(logs, router, source_seq)
        logs.publisher.wake(log.topic_id)
    else:
        durable = dest.config.durability is Durability.FSYNC
        encoded = encode_controls(values, log.topic_id, logs.now_ms(), durable=durable)
        log.assigned_head = lost  # the next write gets the seq after it
        done = logs.submit_controls(log, encoded, generation=shard.generation, needs_sync=durable)
        await asyncio.shield(done)
    router.lost += 1


def set_cursor(logs: Logs, router: Router, source_seq: int) -> None:
    """Move the cursor of a router whose destination is in memory only and has no frames."""
    value = control.RouterCursor(router_id=router.router_id, source_seq=source_seq)
    logs.catalog.move_router(router.dest_id, value, 0)


async def persist(logs: Logs, dest: Topic, router: Router) -> None:
    """Write the router's cursor when there was nothing to copy. None of its copies may be in flight.

    Raises Unavailable. Then a restart examines the same records again, with the same result.
    """
    await _write_cursor(logs, dest, control.RouterCursor(router_id=router.router_id, source_seq=router.position))


async def rejoin(logs: Logs, dest: Topic, router: Router, cursor: int, epoch: int) -> None:
    """Write that the router continues at `cursor` of this epoch of its source. None of its copies may be on their way.

    Raises Unavailable. Copies after that are behind it in the log.
    """
    value = control.RouterCursor(router_id=router.router_id, source_seq=cursor, source_epoch=epoch)
    await _write_cursor(logs, dest, value)
    router.position = router.cursor


async def _write_cursor(logs: Logs, dest: Topic, value: control.RouterCursor) -> None:
    log = dest.log
    if log.ephemeral:
        logs.catalog.move_router(log.topic_id, value, 0)
        return
    encoded = encode_controls([value], log.topic_id, logs.now_ms(), durable=False)
    await asyncio.shield(logs.submit_controls(log, encoded, needs_sync=False))
