"""Topics of several partitions over HTTP.

Source: docs/reference/api.md#partitions.
"""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from storage import Engine
from storage.records.partitions import partition_of


async def make(client: httpx.AsyncClient, partitions: int = 3, name: str = "orders", **config: Any) -> None:
    answer = await client.put(f"/v0/topics/{name}", json={"partitions": partitions, **config})
    assert answer.status_code == 201, answer.text


async def post(
    client: httpx.AsyncClient, count: int = 1, *, tag: str | None = None, query: str = "", **more: Any
) -> Any:
    record: dict[str, Any] = {"data": {"n": 1}} if tag is None else {"data": {"n": 1}, "tag": tag}
    answer = await client.post(f"/v0/topics/orders{query}", json={"records": [record] * count, **more})
    assert answer.status_code in (200, 201), answer.text
    return answer.json()


def refused(answer: httpx.Response, status: int, code: str, field: str | None = None) -> None:
    body = answer.json()
    assert (answer.status_code, body["error"]["code"]) == (status, code), body
    if field is not None:
        assert body["error"]["detail"]["field"] == field


async def test_writes_without_a_tag_rotate_over_partitions(client: httpx.AsyncClient) -> None:
    await make(client)
    assert [(await post(client))["partition"] for _ in range(5)] == [0, 1, 2, 0, 1]


async def test_a_tag_selects_the_partition_of_kafkas_partitioner(client: httpx.AsyncClient) -> None:
    await make(client)
    for tag in ("a", "order-17", "ü"):
        answer = await post(client, 2, tag=tag)
        assert answer["partition"] == partition_of(tag.encode(), 3)
        assert (answer["topic"], answer["count"]) == ("orders", 2)


async def test_tags_of_different_partitions_in_a_batch_are_refused(client: httpx.AsyncClient) -> None:
    await make(client)
    tags = ["a", next(tag for tag in "bcdefgh" if partition_of(tag.encode(), 3) != partition_of(b"a", 3))]
    records = [{"data": 1}, *({"data": 1, "tag": tag} for tag in tags)]
    refused(await client.post("/v0/topics/orders", json={"records": records}), 400, "invalid_request", "records[2].tag")
    answer = await client.post("/v0/topics/orders?partition=2", json={"records": records})
    assert (answer.json()["partition"], answer.json()["first_seq"]) == (2, 1)


async def test_answers_of_a_topic_with_a_single_partition_name_no_partition(client: httpx.AsyncClient) -> None:
    await make(client, 1)
    assert "partition" not in await post(client)
    assert "partition" not in await post(client, query="?partition=0")
    assert "partitions" not in (await client.get("/v0/topics/orders")).json()


async def test_records_appended_to_a_partition_are_read_from_the_partition(client: httpx.AsyncClient) -> None:
    await make(client)
    await post(client, 2, query="?partition=1")
    for answer in (
        await client.get("/v0/topics/orders/records?partition=1"),
        await client.post("/v0/topics/orders/diff?partition=1", json={}),
    ):
        body = answer.json()
        assert [record["$seq"] for record in body["records"]] == [1, 2]
        assert (body["topic"], body["partition"], body["head_seq"]) == ("orders", 1, 2)
    other = (await client.get("/v0/topics/orders/records")).json()
    assert other["records"] == []
    assert "partition" not in other
    one = (await client.get("/v0/topics/orders/records/2?partition=1")).json()
    assert (one["topic"], one["partition"], one["$seq"]) == ("orders", 1, 2)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/records", None),
        ("POST", "/diff", {}),
        ("GET", "/records/1", None),
        ("POST", "", {"records": [{"data": 1}]}),
        ("POST", "/delete", {"before_seq": 1}),
        ("GET", "/segments", None),
        ("PUT", "/consumers/c", {}),
        ("GET", "/consumers/c", None),
        ("GET", "/consumers", None),
        ("DELETE", "/consumers/c", None),
        ("POST", "/consumers/c/read", {}),
        ("POST", "/consumers/c/commit", {"seq": 0}),
        ("POST", "/consumers/c/seek", {"seq": 0}),
    ],
)
async def test_a_partition_out_of_range_is_refused(
    client: httpx.AsyncClient, method: str, path: str, body: Any
) -> None:
    await make(client)
    url = f"/v0/topics/orders{path}"
    refused(await client.request(method, f"{url}?partition=3", json=body), 400, "invalid_request", "partition")
    refused(await client.request(method, f"{url}?partition=x", json=body), 400, "invalid_request")


async def test_the_address_of_a_partition_is_not_a_valid_name(client: httpx.AsyncClient) -> None:
    await make(client)
    refused(await client.get("/v0/topics/orders%2F1"), 400, "invalid_request")
    refused(await client.post("/v0/watch", json={"topics": {"orders/1": {}}}), 400, "invalid_request")
    refused(await client.put("/v0/routers/r", json={"source": "orders/1", "dest": "x"}), 400, "invalid_request")


async def test_the_state_of_a_topic_lists_its_partitions_and_their_sums(client: httpx.AsyncClient) -> None:
    await make(client)
    for partition, count in ((0, 1), (1, 2), (2, 4)):
        await post(client, count, query=f"?partition={partition}")
    state = (await client.get("/v0/topics/orders")).json()
    assert (state["head_seq"], state["count"], state["bytes"], state["config"]["partitions"]) == (1, 7, 7 * 7, 3)
    assert [(each["partition"], each["head_seq"], each["count"]) for each in state["partitions"]] == [
        (0, 1, 1),
        (1, 2, 2),
        (2, 4, 4),
    ]
    assert state["last_write_ts"] == max(each["last_write_ts"] for each in state["partitions"])
    [entry] = (await client.get("/v0/topics")).json()["topics"]
    assert (entry["topic"], entry["count"], entry["bytes"]) == ("orders", 7, 49)


async def test_records_are_deleted_from_a_single_partition(client: httpx.AsyncClient) -> None:
    await make(client)
    await post(client, 3, query="?partition=1")
    await post(client, 3)
    done = (await client.post("/v0/topics/orders/delete?partition=1", json={"before_seq": 3})).json()
    assert (done["topic"], done["partition"], done["deleted"], done["count"]) == ("orders", 1, 2, 1)
    assert (await client.get("/v0/topics/orders")).json()["count"] == 4


async def test_an_expected_seq_applies_to_its_partition(client: httpx.AsyncClient) -> None:
    await make(client)
    await post(client, 2, query="?partition=1")
    records = {"records": [{"data": 1}]}
    refused(
        await client.post("/v0/topics/orders?partition=1", json={**records, "expected_seq": 0}), 409, "seq_conflict"
    )
    assert (await post(client, query="?partition=1", expected_seq=2))["first_seq"] == 3
    for expected in (0, 1):  # partition 0 unless the request names one, in turn
        assert (await post(client, expected_seq=expected))["partition"] == 0


@pytest.mark.one_cell("no cell knows all keys; a key alone maps to one partition")
async def test_an_idempotency_key_is_found_in_every_partition(client: httpx.AsyncClient) -> None:
    await make(client)
    first = await post(client, idempotency_key="k", query="?partition=2")
    for query in ("", "?partition=1", "?partition=0"):
        again = await post(client, idempotency_key="k", query=query)
        assert (again["deduped"], again["partition"], again["first_seq"]) == (True, 2, first["first_seq"])
    assert (await client.get("/v0/topics/orders")).json()["count"] == 1


async def test_a_key_sent_many_times_at_once_counts_once(client: httpx.AsyncClient) -> None:
    await make(client, durability="disk")
    # More than is reserved, so each has to wait before it is submitted.
    answers = await asyncio.gather(*(post(client, 300, idempotency_key="k") for _ in range(6)))
    assert len({(each["partition"], each["first_seq"]) for each in answers}) == 1
    assert sum(not each["deduped"] for each in answers) == 1
    assert (await client.get("/v0/topics/orders")).json()["count"] == 300


async def test_a_write_makes_a_topic_of_several(client: httpx.AsyncClient) -> None:
    answer = await post(client, config={"partitions": 4})
    assert (answer["created"], answer["partition"]) == (True, 0)
    assert len((await client.get("/v0/topics/orders")).json()["partitions"]) == 4
    again = await post(client, config={"partitions": 4})
    assert (again["created"], again["partition"]) == (False, 1)


async def test_partitions_grow_and_never_shrink(client: httpx.AsyncClient) -> None:
    await make(client, 2)
    await post(client, query="?partition=1")
    answer = await client.put("/v0/topics/orders", json={"partitions": 4, "ttl_ms": 60_000})
    assert (answer.status_code, answer.json()["config"]["partitions"]) == (200, 4)
    assert (await post(client, query="?partition=3"))["first_seq"] == 1
    refused(
        await client.put("/v0/topics/orders", json={"partitions": 3}), 409, "topic_exists_incompatible", "partitions"
    )
    excluded_nodes = (await client.put("/v0/topics/orders", json={})).json()["config"]
    assert (excluded_nodes["partitions"], excluded_nodes["ttl_ms"]) == (4, 0)
    assert (await client.get("/v0/topics/orders/records?partition=1")).json()["head_seq"] == 1


async def test_there_is_a_limit(client: httpx.AsyncClient) -> None:
    answer = await client.put("/v0/topics/orders", json={"partitions": 65})
    refused(answer, 429, "throttled")
    assert answer.json()["error"]["detail"] == {"limit": "max_partitions", "max": 64}
    refused(await client.put("/v0/topics/orders", json={"partitions": 1025}), 400, "invalid_request", "partitions")


async def test_queues_routers_and_dead_letter_topics_refuse_several_partitions(client: httpx.AsyncClient) -> None:
    refused(await client.put("/v0/topics/q", json={"type": "queue", "partitions": 2}), 409, "topic_exists_incompatible")
    await make(client)
    for ends in ({"source": "orders", "dest": "x"}, {"source": "x", "dest": "orders"}):
        refused(await client.put("/v0/routers/r", json=ends), 409, "topic_exists_incompatible")
    refused(
        await client.put("/v0/topics/q", json={"type": "queue", "dead_letter": "orders"}),
        409,
        "topic_exists_incompatible",
        "dead_letter",
    )
    assert (await client.get("/v0/topics/x")).status_code == 404
    await make(client, 1, "single")
    assert (await client.put("/v0/routers/r", json={"source": "single", "dest": "there"})).status_code == 201
    assert (await client.put("/v0/topics/q", json={"type": "queue", "dead_letter": "dead"})).status_code == 201
    for name in ("single", "there", "dead"):
        answer = await client.put(f"/v0/topics/{name}", json={"partitions": 2})
        refused(answer, 409, "topic_exists_incompatible", "partitions")


async def test_a_claim_on_a_partitioned_topic_is_refused(client: httpx.AsyncClient) -> None:
    await make(client)
    refused(await client.post("/v0/topics/orders/claim", json={"node": "n"}), 409, "not_a_queue")


async def test_a_consumer_belongs_to_a_single_partition(client: httpx.AsyncClient) -> None:
    await make(client)
    await post(client, 3, query="?partition=1")
    for partition in (0, 1):
        made = await client.put(f"/v0/topics/orders/consumers/c?partition={partition}", json={"start": "earliest"})
        assert made.status_code == 201
    read = (await client.post("/v0/topics/orders/consumers/c/read?partition=1", json={"limit": 2})).json()
    assert (read["topic"], read["partition"], read["cursor_seq"], read["lag"]) == ("orders", 1, 2, 1)
    committed = (await client.post("/v0/topics/orders/consumers/c/commit?partition=1", json={"seq": 3})).json()
    assert (committed["topic"], committed["partition"], committed["cursor_seq"]) == ("orders", 1, 3)
    shown = (await client.get("/v0/topics/orders/consumers/c?partition=1")).json()
    assert (shown["topic"], shown["partition"], shown["lag"]) == ("orders", 1, 0)
    first = (await client.get("/v0/topics/orders/consumers/c")).json()
    assert first["cursor_seq"] == 0
    assert "partition" not in first
    [entry] = (await client.get("/v0/topics/orders/consumers?partition=1")).json()["consumers"]
    assert (entry["consumer"], entry["partition"]) == ("c", 1)
    assert (await client.delete("/v0/topics/orders/consumers/c?partition=1")).json()["deleted"] is True
    assert (await client.get("/v0/topics/orders/consumers/c?partition=1")).status_code == 404
    assert (await client.get("/v0/topics/orders/consumers/c")).status_code == 200


async def test_deleting_a_topic_deletes_all_its_partitions(client: httpx.AsyncClient, engine: Engine) -> None:
    await make(client)
    await post(client, query="?partition=2")
    refused(await client.delete("/v0/topics/orders?if_empty=true"), 409, "topic_not_empty")
    assert (await client.delete("/v0/topics/orders")).json()["deleted"] is True
    assert engine.catalog.by_id == {}
    assert engine.catalog.topics == {}
    refused(await client.get("/v0/topics/orders/records?partition=1"), 404, "topic_not_found")
    await make(client, 2)
    assert (await client.get("/v0/topics/orders/records?partition=1")).json()["head_seq"] == 0
