"""Idempotent producers of an engine: their ids, and what of each log's table a write has to go by.

Ids are handed out of blocks that are reserved in the log first, so that none is handed out twice; they grow with the
clock besides, so that not even a directory brought back from a backup gives one of those again that were handed out
since. All methods belong to the loop that started the engine.

Source: docs/guides/kafka.md#producing-and-consuming.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from storage.errors import InvalidRequest
from storage.records.values import ProducerBatch
from storage.state.log import Log
from storage.state.producer_table import MAX_EPOCH, MAX_PRODUCER_ID, MAX_SEQUENCE, ProducerTable, Sent

if TYPE_CHECKING:
    from storage.log.logs import Logs
    from storage.topics.states import States

KIND, NEXT = "producer_ids", "next"
BLOCK = 1000


class Producers:
    """See the module."""

    def __init__(self, logs: Logs, states: States) -> None:
        self._logs = logs
        self._states = states
        self._next = self._end = 0
        self._claiming = asyncio.Lock()
        #: Batches on their way, by topic_id and first seq.
        self.pending: dict[tuple[int, int], asyncio.Future[int | None]] = {}

    # -- ids -----------------------------------------------------------------------------------------------------------

    async def claim(self) -> tuple[int, int]:
        """(producer id, epoch 0), never handed out before, whatever crashed. Raises Unavailable."""
        self._logs.check_open()
        async with self._claiming:
            if self._next >= self._end:
                await self._reserve()
            self._next += 1
            return self._next - 1, 0

    async def bump(self, producer_id: int, epoch: int) -> tuple[int, int]:
        """(the same id, the next epoch), or where there is none a new id: the producer's sequences begin at 0 again."""
        if not (0 <= producer_id <= MAX_PRODUCER_ID and 0 <= epoch < MAX_EPOCH - 1):
            return await self.claim()
        self._logs.check_open()
        return producer_id, epoch + 1

    async def _reserve(self) -> None:
        logs = self._logs
        stored = self._states.get(KIND, NEXT)
        first = max(int(stored) if stored is not None else 0, logs.now_ms() * BLOCK)
        await self._states.put(KIND, NEXT, b"%d" % (first + BLOCK))
        self._next, self._end = first, first + BLOCK

    # -- batches -------------------------------------------------------------------------------------------------------

    def check(self, batch: ProducerBatch) -> None:
        """Raises InvalidRequest for numbers that no producer has."""
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
        """The same, once it is sure: of a batch that is on its way the outcome is waited for, which may be that it has
        failed."""
        while True:
            sent = self.known(log, batch, count)
            pending = None if sent is None else self.pending.get((log.topic_id, sent.first_seq))
            if pending is None:
                return sent
            await asyncio.wait([pending])

    def assign(self, log: Log, batch: ProducerBatch, count: int, first_seq: int, ts: int) -> None:
        """The batch goes on its way. There may be one producer more now, and then one may have to go."""
        if log.producers is None:
            log.producers = ProducerTable()
        usage = self._logs.catalog.usage
        if log.producers.entry(batch.producer_id) is None and usage.producers >= self._logs.options.max_producers:
            gone = log.producers.forget_one()
            usage.producers -= gone
            usage.producers_forgotten += gone
        log.producers.assign(batch, count, first_seq, ts)

    def expire(self, log: Log) -> None:
        """Forget those of a log that were idle for too long."""
        if log.producers is None:
            return
        gone = log.producers.expire(self._logs.now_ms(), self._logs.options.producer_id_expiration_ms)
        if gone:
            self._logs.catalog.usage.producers -= gone
            log.section = None
