"""Seq reservations: HeadWatermark frames ensure that no seq is assigned twice, whatever is lost.

A write of a class other than fsync may be acked before it is durable; after a power loss its seq would be free
again. So a ceiling is made durable before a seq above the last ceiling is acked, and it is raised in the background
once half of it is used.

Source: docs/reference/guarantees.md#crash-points-of-a-write.
"""

from __future__ import annotations

import asyncio

from storage.errors import StorageError
from storage.format import control
from storage.log.encode import encode_controls
from storage.log.logs import Logs
from storage.records import Durability
from storage.state import Log, Topic

MIN_STEP = 256


class Reservations:
    """By log: the size of its next reservation, which doubles while one lasts less than eight sync intervals, and the
    request in flight."""

    def __init__(self, logs: Logs) -> None:
        self._logs = logs
        self._pending: dict[int, asyncio.Future[int | None]] = {}
        self._steps: dict[int, tuple[int, int]] = {}  # topic_id -> (step, monotonic ms of the last extension)

    def first(self, topic: Topic, records: int) -> control.HeadWatermark | None:
        """The reservation in the batch that creates a topic."""
        if topic.config.durability is Durability.FSYNC:
            return None
        return control.HeadWatermark(reserved=max(MIN_STEP, 2 * records))

    async def extend(self, log: Log, records: int) -> None:
        """Reserve `records` more. Returns when the frame is durable; raises the error of the write."""
        pending = self._pending.get(log.topic_id)
        await asyncio.shield(pending if pending is not None else self._request(log, records))

    def look_ahead(self, topic: Topic) -> None:
        """Ask for more, in the background, when half of the reservation is used."""
        log = topic.log
        if topic.config.durability is Durability.FSYNC or log.topic_id in self._pending:
            return
        step, _ = self._steps.get(log.topic_id, (MIN_STEP, 0))
        if log.reserved - log.assigned_head < step // 2:
            self._request(log, 0).add_done_callback(_ignore)

    def forget(self, topic_id: int) -> None:
        """The log was deleted."""
        self._steps.pop(topic_id, None)

    def _request(self, log: Log, records: int) -> asyncio.Future[int | None]:
        now = self._logs.monotonic_ms()
        step, before = self._steps.get(log.topic_id, (MIN_STEP, 0))
        hurried = now - before < 8 * self._logs.options.disk_sync_ms
        step = max(MIN_STEP, step * 2 if hurried else step // 2, 2 * records)
        self._steps[log.topic_id] = (step, now)
        value = control.HeadWatermark(reserved=max(log.reserved, log.assigned_head) + step)
        done = self._logs.submit_controls(log, encode_controls([value], log.topic_id, self._logs.now_ms()), frees=True)
        self._pending[log.topic_id] = done
        done.add_done_callback(lambda _: self._pending.pop(log.topic_id, None))
        return done


def _ignore(done: asyncio.Future[int | None]) -> None:
    # A write that needs the reservation asks again, and gets the error.
    if not done.cancelled() and not isinstance(done.exception(), StorageError | None):
        raise RuntimeError("a reservation failed unexpectedly") from done.exception()
