"""A cell that moved was the same Kafka node at another address. A client of librdkafka that had asked for its
coordinator before others knew the new owner got the old address, and stayed with it: the node was the same. Its group
stopped reading for good, while its producer went on."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
from confluent_kafka import Consumer, Producer

from tests.support.nodes_in_process import NodesInProcess, nodes

PATIENCE_S = 90
#: Between the end of the owner of a cell and the moment when others know the next one.
UNKNOWN_S = 3


def send(address: str, topic: str, values: list[bytes]) -> None:
    producer: Any = Producer({"bootstrap.servers": address, "log_level": 0})
    for each in values:
        producer.produce(topic, each)
    assert producer.flush(PATIENCE_S) == 0


async def read(consumer: Any, wanted: set[bytes]) -> None:
    """Return when the group has read these values."""
    async with asyncio.timeout(PATIENCE_S):
        while wanted:
            found = await asyncio.to_thread(consumer.poll, 0.2)
            if found is not None and found.error() is None:
                wanted.discard(found.value())


def at(made: NodesInProcess, cell: int) -> str:
    return str(made.running[cell].owner(1).kafka)


async def test_a_group_reads_on_when_its_coordinator_has_moved(tmp_path: Path) -> None:
    async with nodes(tmp_path, 2) as made, httpx.AsyncClient(base_url=made.nodes[0].url, timeout=60) as client:
        topic = made.topic(0)
        group = next(name for name in (f"group-{number}" for number in range(100)) if made.home(name) == 1)
        assert (await client.put(f"/v0/topics/{topic}", json={})).status_code == 201
        addresses = ",".join(at(made, cell) for cell in range(2))
        consumer: Any = Consumer(
            {
                "bootstrap.servers": addresses,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 500,
                "log_level": 0,
            }
        )
        consumer.subscribe([topic])
        try:
            await asyncio.to_thread(send, addresses, topic, [b"before"])
            await read(consumer, {b"before"})
            for number in range(2):
                await made.stop_cell(1)
                # The other nodes do not know yet, and answer with the old address.
                await asyncio.sleep(UNKNOWN_S)
                await made.start_cell(1, number % 2)
                values = [b"%d-%d" % (number, each) for each in range(10)]
                await asyncio.to_thread(send, at(made, 0), topic, values)
                await read(consumer, set(values))
        finally:
            await asyncio.to_thread(consumer.close)
