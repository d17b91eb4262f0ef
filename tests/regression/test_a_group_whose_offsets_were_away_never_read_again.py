"""A member joined a group while another cell, which has some of its committed offsets, was away. The coordinator
answered COORDINATOR_NOT_AVAILABLE for the offsets. librdkafka then looked for the coordinator, found the same one, and
never asked for the offsets again: the member stayed in the group and read nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from broker.kafka.groups import Committed
from storage import Unavailable
from tests.kafka.asking import a_batch, produce
from tests.kafka.cells.several import CELLS, name_of, several
from tests.kafka.cells.topics import create

PATIENCE_S = 60
HOME, AWAY = 1, 2


async def test_a_member_reads_when_the_cell_with_the_offsets_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with several(tmp_path) as cells:
        topic, group = name_of(0), name_of(HOME, "group")
        assert await create(cells, [topic], partitions=CELLS) == [0]
        offsets = cells.servers[HOME].broker.kafka_offsets
        refused, find = asyncio.Event(), offsets.find

        async def noted(group_id: str, topic: str, partitions: Sequence[int]) -> list[Committed | None]:
            try:
                return await find(group_id, topic, partitions)
            except Unavailable:
                refused.set()
                raise

        monkeypatch.setattr(offsets, "find", noted)
        await cells.stop(AWAY)
        consumer: Any = Consumer(
            {
                "bootstrap.servers": f"127.0.0.1:{cells.ports[HOME]}",
                "group.id": group,
                "auto.offset.reset": "earliest",
                "log_level": 0,
            }
        )
        consumer.subscribe([topic])

        async def polled() -> bytes | None:
            found = await asyncio.to_thread(consumer.poll, 0.2)
            return None if found is None or found.error() is not None else found.value()

        try:
            async with asyncio.timeout(PATIENCE_S):
                while not refused.is_set():
                    assert await polled() is None
            await cells.start(AWAY)
            await produce(await cells.wire(0), (topic, 0, a_batch(b"a record")))
            async with asyncio.timeout(PATIENCE_S):
                while await polled() != b"a record":
                    pass
        finally:
            await asyncio.to_thread(consumer.close)
