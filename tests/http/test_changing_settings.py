"""PATCH of topics, routers and consumers: the named settings change, and all others stay."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from schemas.consumers import ConsumerPutAnswer
from schemas.routers import RouterPutAnswer
from schemas.topics import TopicPutAnswer
from tests.http.calls import JSON, fill, read, refused, refused_field, state


async def patch(client: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    answer = await client.patch("/v0/topics/t", json=fields)
    assert answer.status_code == 200, answer.text
    TopicPutAnswer.model_validate(answer.json())
    return answer.json()["config"]


async def put(client: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    return (await client.put("/v0/topics/t", json=fields)).json()["config"]


async def test_a_patch_of_a_topic_keeps_unnamed_settings(client: httpx.AsyncClient) -> None:
    before = await put(client, durability="fsync", cap_records=100, priority=7, partitions=3)
    changed = await patch(client, ttl_ms=60_000)
    assert changed == before | {"ttl_ms": 60_000}
    assert (await state(client, "t"))["config"] == changed


async def test_an_empty_patch_changes_no_setting(client: httpx.AsyncClient) -> None:
    before = await put(client, durability="memory", ttl_ms=5)
    assert await patch(client) == before
    assert (await client.patch("/v0/topics/t")).json()["config"] == before


async def test_null_clears_nullable_settings(client: httpx.AsyncClient) -> None:
    await put(client, type="queue", priority=7, dead_letter="dead", ttl_ms=5)
    changed = await patch(client, priority=None, dead_letter=None, ttl_ms=None)
    assert (changed["priority"], changed["dead_letter"], changed["ttl_ms"]) == (None, None, 5)


@pytest.mark.parametrize(
    ("before", "durable", "after"),
    [
        ("fsync", False, "disk"),
        ("disk", True, "fsync"),
        ("memory", False, "memory"),
        ("ephemeral", False, "ephemeral"),
        ("memory", True, "fsync"),
        ("fsync", True, "fsync"),
    ],
)
async def test_durable_changes_the_class_only_if_the_class_disagrees(
    client: httpx.AsyncClient, before: str, durable: bool, after: str
) -> None:
    await put(client, durability=before)
    assert (await patch(client, durable=durable))["durability"] == after


async def test_durability_wins_over_durable(client: httpx.AsyncClient) -> None:
    await put(client, durability="fsync")
    assert (await patch(client, durable=True, durability="memory"))["durability"] == "memory"


async def test_a_tightened_cap_applies_at_once(client: httpx.AsyncClient) -> None:
    await fill(client, "t", 5)
    await patch(client, cap_records=2)
    assert [record["$seq"] for record in (await read(client, "t"))["records"]] == [4, 5]


async def test_an_invalid_patch_is_refused_and_changes_no_setting(client: httpx.AsyncClient) -> None:
    before = await put(client, type="queue", lease_ms=5000, partitions=1)
    for fields, field in (
        ({"ttl_ms": -1}, "ttl_ms"),
        ({"ttl_ms": "5"}, "ttl_ms"),
        ({"lease_ms": 1, "dead_letter": "t"}, "dead_letter"),
        ({"lease_ms": 1, "dead_letter": ".x"}, "dead_letter"),
        ({"lease_ms": 1, "max_deliveries": 3}, "max_deliveries"),
        ({"cleanup_policy": "compact", "ttl_ms": 7}, "ttl_ms"),
    ):
        refused_field(await client.patch("/v0/topics/t", json=fields), field)
    for fields in ({"type": "log"}, {"lease_ms": 1, "partitions": 2}):
        refused(await client.patch("/v0/topics/t", json=fields), 409, "topic_exists_incompatible")
    refused_field(await client.patch("/v0/topics/t", content=b"[]", headers=JSON), "body")
    refused(await client.patch("/v0/topics/t", content=b"{}", headers={"content-type": "text/plain"}), 415,
            "unsupported_media_type")  # fmt: skip
    assert (await state(client, "t"))["config"] == before


async def test_patched_settings_are_validated_with_the_unchanged_settings(client: httpx.AsyncClient) -> None:
    await put(client, cleanup_policy="compact")
    refused_field(await client.patch("/v0/topics/t", json={"ttl_ms": 5}), "ttl_ms")
    await client.put("/v0/topics/q", json={"type": "queue", "max_deliveries": 2, "dead_letter": "dead"})
    refused_field(await client.patch("/v0/topics/q", json={"dead_letter": None}), "max_deliveries")
    answer = await client.patch("/v0/topics/q", json={"dead_letter": None, "max_deliveries": 0})
    assert answer.json()["config"]["dead_letter"] is None


async def test_an_absent_topic_is_not_made(client: httpx.AsyncClient) -> None:
    refused(await client.patch("/v0/topics/t", json={"ttl_ms": 5}), 404, "topic_not_found")
    refused(await client.get("/v0/topics/t"), 404, "topic_not_found")


async def test_concurrent_patches_are_all_applied(client: httpx.AsyncClient) -> None:
    await put(client, durability="fsync")
    fields: list[dict[str, Any]] = [
        {"ttl_ms": 99_000}, {"cap_records": 77}, {"cap_bytes": 5000}, {"priority": 3}, {"partitions": 2},
        {"dedupe_node": False}, {"idempotency_window_ms": 5}, {"discard": "reject"},
    ]  # fmt: skip
    answers = await asyncio.gather(*(client.patch("/v0/topics/t", json=each) for each in fields))
    assert [answer.status_code for answer in answers] == [200] * len(fields)
    config = (await state(client, "t"))["config"]
    assert config["durability"] == "fsync"
    for each in fields:
        assert config.items() >= each.items()


async def test_a_patch_of_a_router_keeps_unnamed_settings(client: httpx.AsyncClient) -> None:
    definition = {"source": "a", "dest": "b", "filter": ["tag", "Eq", "x"], "preserve_node": False, "from": "earliest"}
    made = (await client.put("/v0/routers/r", json=definition)).json()
    answer = (await client.patch("/v0/routers/r", json={"preserve_tag": False})).json()
    RouterPutAnswer.model_validate(answer)
    kept = {name: value for name, value in made.items() if name not in ("created", "performance", "preserve_tag")}
    assert answer.items() >= (kept | {"preserve_tag": False}).items()
    assert (await client.patch("/v0/routers/r", json={"filter": None})).json()["filter"] is None
    glob = await client.patch("/v0/routers/r", json={"filter": ["tag", "Glob", "y*"], "source": "a"})
    assert glob.json()["filter"] == ["tag", "Glob", "y*"]
    assert (await client.get("/v0/routers/r")).json()["preserve_node"] is False


async def test_a_patch_of_a_router_applies_allowed_changes_and_refuses_the_rest(client: httpx.AsyncClient) -> None:
    refused(await client.patch("/v0/routers/r", json={}), 404, "router_not_found")
    await client.put("/v0/routers/r", json={"source": "a", "dest": "b"})
    refused(await client.patch("/v0/routers/r", json={"dest": "c"}), 409, "topic_exists_incompatible")
    refused_field(await client.patch("/v0/routers/r", json={"filter": ["tag", "Glob", "*x"]}), "filter")
    await client.put("/v0/routers/back", json={"source": "b", "dest": "a", "allow_cycle": True})
    refused(await client.patch("/v0/routers/back", json={"allow_cycle": False}), 409, "router_cycle")
    refused(await client.get("/v0/topics/c"), 404, "topic_not_found")


async def test_a_patch_of_a_consumer_keeps_unnamed_settings(client: httpx.AsyncClient) -> None:
    await fill(client, "t", 3)
    path = "/v0/topics/t/consumers/c"
    await client.put(path, json={"consistency": "strictly_at_once", "persist_every": 7, "start": 2})
    answer = (await client.patch(path, json={"persist_every": 9})).json()
    ConsumerPutAnswer.model_validate(answer)
    assert (answer["consistency"], answer["persist_every"], answer["cursor_seq"]) == ("strictly_at_once", 9, 2)


async def test_a_patch_of_a_consumer_applies_allowed_changes_and_refuses_the_rest(client: httpx.AsyncClient) -> None:
    path = "/v0/topics/t/consumers/c"
    refused(await client.patch(path, json={}), 404, "topic_not_found")
    await client.put("/v0/topics/t", json={})
    refused(await client.patch(path, json={}), 404, "consumer_not_found")
    await client.put(path, json={"persist_every": 7})
    refused_field(await client.patch(path, json={"persist_every": 0}), "persist_every")
    error = refused(await client.patch(path, json={"start": "head"}), 400, "invalid_request")
    assert "seek" in error["message"]
    assert (await client.get(path)).json()["persist_every"] == 7
