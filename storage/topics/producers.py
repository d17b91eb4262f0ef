"""Idempotent producers of an engine: their ids, and the checks of a write against each log's table of producers.

Ids come from blocks that are reserved in the log first, so no id is assigned twice. They also grow with the clock, so
that a directory restored from a backup does not repeat ids that were assigned after the backup. In a set, cell i takes
the blocks whose number is i modulo the number of cells. All methods belong to the loop that started the engine.

Source: docs/guides/kafka.md#producing-and-consuming.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from storage.errors import InvalidRequest
from storage.records import ProducerBatch
from storage.state import MAX_EPOCH, MAX_PRODUCER_ID, MAX_SEQUENCE, Log, ProducerTable, Sent

if TYPE_CHECKING:
    from storage.log import Logs
    from storage.topics.states import States

KIND, NEXT = "producer_ids", "next"
BLOCK = 1000


class Producers:
    """Assigns ids to producers, and recognises repeated batches."""

    def __init__(self, logs: Logs, states: States) -> None:
        self._logs = logs
        self._states = states
        self._next = self._end = 0
        self._claiming = asyncio.Lock()
        #: Batches in flight, by topic_id and first seq.
        self.pending: dict[tuple[int, int], asyncio.Future[int | None]] = {}

    # -- ids -----------------------------------------------------------------------------------------------------------

    async def claim(self) -> tuple[int, int]:
        """(producer id, epoch 0), never assigned before, not even before a crash. Raises Unavailable."""
        self._logs.check_open()
        async with self._claiming:
            if self._next >= self._end:
                await self._reserve()
            self._next += 1
            return self._next - 1, 0

    async def bump(self, producer_id: int, epoch: int) -> tuple[int, int]:
        """(the same id, the next epoch), or a new id if there is no next epoch: sequences begin at 0 again."""
        if not (0 <= producer_id <= MAX_PRODUCER_ID and 0 <= epoch < MAX_EPOCH - 1):
            return await self.claim()
        self._logs.check_open()
        return producer_id, epoch + 1

    async def _reserve(self) -> None:
        logs = self._logs
        stored = self._states.get(KIND, NEXT)
        number = max(int(stored) // BLOCK if stored is not None else 0, logs.now_ms())
        cell, cells = logs.options.cell or 0, logs.options.cells
        first = (number + (cell - number) % cells) * BLOCK
        await self._states.put(KIND, NEXT, b"%d" % (first + BLOCK))
        self._next, self._end = first, first + BLOCK

    # -- batches -------------------------------------------------------------------------------------------------------

    def check(self, batch: ProducerBatch) -> None:
        """Raises InvalidRequest for numbers out of range."""
        fits = 0 <= batch.producer_id <= MAX_PRODUCER_ID and 0 <= batch.epoch <= MAX_EPOCH
        if not fits or not 0 <= batch.base_sequence <= MAX_SEQUENCE:
            raise InvalidRequest(
                "A producer has an id of 63 bits, an epoch of 15 and sequences of 31.", field="producer"
            )

    def known(self, log: Log, batch: ProducerBatch, count: int) -> Sent | None:
        """See `ProducerTable.known`."""
        if log.producers is None:
            return None
        return log.producers.known(batch, count, self._logs.now_ms(), self._logs.options.producer_id_expiration_ms)

    async def answer(self, log: Log, batch: ProducerBatch, count: int) -> Sent | None:
        """`known`, after the outcome of a batch in flight, which may fail."""
        while True:
            sent = self.known(log, batch, count)
            pending = None if sent is None else self.pending.get((log.topic_id, sent.first_seq))
            if pending is None:
                return sent
            await asyncio.wait([pending])

    def assign(self, log: Log, batch: ProducerBatch, count: int, first_seq: int, ts: int) -> None:
        """The batch is in flight. If its producer is new and there are too many, the log forgets one."""
        if log.producers is None:
            log.producers = ProducerTable()
        usage = self._logs.catalog.usage
        if log.producers.entry(batch.producer_id) is None and usage.producers >= self._logs.options.max_producers:
            gone = log.producers.forget_one()
            usage.producers -= gone
            usage.producers_forgotten += gone
        log.producers.assign(batch, count, first_seq, ts)

    def expire(self, log: Log) -> None:
        """Forget producers of a log that were idle for too long."""
        if log.producers is None:
            return
        gone = log.producers.expire(self._logs.now_ms(), self._logs.options.producer_id_expiration_ms)
        if gone:
            self._logs.catalog.usage.producers -= gone
            log.section = None
