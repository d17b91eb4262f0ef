"""Until the next round of the expiry worker, state, lists and `if_empty` counted expired records that no read returned.
If ttl_ms was raised before that round, the expired records came back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from broker.settings import Settings
from broker.wiring import Broker
from storage import Durability, TopicConfig
from storage.engine import Engine
from tests.http.calls import append, read, refused, state
from tests.http.conftest import client_of
from tests.unit.storage.machine import Machine, records, seqs

TTL_MS = 1000
#: No round of the worker happens in between.
NEVER: dict[str, Any] = {"expiry_interval_ms": 3_600_000}


@pytest.fixture
async def engine(machine: Machine) -> Engine:
    return await machine.start(**NEVER)


@pytest.fixture
async def client(engine: Engine, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(Broker(engine, Settings(data_dir=tmp_path))) as client:
        yield client


async def expired(client: httpx.AsyncClient, machine: Machine, topic: str = "t", **config: Any) -> None:
    """Two records have expired, and a third has not."""
    await client.put(f"/v0/topics/{topic}", json={"ttl_ms": TTL_MS, **config})
    await append(client, topic, {"data": 1}, {"data": 2})
    machine.clock.tick(TTL_MS // 2)
    await append(client, topic, {"data": 3})
    machine.clock.tick(TTL_MS // 2 + 1)


@pytest.mark.parametrize("durability", ["ephemeral", "memory", "disk", "fsync"])
async def test_state_agrees_with_reads(client: httpx.AsyncClient, machine: Machine, durability: str) -> None:
    await expired(client, machine, durability=durability)
    found = await state(client, "t")
    assert (found["earliest_seq"], found["count"], found["bytes"]) == (3, 1, 1)
    answer = await read(client, "t")
    assert ([each["$seq"] for each in answer["records"]], answer["earliest_seq"]) == ([3], 3)


async def test_lists_agree_with_reads(client: httpx.AsyncClient, machine: Machine) -> None:
    await expired(client, machine)
    [entry] = (await client.get("/v0/topics")).json()["topics"]
    assert (entry["earliest_seq"], entry["count"], entry["bytes"]) == (3, 1, 1)


async def test_every_partition_agrees_with_reads(client: httpx.AsyncClient, machine: Machine) -> None:
    await client.put("/v0/topics/t", json={"ttl_ms": TTL_MS, "partitions": 2})
    for partition in (0, 1):
        body = {"records": [{"data": 1}]}
        await client.post(f"/v0/topics/t?partition={partition}", json=body)
    machine.clock.tick(TTL_MS + 1)
    found = await state(client, "t")
    assert (found["count"], [each["earliest_seq"] for each in found["partitions"]]) == (0, [2, 2])


async def test_figures_of_a_queue_agree_with_claims(client: httpx.AsyncClient, machine: Machine) -> None:
    await expired(client, machine, type="queue")
    queue = (await state(client, "t"))["queue"]
    assert (queue["ready"], queue["lost"], queue["oldest_ready_age_ms"]) == (1, 2, TTL_MS // 2 + 1)


async def test_expired_jobs_are_not_listed(client: httpx.AsyncClient, machine: Machine) -> None:
    await expired(client, machine, type="queue")
    assert [job["$seq"] for job in (await client.get("/v0/topics/t/leases")).json()["jobs"]] == [3]


async def test_a_purge_does_not_count_expired_jobs(client: httpx.AsyncClient, machine: Machine) -> None:
    await expired(client, machine, type="queue")
    assert (await client.post("/v0/topics/t/purge", json={"states": ["ready"]})).json()["purged"] == 1


async def test_expired_records_do_not_count_as_unread(client: httpx.AsyncClient, machine: Machine) -> None:
    await client.put("/v0/topics/t", json={})
    await client.put("/v0/topics/t/consumers/c", json={})
    await expired(client, machine)
    assert (await client.get("/v0/topics/t/consumers/c")).json()["unread"] == 1
    machine.clock.tick(TTL_MS)
    assert (await client.get("/v0/topics/t/consumers")).json()["consumers"][0]["unread"] == 0


async def test_a_deletion_does_not_count_expired_records(client: httpx.AsyncClient, machine: Machine) -> None:
    await expired(client, machine)
    answer = (await client.post("/v0/topics/t/delete", json={"before_seq": 3})).json()
    assert (answer["deleted"], answer["earliest_seq"], answer["count"]) == (0, 3, 1)


async def test_bulk_readers_begin_where_reads_do(client: httpx.AsyncClient, machine: Machine) -> None:
    await expired(client, machine)
    assert (await client.get("/v0/topics/t/segments")).json()["earliest_seq"] == 3


async def test_a_topic_of_expired_records_is_empty(client: httpx.AsyncClient, machine: Machine) -> None:
    await expired(client, machine)
    refused(await client.delete("/v0/topics/t?if_empty=true"), 409, "topic_not_empty")
    machine.clock.tick(TTL_MS)
    assert (await client.delete("/v0/topics/t?if_empty=true")).json()["deleted"] is True


async def test_the_state_of_a_topic_does_not_count_expired_records(engine: Engine, machine: Machine) -> None:
    await engine.put_topic("t", TopicConfig(ttl_ms=TTL_MS))
    await engine.append("t", records(2))
    machine.clock.tick(TTL_MS + 1)
    found = engine.state("t")
    assert (found.count, found.bytes, found.earliest_seq) == (0, 0, 3)


@pytest.mark.parametrize("durability", list(Durability))
@pytest.mark.parametrize("crash", [None, "kill", "cut_power"])
@pytest.mark.parametrize("ttl_ms", [0, 10 * TTL_MS])
async def test_expired_records_do_not_come_back_with_a_longer_ttl(
    engine: Engine, machine: Machine, durability: Durability, crash: str | None, ttl_ms: int
) -> None:
    config = TopicConfig(ttl_ms=TTL_MS, durability=durability)
    await engine.put_topic("t", config)
    await engine.append("t", records(2))
    machine.clock.tick(TTL_MS + 1)
    await engine.put_topic("t", msgspec.structs.replace(config, ttl_ms=ttl_ms))
    await engine.append("t", records(1))
    assert await seqs(engine, "t") == [3]
    if crash is not None:
        engine = await getattr(machine, crash)(**NEVER)
        assert engine.state("t").config.ttl_ms == ttl_ms
        assert set(await seqs(engine, "t")) <= {3}
        assert engine.state("t").earliest_seq >= 3
