"""Sends batches until each is acknowledged: one after another within a topic, several topics at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from demo.own_broker import OwnBroker
from topics_client import ConnectionFailed, NotReady


@dataclass(frozen=True, slots=True)
class Batch:
    """Records sent in one request. Every repeat has the same idempotency key."""

    topic: str
    key: str
    records: Sequence[bytes]


def batches(topic: str, records: Sequence[bytes], size: int) -> list[Batch]:
    """Split a topic's records into batches. The key of a batch is its topic and number."""
    cut = [records[begin : begin + size] for begin in range(0, len(records), size)]
    return [Batch(topic, f"{topic}/{number}", part) for number, part in enumerate(cut)]


class Sending:
    """Sends all batches, and sends those without an answer again, with the same keys, after the broker was killed.

    `in_flight`: batches sent and not yet answered. `acked`: records acknowledged. `repeated`: batches sent more than
    once; `already_stored` of them had been stored although their acknowledgement never came.
    """

    def __init__(self, broker: OwnBroker, at_once: int, on_ack: Callable[[int], None]) -> None:
        self._broker = broker
        self._slots = asyncio.Semaphore(at_once)
        self._on_ack = on_ack
        self._up = asyncio.Event()
        self._up.set()
        self._halt_at: int | None = None
        self._halted = asyncio.Event()
        self._quiet = asyncio.Event()
        self.in_flight = 0
        self.acked = 0
        self.repeated = 0
        self.already_stored = 0

    async def run(self, work: Mapping[str, Sequence[Batch]]) -> None:
        """Send all batches of all topics; returns when each is acknowledged."""
        async with asyncio.TaskGroup() as tasks:
            for todo in work.values():
                tasks.create_task(self._topic(todo))

    async def reaches(self, acked: int) -> None:
        """Wait until that many records are acknowledged and another batch is in flight."""
        self._halt_at = acked
        await self._halted.wait()

    def hold(self) -> None:
        """Send no more batches until `go_on`."""
        self._up.clear()

    async def quiet(self) -> None:
        """Wait until no batch is in flight: each is answered, or failed and waits to be sent again."""
        while self.in_flight:
            self._quiet.clear()
            await self._quiet.wait()

    def go_on(self) -> None:
        """Send batches again."""
        self._up.set()

    async def _topic(self, todo: Sequence[Batch]) -> None:
        for batch in todo:
            await self._until_acked(batch)

    async def _until_acked(self, batch: Batch) -> None:
        tries = 0
        while True:
            tries += 1
            try:
                deduped = await self._send(batch)
            except (ConnectionFailed, NotReady):
                if self._up.is_set():
                    self._broker.check()
                    raise
                continue
            self.repeated += tries > 1
            self.already_stored += deduped
            self.acked += len(batch.records)
            self._on_ack(len(batch.records))
            return

    async def _send(self, batch: Batch) -> bool:
        async with self._slots:
            await self._up.wait()
            self.in_flight += 1
            try:
                if self._halt_at is not None and self.acked >= self._halt_at:
                    self._halted.set()
                appended = await self._broker.client.append(batch.topic, batch.records, idempotency_key=batch.key)
            finally:
                self.in_flight -= 1
                self._quiet.set()
        return appended.deduped
