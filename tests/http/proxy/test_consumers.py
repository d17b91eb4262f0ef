"""REST Proxy v2: one consumer instance, from its creation to its end."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from tests.http.calls import append
from tests.http.proxy.calls import ACCEPT_JSON, BINARY, V2, b64, instance, produce, refused, send, subscribed, values

T0 = {"topic": "t", "partition": 0}
NOBODY = "/consumers/g/instances/nobody"


async def offsets(client: httpx.AsyncClient, path: str) -> list[dict[str, Any]]:
    answer = await client.request("GET", f"{path}/offsets", json={"partitions": [T0]}, headers=V2)
    assert answer.status_code == 200, answer.text
    return answer.json()["offsets"]


async def test_a_new_instance_is_answered_with_its_base_uri(client: httpx.AsyncClient) -> None:
    answer = await client.post("/consumers/my group", json={"name": "my instance"}, headers=V2)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/vnd.kafka.v2+json"
    assert answer.json() == {
        "instance_id": "my instance",
        "base_uri": "http://localhost/consumers/my%20group/instances/my%20instance",
    }
    assert (await client.delete("/consumers/my%20group/instances/my%20instance")).status_code == 204


async def test_an_instance_without_a_name_gets_a_generated_name(client: httpx.AsyncClient) -> None:
    first, second = [(await client.post("/consumers/g")).json()["instance_id"] for _ in range(2)]
    assert first.startswith("rest-consumer-")
    assert first != second


@pytest.mark.parametrize(
    ("headers", "base"),
    [
        ({"x-forwarded-proto": "https", "x-forwarded-host": "kafka.example"}, "https://kafka.example"),
        ({"x-forwarded-host": "a.example, b.example"}, "http://a.example"),
        ({"x-forwarded-proto": "https", "x-forwarded-port": "8443"}, "https://localhost:8443"),
        ({"x-forwarded-proto": "https", "x-forwarded-port": "443"}, "https://localhost"),
        ({"x-forwarded-prefix": "/proxy/"}, "http://localhost/proxy"),
        ({"forwarded": 'for=1.2.3.4;proto=https;host="k.example:9", for=x;host=y'}, "https://k.example:9"),
        ({"x-forwarded-host": "evil/../x\"'<>"}, "http://localhost"),
        ({"x-forwarded-proto": "javascript"}, "http://localhost"),
    ],
)
async def test_the_base_uri_uses_the_forwarded_host_and_scheme(
    client: httpx.AsyncClient, headers: dict[str, str], base: str
) -> None:
    answer = await client.post("/consumers/g", json={"name": "i"}, headers={**V2, **headers})
    assert answer.json()["base_uri"] == f"{base}/consumers/g/instances/i"


async def test_an_instance_name_is_unique(client: httpx.AsyncClient) -> None:
    await instance(client)
    message = "Consumer with specified consumer ID already exists in the specified consumer group."
    refused(await client.post("/consumers/g", json={"name": "i"}, headers=V2), 409, 40902, message)
    await instance(client, group="other")
    assert (await client.delete("/consumers/g/instances/i")).status_code == 204
    await instance(client)


@pytest.mark.parametrize(
    "config",
    [
        {"format": "avro"},
        {"auto.offset.reset": "middle"},
        {"auto.commit.enable": "perhaps"},
        {"fetch.min.bytes": "many"},
        {"consumer.request.timeout.ms": -7},
    ],
)
async def test_invalid_settings_are_refused(client: httpx.AsyncClient, config: dict[str, Any]) -> None:
    message = refused(await client.post("/consumers/g", json=config, headers=V2), 422, 42204)
    assert message.startswith("Invalid consumer configuration: ")


@pytest.mark.parametrize(
    ("method", "rest", "body"),
    [
        ("DELETE", "", None),
        ("POST", "/subscription", {"topics": ["t"]}),
        ("GET", "/subscription", None),
        ("DELETE", "/subscription", None),
        ("POST", "/assignments", {"partitions": []}),
        ("GET", "/assignments", None),
        ("GET", "/records", None),
        ("POST", "/offsets", None),
        ("GET", "/offsets", None),
        ("POST", "/positions", {"offsets": []}),
        ("POST", "/positions/beginning", {"partitions": []}),
        ("POST", "/positions/end", {"partitions": []}),
    ],
)
async def test_an_absent_instance_is_not_found(client: httpx.AsyncClient, method: str, rest: str, body: Any) -> None:
    answer = await client.request(method, NOBODY + rest, json=body, headers=V2)
    refused(answer, 404, 40403, "Consumer instance not found.")


async def test_the_first_read_returns_existing_records(client: httpx.AsyncClient) -> None:
    await produce(client, "t", 1, 2, 3)
    path = await subscribed(client, "t")
    answer = await client.get(f"{path}/records", headers=ACCEPT_JSON)
    assert answer.headers["content-type"] == "application/vnd.kafka.json.v2+json"
    times = [each["timestamp"] for each in answer.json()]
    assert len(times) == 3
    shown = [{name: value for name, value in each.items() if name != "timestamp"} for each in answer.json()]
    assert shown == [{"topic": "t", "key": None, "value": n, "partition": 0, "offset": n - 1} for n in (1, 2, 3)]
    assert await values(client, path) == []


async def test_reset_to_latest_means_from_the_subscription_on(client: httpx.AsyncClient) -> None:
    await produce(client, "t", 1)
    path = await subscribed(client, "t", **{"auto.offset.reset": "latest"})
    await produce(client, "t", 2)
    assert await values(client, path) == [2]


async def test_a_read_without_a_reset_and_a_position_fails(client: httpx.AsyncClient) -> None:
    await produce(client, "t", 1)
    path = await subscribed(client, "t", **{"auto.offset.reset": "none"})
    message = refused(await client.get(f"{path}/records"), 409, 40903)
    assert "t-0" in message
    await send(client, f"{path}/positions/beginning", {"partitions": [T0]})
    assert await values(client, path) == [1]


async def test_a_topic_created_after_the_subscription_is_read_from_its_beginning(client: httpx.AsyncClient) -> None:
    path = await subscribed(client, "t", **{"auto.offset.reset": "latest"})
    assert await values(client, path) == []
    await produce(client, "t", 1)
    assert await values(client, path) == [1]


async def test_a_read_waits_for_records(client: httpx.AsyncClient) -> None:
    await client.put("/v0/topics/t", json={})
    path = await subscribed(client, "t")
    waiting = asyncio.create_task(values(client, path, wait_ms=10_000))
    await asyncio.sleep(0.05)
    await produce(client, "t", "late")
    assert await asyncio.wait_for(waiting, 5) == ["late"]


async def test_a_read_without_records_ends_after_its_timeout(client: httpx.AsyncClient) -> None:
    await client.put("/v0/topics/t", json={})
    assert await values(client, await subscribed(client, "t"), timeout=30) == []


async def test_several_topics_are_read_together(client: httpx.AsyncClient) -> None:
    for topic in ("t", "u"):
        await produce(client, topic, topic)
    path = await subscribed(client, "t", "u")
    assert (await client.get(f"{path}/subscription")).json() == {"topics": ["t", "u"]}
    assert sorted(await values(client, path)) == ["t", "u"]
    held = [{"topic": topic, "partition": 0} for topic in ("t", "u")]
    assert (await client.get(f"{path}/assignments")).json() == {"partitions": held}


async def test_a_pattern_matches_whole_names(client: httpx.AsyncClient) -> None:
    for topic in ("orders-1", "orders-2", "other", "my-orders-1"):
        await produce(client, topic, topic)
    path = await instance(client)
    await send(client, f"{path}/subscription", {"topic_pattern": "orders-.*"})
    assert sorted(await values(client, path)) == ["orders-1", "orders-2"]
    assert (await client.get(f"{path}/subscription")).json() == {"topics": ["orders-1", "orders-2"]}


@pytest.mark.parametrize("pattern", ["(a+)+", ".*.*.*", "[", "", "a{2,}", "(a|b)\\1", "x" * 300])
async def test_expensive_patterns_are_refused(client: httpx.AsyncClient, pattern: str) -> None:
    path = await instance(client)
    refused(await client.post(f"{path}/subscription", json={"topic_pattern": pattern}, headers=V2), 422, 422)


async def test_subscribing_and_assigning_exclude_each_other(client: httpx.AsyncClient) -> None:
    await produce(client, "t", 1)
    path = await subscribed(client, "t")
    for rest, body in (("/assignments", {"partitions": [T0]}), ("/subscription", {"topic_pattern": ".*"})):
        refused(await client.post(path + rest, json=body, headers=V2), 409, 40903)
    assert (await client.delete(f"{path}/subscription")).status_code == 204
    assert (await client.get(f"{path}/subscription")).json() == {"topics": []}
    await send(client, f"{path}/assignments", {"partitions": [T0]})
    refused(await client.post(f"{path}/subscription", json={"topics": ["t"]}, headers=V2), 409, 40903)
    assert await values(client, path) == [1]


async def test_a_read_without_a_subscription_or_assignment_is_refused(client: httpx.AsyncClient) -> None:
    message = refused(await client.get(f"{await instance(client)}/records"), 409, 40903)
    assert message == "Illegal state: Consumer is not subscribed to any topics or assigned any partitions"


async def test_an_assignment_of_an_absent_partition_is_refused(client: httpx.AsyncClient) -> None:
    await produce(client, "t", 1)
    path = await instance(client)
    for topic, number, code in (("u", 0, 40401), ("t", 1, 40402)):
        body = {"partitions": [{"topic": topic, "partition": number}]}
        refused(await client.post(f"{path}/assignments", json=body, headers=V2), 404, code)


async def test_the_read_format_must_be_the_format_of_the_instance(client: httpx.AsyncClient) -> None:
    await produce(client, "t", "x")
    path = await subscribed(client, "t", format="binary")
    refused(await client.get(f"{path}/records", headers=ACCEPT_JSON), 406, 40601)
    answer = await client.get(f"{path}/records", headers={"accept": "application/vnd.kafka.v2+json"})
    assert answer.headers["content-type"] == "application/vnd.kafka.binary.v2+json"
    assert [each["value"] for each in answer.json()] == [b64('"x"')]


async def test_reads_continue_at_a_set_position(client: httpx.AsyncClient) -> None:
    await produce(client, "t", *range(5))
    path = await subscribed(client, "t")
    assert len(await values(client, path)) == 5
    await send(client, f"{path}/positions", {"offsets": [{**T0, "offset": 3}]})
    assert await values(client, path) == [3, 4]
    await send(client, f"{path}/positions/beginning", {"partitions": [T0]})
    assert await values(client, path, count=1) == [0]
    await send(client, f"{path}/positions/end", {"partitions": [T0]})
    assert await values(client, path) == []
    body = {"offsets": [{"topic": "u", "partition": 0, "offset": 3}]}
    refused(await client.post(f"{path}/positions", json=body, headers=V2), 409, 40903)


async def test_a_commit_of_a_record_covers_the_record(client: httpx.AsyncClient) -> None:
    await produce(client, "t", *range(5))
    path = await subscribed(client, "t")
    assert await offsets(client, path) == []
    await send(client, f"{path}/offsets", {"offsets": [{**T0, "offset": 1}]})
    assert await offsets(client, path) == [{**T0, "offset": 2, "metadata": ""}]
    found = (await client.get("/v0/topics/t/consumers/group:g")).json()
    assert found["cursor_seq"] == 2
    await client.delete(path)
    assert await values(client, await subscribed(client, "t")) == [2, 3, 4]


async def test_a_commit_may_go_back(client: httpx.AsyncClient) -> None:
    await produce(client, "t", *range(5))
    path = await subscribed(client, "t")
    for offset in (3, 0):
        await send(client, f"{path}/offsets", {"offsets": [{**T0, "offset": offset}]})
        assert await offsets(client, path) == [{**T0, "offset": offset + 1, "metadata": ""}]


async def test_a_commit_without_a_body_commits_all_read_records(client: httpx.AsyncClient) -> None:
    await produce(client, "t", *range(5))
    path = await subscribed(client, "t")
    assert await values(client, path, count=3) == [0, 1, 2]
    await send(client, f"{path}/offsets")
    assert await offsets(client, path) == [{**T0, "offset": 3, "metadata": ""}]
    answer = await client.get(f"{path}/offsets")
    assert answer.json() == {"offsets": [{**T0, "offset": 3, "metadata": ""}]}


async def test_a_commit_for_no_partition_or_below_the_first_offset_is_refused(client: httpx.AsyncClient) -> None:
    await produce(client, "t", 1)
    path = await subscribed(client, "t")
    body = {"offsets": [{**T0, "partition": 1, "offset": 0}]}
    refused(await client.post(f"{path}/offsets", json=body, headers=V2), 404, 40402)
    body = {"offsets": [{**T0, "offset": -2}]}
    refused(await client.post(f"{path}/offsets", json=body, headers=V2), 422, 422)


@pytest.mark.parametrize(("reset", "read"), [("earliest", [0, 1, 2]), ("latest", []), ("none", None)])
async def test_after_a_commit_beyond_the_end_the_reset_decides(
    client: httpx.AsyncClient, reset: str, read: list[int] | None
) -> None:
    await produce(client, "t", *range(3))
    path = await subscribed(client, "t")
    await send(client, f"{path}/offsets", {"offsets": [{**T0, "offset": 7}]})
    assert await offsets(client, path) == [{**T0, "offset": 8, "metadata": ""}]
    assert (await client.get("/v0/topics/t/consumers/group:g")).json()["cursor_seq"] == 3
    await client.delete(path)
    again = await subscribed(client, "t", **{"auto.offset.reset": reset})
    if read is None:
        assert "t-0" in refused(await client.get(f"{again}/records"), 409, 40903)
        return
    assert await values(client, again) == read
    await produce(client, "t", 3)
    assert await values(client, again) == [3]


async def test_auto_commit_skips_a_topic_that_was_recreated(client: httpx.AsyncClient) -> None:
    await produce(client, "t", 1, 2, 3)
    path = await subscribed(client, "t", **{"auto.commit.enable": "true"})
    assert await values(client, path) == [1, 2, 3]
    await client.delete("/v0/topics/t")
    await produce(client, "t", "new")
    assert await values(client, path) == ["new"]
    assert await offsets(client, path) == []


async def test_auto_commit_commits_the_records_of_the_previous_read(client: httpx.AsyncClient) -> None:
    await produce(client, "t", *range(5))
    path = await subscribed(client, "t", **{"auto.commit.enable": "true"})
    assert await values(client, path, count=2) == [0, 1]
    assert await offsets(client, path) == []  # nothing may have been done with them yet
    assert await values(client, path, count=1) == [2]
    assert await offsets(client, path) == [{**T0, "offset": 2, "metadata": ""}]
    await client.delete(path)
    assert await values(client, await subscribed(client, "t")) == [3, 4]


async def test_reads_without_auto_commit_commit_no_offset(client: httpx.AsyncClient) -> None:
    await produce(client, "t", 1)
    path = await subscribed(client, "t")
    for _ in range(3):
        await values(client, path)
    await client.delete(path)
    assert await values(client, await subscribed(client, "t")) == [1]


async def test_topics_in_memory_are_read_without_commits(client: httpx.AsyncClient) -> None:
    await client.put("/v0/topics/t", json={"durability": "ephemeral"})
    await append(client, "t", {"data": 1}, {"data": 2})
    path = await subscribed(client, "t", **{"auto.commit.enable": "true"})
    assert await values(client, path, count=1) == [1]
    assert await values(client, path) == [2]
    assert await offsets(client, path) == []


async def test_a_recreated_topic_is_read_from_its_beginning(client: httpx.AsyncClient) -> None:
    await produce(client, "t", 1, 2, 3)
    path = await subscribed(client, "t", **{"auto.commit.enable": "true"})
    assert await values(client, path) == [1, 2, 3]
    await client.delete("/v0/topics/t")
    assert await values(client, path) == []
    await produce(client, "t", "new")
    assert await values(client, path) == ["new"]


async def test_binary_keys_are_no_trouble_to_a_json_instance(client: httpx.AsyncClient) -> None:
    await client.post("/topics/t", json={"records": [{"key": b64(b"\xff"), "value": b64("{}")}]}, headers=BINARY)
    path = await subscribed(client, "t")
    [record] = (await client.get(f"{path}/records")).json()
    assert (record["key"], record["value"]) == ({"$base64": b64(b"\xff")}, {})
