"""REST Proxy: an instance that was deleted before its group had answered the proxy's join left a member there, which
held partitions until its session ended."""

from __future__ import annotations

import asyncio
from pathlib import Path

from broker.settings import Settings
from broker.wiring import Broker
from storage import Engine
from tests.http.conftest import SMALL, client_of
from tests.http.proxy.calls import produce, subscribed

PATIENCE_S = 20


async def test_the_proxy_leaves_a_group_that_it_has_not_joined_yet(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path / "data", kafka_port=0, kafka_rebalance_delay_ms=60_000)
    async with Engine.open(tmp_path / "data", SMALL) as engine:
        broker = Broker(engine, settings)
        async with client_of(broker) as client, asyncio.timeout(PATIENCE_S):
            await produce(client, "t", 1)
            path = await subscribed(client, "t")
            while not broker.kafka_groups.describe("g").members:
                await asyncio.sleep(0.01)
            await client.delete(path)
            while broker.kafka_groups.describe("g").members:
                await asyncio.sleep(0.01)
        await broker.proxy.stop()
        await broker.kafka_groups.close()
