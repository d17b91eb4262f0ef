"""REST Proxy on topics of several partitions."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from broker.settings import Settings
from broker.wiring import Broker
from storage import Engine
from storage.records.partitions import partition_of
from tests.http.conftest import client_of
from tests.http.proxy.calls import JSON, V2, instance, produce, refused, send, subscribed, values
from tests.http.proxy.test_groups import held


@pytest.fixture(autouse=True)
async def topic(client: httpx.AsyncClient) -> None:
    answer = await client.put("/v0/topics/t", json={"partitions": 3})
    assert answer.is_success, answer.text


async def test_a_key_selects_the_same_partition_as_in_kafka(client: httpx.AsyncClient) -> None:
    keys = [f"key-{n}" for n in range(20)]
    text = {"content-type": "application/vnd.kafka.text.v2+json"}
    body = {"records": [{"key": key, "value": key} for key in keys]}
    placed = (await client.post("/topics/t", json=body, headers=text)).json()["offsets"]
    assert [each["partition"] for each in placed] == [partition_of(key.encode(), 3) for key in keys]
    assert len({each["partition"] for each in placed}) == 3
    for key, each in zip(keys, placed, strict=True):
        url = f"/topics/t/partitions/{each['partition']}/records?format=text&count=1&offset={each['offset']}"
        [record] = (await client.get(url)).json()
        assert (record["key"], record["partition"], record["offset"]) == (key, each["partition"], each["offset"])


async def test_records_without_a_key_rotate_over_partitions(client: httpx.AsyncClient) -> None:
    placed = [await produce(client, "t", 1, 2) for _ in range(3)]
    assert all(first["partition"] == second["partition"] for first, second in placed)
    assert {first["partition"] for first, _ in placed} == {0, 1, 2}


async def test_a_partition_can_be_given(client: httpx.AsyncClient) -> None:
    [placed] = await produce(client, "t", 1, partition=2)
    assert (placed["partition"], placed["offset"]) == (2, 0)
    answer = await client.post("/topics/t/partitions/1", json={"records": [{"value": 2}]}, headers=JSON)
    assert answer.json()["offsets"][0]["partition"] == 1
    body = {"records": [{"value": 1}, {"value": 2, "partition": 3}]}
    refused(await client.post("/topics/t", json=body, headers=JSON), 404, 40402)
    for number, end in ((0, 0), (1, 1), (2, 1)):
        found = (await client.get(f"/topics/t/partitions/{number}/offsets")).json()
        assert found == {"beginning_offset": 0, "end_offset": end}


async def test_a_repetition_goes_to_the_same_partition(client: httpx.AsyncClient) -> None:
    body = {"records": [{"value": 1}, {"value": 2, "key": "k"}]}
    answers = [
        (await client.post("/topics/t", json=body, headers={**JSON, "idempotency-key": "once"})).json()
        for _ in range(4)
    ]
    first = answers[0]["offsets"]
    assert all(each["offsets"] == [{**one, "deduped": True} for one in first] for each in answers[1:])
    path = await subscribed(client, "t")
    assert sorted(await values(client, path)) == [1, 2]


async def test_an_instance_reads_all_partitions_and_commits_each_offset(client: httpx.AsyncClient) -> None:
    for number in range(3):
        await produce(client, "t", *(10 * number + n for n in range(2)), partition=number)
    path = await subscribed(client, "t")
    assert await held(client, path) == ["t-0", "t-1", "t-2"]
    assert sorted(await values(client, path)) == [0, 1, 10, 11, 20, 21]
    await send(client, f"{path}/offsets")
    found = (await client.get(f"{path}/offsets")).json()["offsets"]
    assert [(each["partition"], each["offset"]) for each in found] == [(0, 2), (1, 2), (2, 2)]


async def test_members_share_partitions_by_range(client: httpx.AsyncClient) -> None:
    for number in range(3):
        await produce(client, "t", number, partition=number)
    first = await subscribed(client, "t", name="a")
    second = await subscribed(client, "t", name="b")
    assert (await held(client, first), await held(client, second)) == (["t-0", "t-1"], ["t-2"])
    assert sorted(await values(client, first)) == [0, 1]
    assert await values(client, second) == [2]
    # Nobody reads again what the first instance has committed. The second reads what it has not.
    await send(client, f"{first}/offsets", {"offsets": [{"topic": "t", "partition": 1, "offset": 0}]})
    await client.delete(first)
    assert await values(client, second) == [0]


async def test_a_busy_partition_does_not_starve_other_partitions(client: httpx.AsyncClient) -> None:
    await produce(client, "t", *(["busy"] * 20), partition=0)
    await produce(client, "t", "quiet", partition=2)
    path = await subscribed(client, "t")
    found: list[Any] = []
    for _ in range(2):
        found += await values(client, path, count=5)
    assert "quiet" in found


async def test_an_added_partition_is_read_by_a_subscribed_instance(client: httpx.AsyncClient, engine: Engine) -> None:
    path = await subscribed(client, "t")
    url = f"/v3/clusters/{engine.cluster_id}/topics/t"
    answer = await client.patch(url, json={"partitions_count": 5})
    assert answer.status_code == 200, answer.text
    assert answer.json()["partitions_count"] == 5
    await produce(client, "t", "new", partition=4)
    assert await values(client, path) == ["new"]
    refused(await client.patch(url, json={"partitions_count": 5}), 400, 40002)


async def test_topics_are_made_with_as_many_as_is_set(engine: Engine, settings: Settings) -> None:
    broker = Broker(engine, settings.model_copy(update={"kafka_auto_partitions": 4}))
    async with client_of(broker) as client:
        await produce(client, "made", 1)
        assert len((await client.get("/topics/made/partitions")).json()) == 4


async def test_assigned_partitions_are_read_alone(client: httpx.AsyncClient) -> None:
    for number in range(3):
        await produce(client, "t", number, partition=number)
    path = await instance(client)
    await send(client, f"{path}/assignments", {"partitions": [{"topic": "t", "partition": 2}]})
    assert await values(client, path) == [2]
    refused(
        await client.post(f"{path}/assignments", json={"partitions": [{"topic": "t", "partition": 3}]}, headers=V2),
        404,
        40402,
    )


async def test_lags_are_of_each_partition(client: httpx.AsyncClient, engine: Engine) -> None:
    for number in range(3):
        await produce(client, "t", *range(number + 1), partition=number)
    path = await subscribed(client, "t")
    offsets = [{"topic": "t", "partition": number, "offset": 0} for number in range(3)]
    await send(client, f"{path}/offsets", {"offsets": offsets})
    answer = await client.get(f"/v3/clusters/{engine.cluster_id}/consumer-groups/g/lags")
    assert [(each["partition_id"], each["lag"]) for each in answer.json()["data"]] == [(0, 0), (1, 1), (2, 2)]
