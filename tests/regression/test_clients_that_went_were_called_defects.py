"""A client that left while it was being answered caused an error with a traceback in the log, because the event loop
raises an exception for a write to a closed connection."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import uvloop
from structlog.testing import capture_logs

from broker.kafka.apis import ApiKey
from broker.kafka.call import Answer, Call, Later
from broker.kafka.table import HANDLERS
from tests.kafka.server import KafkaServer


class SlowMetadata:
    """Answers Metadata requests when the test says so: at once, or in a task."""

    def __init__(self, *, later: bool) -> None:
        self._later = later
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()
        self.ended = asyncio.Event()

    async def __call__(self, _: Call, __: memoryview) -> Answer:
        self.begun.set()
        return Later(self._body()) if self._later else await self._body()

    async def _body(self) -> bytes:
        await self.go_on.wait()
        self.ended.set()
        return b"answer"


async def gone(directory: Path, *, later: bool) -> list[str]:
    """What is logged, and what the event loop reports, when a client leaves while it is being answered."""
    complaints: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context["message"]))
    slow = SlowMetadata(later=later)
    with capture_logs() as logged:
        async with KafkaServer(directory, {**HANDLERS, ApiKey.METADATA: slow}) as server:
            wire = await server.connect()
            wire.send(ApiKey.METADATA, 9, b"")
            wire.send(ApiKey.METADATA, 9, b"")
            await slow.begun.wait()
            await wire.close()
            while server.broker.kafka_metrics.connections:
                await asyncio.sleep(0.005)
            slow.go_on.set()
            await slow.ended.wait()
            for _ in range(10):
                await asyncio.sleep(0)
    return complaints + [each["event"] for each in logged if each["log_level"] in ("error", "warning")]


@pytest.mark.parametrize("later", [False, True])
def test_a_client_that_disconnects_during_its_answer_logs_no_error(tmp_path: Path, later: bool) -> None:
    assert uvloop.run(gone(tmp_path, later=later)) == []
