"""Batches on their way: one after another within a topic, several topics at once, each until it is acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from demo.own_broker import OwnBroker
from topics_client import ConnectionFailed, NotReady


@dataclass(frozen=True, slots=True)
class Batch:
    """Records that go out together, under a key that stays theirs however often they are sent."""

    topic: str
    key: str
    records: Sequence[bytes]


def batches(topic: str, records: Sequence[bytes], size: int) -> list[Batch]:
    """A topic's records cut up; the key of a batch is its topic and number."""
    cut = [records[begin : begin + size] for begin in range(0, len(records), size)]
    return [Batch(topic, f"{topic}/{number}", part) for number, part in enumerate(cut)]


class Sending:
    """Sends everything, and goes on by the same keys after the broker went away.

    `in_flight` is how many batches are under way, `acked` how many records are acknowledged; of the batches sent more
    than once (`repeated`), `already_stored` had been stored although their acknowledgement never came.
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
        """Sends all batches of all topics; returns when every one is acknowledged."""
        async with asyncio.TaskGroup() as tasks:
            for todo in work.values():
                tasks.create_task(self._topic(todo))

    async def reaches(self, acked: int) -> None:
        """Returns when that many records are acknowledged and others are under way."""
        self._halt_at = acked
        await self._halted.wait()

    def hold(self) -> None:
        """From now on nothing new is sent."""
        self._up.clear()

    async def quiet(self) -> None:
        """Returns when nothing is under way any more: answered, or failed and waiting to be sent again."""
        while self.in_flight:
            self._quiet.clear()
            await self._quiet.wait()

    def go_on(self) -> None:
        """What waited goes out again."""
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
