"""Jobs on their way to a client that reads slowly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from broker.api import events
from broker.api.routes import work
from broker.api.routes.work import Outbox
from broker.memory.memory import Memory
from broker.settings import Settings
from storage.errors import ShuttingDown
from storage.queues.lease_queue import ClaimedJob
from storage.records.values import StoredRecord
from tests.http.test_long_poll import until


class Queues:
    """Queues without ready jobs."""

    def claimable_bytes(self, name: str, max: int) -> tuple[int, int]:
        return 0, 0


def outbox_of_q() -> Outbox:
    broker: Any = SimpleNamespace(engine=SimpleNamespace(queues=Queues()), memory=Memory(Settings()))
    request: Any = SimpleNamespace(broker=broker, connection=object())
    return Outbox(request, "q")


BODY = b'{"data":"%b"}' % (b"x" * 1000)


class Jobs:
    """`count` jobs, then the end. Counts how many were taken."""

    def __init__(self, count: int) -> None:
        self.taken = 0
        self._count = count

    async def __aiter__(self) -> AsyncIterator[ClaimedJob]:
        while self.taken < self._count:
            self.taken += 1
            yield ClaimedJob(StoredRecord(self.taken, 1, b"", b"", BODY), 1, 2, 1)
            await asyncio.sleep(0)
        raise ShuttingDown


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "MAX_BUFFERED_BYTES", 5000)


async def test_only_as_many_jobs_are_taken_as_fit() -> None:
    jobs, outbox = Jobs(100), outbox_of_q()
    filling = asyncio.create_task(outbox.fill(aiter(jobs)))
    for expected in (5, 10):
        await until(lambda expected=expected: jobs.taken >= expected)
        for _ in range(50):
            await asyncio.sleep(0)
        assert jobs.taken == expected
        assert (await outbox.take()).count(b"event: job\n") == 5
    filling.cancel()


async def test_jobs_before_the_end_of_the_stream_are_returned() -> None:
    jobs, outbox = Jobs(3), outbox_of_q()
    filling = asyncio.create_task(outbox.fill(aiter(jobs)))
    given = b""
    while not outbox.ended:
        given += await outbox.take()
    assert given.count(b"event: job\n") == 3
    assert isinstance(filling.exception(), ShuttingDown)


async def test_an_idle_outbox_returns_no_bytes_after_the_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "HEARTBEAT_S", 0.01)
    outbox = outbox_of_q()
    assert await outbox.take() == b""
    assert not outbox.ended
