"""Instances of the REST Proxy and Kafka clients in one group: no two members read the same records."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from broker.kafka.errors import ErrorCode
from broker.kafka.groups import consumer_protocol
from broker.kafka.groups.values import Join, JoinAnswer
from broker.proxy.assignment import Partition, by_range
from broker.settings import Settings
from broker.wiring import Broker
from storage import Engine
from tests.http.conftest import client_of
from tests.http.proxy.calls import produce, subscribed, values
from tests.http.proxy.test_groups import held

PATIENCE_S = 20
ALL = {("t", number) for number in range(4)}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path / "data", kafka_port=0, kafka_rebalance_delay_ms=10)


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(broker) as client:
        await client.put("/v0/topics/t", json={"partitions": 4})
        yield client
        await broker.proxy.stop()
        await broker.kafka_groups.close()


class KafkaClient:
    """A Kafka consumer's group protocol, sent directly to the coordinator."""

    def __init__(self, broker: Broker) -> None:
        self._groups = broker.kafka_groups
        self.member_id = ""
        self.generation = -1

    async def join(self) -> set[Partition]:
        """One rebalance; returns the assignment."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                joined: JoinAnswer = await self._groups.join(
                    "g",
                    Join(
                        member_id=self.member_id,
                        fresh_id=self._groups.fresh_id("kafka", None),
                        instance_id=None,
                        client_id="kafka",
                        client_host="",
                        session_ms=10_000,
                        rebalance_ms=10_000,
                        protocol_type="consumer",
                        protocols=(("range", consumer_protocol.subscription(["t"])),),
                        round_trip=False,
                    ),
                )
                assert joined.error is ErrorCode.NONE
                self.member_id, self.generation = joined.member_id, joined.generation
                assignments: dict[str, bytes] = {}
                if joined.leader == self.member_id:
                    wishes = {each.member_id: consumer_protocol.subscribed(each.metadata) for each in joined.members}
                    shares = by_range(wishes, {"t": range(4)})
                    assignments = {name: consumer_protocol.assignment(mine) for name, mine in shares.items()}
                synced = await self._groups.sync("g", self.member_id, self.generation, None, assignments)
                if synced.error is ErrorCode.NONE:
                    return set(consumer_protocol.assigned(synced.assignment))

    def has_to_join(self) -> bool:
        return self._groups.heartbeat("g", self.member_id, self.generation, None) is not ErrorCode.NONE

    def leave(self) -> None:
        self._groups.leave("g", self.member_id, None)


async def owned(client: httpx.AsyncClient, path: str) -> set[Partition]:
    return {("t", int(each.removeprefix("t-"))) for each in await held(client, path)}


async def until_owned(client: httpx.AsyncClient, path: str, expected: set[Partition]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while await owned(client, path) != expected:
            await asyncio.sleep(0.02)


async def test_a_joining_kafka_client_gets_a_share_of_the_partitions(client: httpx.AsyncClient, broker: Broker) -> None:
    path = await subscribed(client, "t")
    assert await owned(client, path) == ALL
    await asyncio.sleep(0.1)
    kafka = KafkaClient(broker)
    mine = await kafka.join()
    assert len(mine) == 2
    await until_owned(client, path, ALL - mine)
    for _, number in ALL:
        await produce(client, "t", number, partition=number)
    assert set(await values(client, path)) == {number for _, number in ALL - mine}
    kafka.leave()
    await until_owned(client, path, ALL)


async def test_a_joining_proxy_instance_gets_a_share_of_the_partitions(
    client: httpx.AsyncClient, broker: Broker
) -> None:
    kafka = KafkaClient(broker)
    assert await kafka.join() == ALL
    path = await subscribed(client, "t")
    assert await owned(client, path) == set()
    async with asyncio.timeout(PATIENCE_S):
        while not kafka.has_to_join():
            await asyncio.sleep(0.02)
    mine = await kafka.join()
    await until_owned(client, path, ALL - mine)
    assert len(mine) == 2
    # With its last subscription the proxy leaves the group.
    await client.delete(path)
    async with asyncio.timeout(PATIENCE_S):
        while not kafka.has_to_join():
            await asyncio.sleep(0.02)
    assert await kafka.join() == ALL


async def test_v3_lists_members_of_both_protocols(client: httpx.AsyncClient, broker: Broker, engine: Engine) -> None:
    kafka = KafkaClient(broker)
    assert await kafka.join() == ALL
    groups = f"/v3/clusters/{engine.cluster_id}/consumer-groups"
    [group] = (await client.get(groups)).json()["data"]
    assert (group["consumer_group_id"], group["state"], group["partition_assignor"]) == ("g", "STABLE", "range")
    [member] = (await client.get(f"{groups}/g/consumers")).json()["data"]
    assert (member["consumer_id"], member["client_id"], member["instance_id"]) == (kafka.member_id, "kafka", None)
    path = await subscribed(client, "t")
    async with asyncio.timeout(PATIENCE_S):
        while not kafka.has_to_join():
            await asyncio.sleep(0.02)
    mine = await kafka.join()
    await until_owned(client, path, ALL - mine)
    for name, assigned in ((kafka.member_id, mine), ("i", ALL - mine)):
        url = f"{groups}/g/consumers/{name}/assignments"
        found = (await client.get(url)).json()["data"]
        assert {(each["topic_name"], each["partition_id"]) for each in found} == assigned
    members = (await client.get(f"{groups}/g/consumers")).json()["data"]
    assert {each["consumer_id"] for each in members} == {"i", kafka.member_id}


async def test_instances_share_the_partitions_of_the_proxy(
    client: httpx.AsyncClient, broker: Broker, engine: Engine
) -> None:
    first = await subscribed(client, "t", name="a")
    second = await subscribed(client, "t", name="b")
    await asyncio.sleep(0.1)
    mine = await KafkaClient(broker).join()
    async with asyncio.timeout(PATIENCE_S):
        while mine & (await owned(client, first) | await owned(client, second)):
            await asyncio.sleep(0.02)
    shares = [await owned(client, first), await owned(client, second)]
    assert [len(each) for each in shares] == [1, 1]
    assert shares[0] | shares[1] | mine == ALL
