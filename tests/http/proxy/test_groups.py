"""REST Proxy v2: members of one group share their subscribed topics."""

from __future__ import annotations

import asyncio

import httpx
import msgspec
import pytest

from storage import Engine
from tests.http.proxy.calls import V2, instance, produce, refused, send, subscribed, values


async def held(client: httpx.AsyncClient, path: str) -> list[str]:
    found = (await client.get(f"{path}/assignments")).json()["partitions"]
    return [f"{each['topic']}-{each['partition']}" for each in found]


async def test_each_partition_is_held_by_a_single_member(client: httpx.AsyncClient) -> None:
    for topic in ("t", "u"):
        await produce(client, topic, topic)
    first = await subscribed(client, "t", "u", name="a")
    assert await held(client, first) == ["t-0", "u-0"]
    second = await subscribed(client, "u", name="b")
    assert sorted((await held(client, first)) + (await held(client, second))) == ["t-0", "u-0"]
    assert "t-0" in await held(client, first)
    assert sorted((await values(client, first)) + (await values(client, second))) == ["t", "u"]


async def test_a_later_member_waits_until_a_partition_is_free(client: httpx.AsyncClient) -> None:
    await produce(client, "t", 1, 2)
    first = await subscribed(client, "t", name="a")
    assert await values(client, first, count=1) == [1]
    second = await subscribed(client, "t", name="b")
    assert await values(client, second) == []
    waiting = asyncio.create_task(values(client, second, wait_ms=10_000))
    await asyncio.sleep(0.05)
    # The records read by the first instance are not committed, so the second reads them again.
    await client.delete(first)
    assert await asyncio.wait_for(waiting, 5) == [1, 2]


async def test_committed_records_are_not_read_again_by_the_next_member(client: httpx.AsyncClient) -> None:
    await produce(client, "t", 1, 2)
    first = await subscribed(client, "t", name="a")
    second = await subscribed(client, "t", name="b")
    assert await values(client, first, count=1) == [1]
    await send(client, f"{first}/offsets")
    await client.delete(f"{first}/subscription")
    assert await values(client, second) == [2]


async def test_reset_to_latest_starts_at_the_first_subscription_of_the_group(client: httpx.AsyncClient) -> None:
    await produce(client, "t", 1)
    first = await subscribed(client, "t", name="a", **{"auto.offset.reset": "latest"})
    second = await subscribed(client, "t", name="b", **{"auto.offset.reset": "latest"})
    await produce(client, "t", 2)
    await client.delete(first)
    assert await values(client, second) == [2]


async def test_each_group_reads_all_records(client: httpx.AsyncClient) -> None:
    await produce(client, "t", 1)
    for group in ("g", "h"):
        assert await values(client, await subscribed(client, "t", group=group)) == [1]


async def test_an_assigned_member_takes_no_partition_from_subscribed_members(client: httpx.AsyncClient) -> None:
    await produce(client, "t", 1)
    first = await subscribed(client, "t", name="a")
    second = await instance(client, name="b")
    await send(client, f"{second}/assignments", {"partitions": [{"topic": "t", "partition": 0}]})
    assert await values(client, first) == await values(client, second) == [1]


async def test_there_is_a_limit_of_instances(client: httpx.AsyncClient, engine: Engine) -> None:
    engine.logs.options = msgspec.structs.replace(engine.options, max_states=2)
    await instance(client, name="a")
    await instance(client, name="b")
    refused(await client.post("/consumers/g", json={"name": "c"}, headers=V2), 429, 429)
    # It has left nothing behind.
    await client.delete("/consumers/g/instances/a")
    await instance(client, name="c")


@pytest.mark.parametrize("body", [{}, {"topics": []}, {"topics": ["t"], "topic_pattern": "t"}, {"topics": "t"}])
async def test_an_incomplete_subscription_is_refused(client: httpx.AsyncClient, body: dict[str, object]) -> None:
    path = await instance(client)
    refused(await client.post(f"{path}/subscription", json=body, headers=V2), 422, 422)
