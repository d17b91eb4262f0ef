"""While a cell had no owner, Metadata named its node as the leader of partitions, and did not list that node among the
brokers. The producer of kafka-python then spun forever, and sent nothing to any partition."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient

from tests.support.nodes_in_process import nodes

PATIENCE_S = 60


async def test_no_leader_is_named_that_is_not_among_the_brokers(tmp_path: Path) -> None:
    async with nodes(tmp_path, 2) as made, httpx.AsyncClient(base_url=made.nodes[0].url, timeout=PATIENCE_S) as client:
        topic = made.topic(0)
        assert (await client.put(f"/v0/topics/{topic}", json={"partitions": 2})).status_code == 201
        admin = AdminClient({"bootstrap.servers": str(made.running[0].owner(1).kafka)})
        found = await asyncio.to_thread(admin.list_topics, topic, PATIENCE_S)
        leaders = [found.topics[topic].partitions[number].leader for number in (0, 1)]
        assert sorted(leaders) == sorted(found.brokers)
        await made.stop_cell(1)
        made.tell()
        found = await asyncio.to_thread(admin.list_topics, topic, PATIENCE_S)
        assert [*found.brokers] == [leaders[0]]
        [here, away] = [found.topics[topic].partitions[number] for number in (0, 1)]
        assert (here.leader, here.error) == (leaders[0], None)
        assert away.leader == -1
        assert away.error is not None
        assert away.error.code() == KafkaError.LEADER_NOT_AVAILABLE
