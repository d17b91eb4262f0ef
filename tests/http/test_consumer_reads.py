"""Reads, commits and seeks of a consumer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from broker.settings import Settings
from broker.wiring import Broker
from schemas.consumers import ConsumerAnswer, ConsumerReadAnswer
from storage import Engine
from tests.http.calls import append, fill, read, refused, refused_field
from tests.http.conftest import SMALL, client_of
from tests.http.consumer_calls import URL, data, get, post, put

BOTH = pytest.mark.parametrize("consistency", ["at_least_once", "strictly_at_once"])


@BOTH
async def test_a_read_continues_at_the_end_of_the_previous_read(client: httpx.AsyncClient, consistency: str) -> None:
    await fill(client, "t", 5)
    await put(client, consistency=consistency)
    first = await post(client, "read", limit=2)
    ConsumerReadAnswer.model_validate(first)
    assert [record["$seq"] for record in first["records"]] == [1, 2]
    assert (first["consumer"], first["cursor_seq"], first["unread"]) == ("c", 2, 3)
    assert (first["next_from_seq"], first["head_seq"], first["caught_up"], first["lag"]) == (2, 5, False, 3)
    assert "repeated" not in first
    assert await data(client) == [3, 4, 5]
    last = await post(client, "read")
    assert (last["records"], last["caught_up"], last["cursor_seq"], last["unread"]) == ([], True, 5, 0)


async def test_a_consumer_read_has_the_fields_of_a_diff_and_its_cursor(client: httpx.AsyncClient) -> None:
    raw = b'{"records":[{"data":{"b": 1.0, "a":"\\u00e9"},"meta":{"x" : 1e2},"node":"n","tag":"g"}]}'
    await client.post("/v0/topics/t", content=raw, headers={"content-type": "application/json"})
    await put(client)
    shape = {"include_tags": True}
    wanted = await client.post("/v0/topics/t/diff", json=shape)
    found = await client.post(f"{URL}/read", json={"checkpoint": False, **shape})
    assert b'"data":{"b": 1.0, "a":"\\u00e9"},"meta":{"x" : 1e2}' in found.content
    extra = {"consumer": "c", "cursor_seq": 0, "unread": 1}
    assert {**wanted.json(), "performance": None, **extra} == {**found.json(), "performance": None}
    bare = await post(client, "read", include_data=False, include_meta=False)
    assert bare["records"] == [{"$seq": 1, "$ts": bare["records"][0]["$ts"], "$node": "n"}]


async def test_a_read_needs_no_body(client: httpx.AsyncClient) -> None:
    await fill(client, "t", 1)
    await put(client)
    assert len((await client.post(f"{URL}/read")).json()["records"]) == 1


async def test_bytes_and_records_are_bounded(client: httpx.AsyncClient) -> None:
    await append(client, "t", *({"data": "x" * 1000} for _ in range(5)))
    await put(client)
    assert len(await data(client, max_batch_bytes=2100)) == 2
    assert len(await data(client, max_bytes=1)) == 1
    assert len(await data(client, limit=0, max_batch_bytes=0)) == 2


async def test_records_of_the_same_node_are_skipped(client: httpx.AsyncClient) -> None:
    await append(
        client, "t", {"data": 1, "node": "me"}, {"data": 2, "node": "you"}, {"data": 3}, {"data": 4, "node": "me"}
    )
    await put(client)
    assert await data(client, node="me", checkpoint=False) == [2, 3]
    answer = await post(client, "read", node=["me", "you"])
    assert ([record["data"] for record in answer["records"]], answer["cursor_seq"]) == ([3], 4)


async def test_without_checkpoint_only_a_commit_moves_the_cursor(client: httpx.AsyncClient) -> None:
    await fill(client, "t", 4)
    await put(client)
    for _ in range(2):
        answer = await post(client, "read", limit=3, checkpoint=False)
        assert ([record["data"] for record in answer["records"]], answer["cursor_seq"]) == ([1, 2, 3], 0)
        assert (answer["next_from_seq"], answer["unread"]) == (3, 4)
    moved = ConsumerAnswer.model_validate(await post(client, "commit", seq=2))
    assert (moved.cursor_seq, moved.durable_seq, moved.unread, moved.lag) == (2, 2, 2, 2)
    assert await data(client, checkpoint=False) == [3, 4]


async def test_a_repeated_attempt_key_returns_the_lost_answer(client: httpx.AsyncClient) -> None:
    await fill(client, "t", 4)
    await put(client)
    first = await post(client, "read", limit=2, attempt_key="k")
    assert "repeated" not in first
    assert await data(client, limit=1, attempt_key="other") == [3]
    again = await post(client, "read", limit=2, attempt_key="k")
    assert again["repeated"] is True
    assert again["records"] == first["records"]
    assert await data(client) == [4]


async def test_a_gap_is_announced_once(client: httpx.AsyncClient) -> None:
    await client.put("/v0/topics/t", json={"cap_records": 2})
    await put(client)
    await fill(client, "t", 5)
    answer = await post(client, "read", limit=1)
    assert answer["tombstone"]["gap_from"] == 1
    assert (answer["tombstone"]["gap_to"], answer["tombstone"]["reason"]) == (3, "cap")
    rest = await post(client, "read")
    assert (rest["tombstone"], rest["cursor_seq"]) == (None, 5)


async def test_a_seek_moves_the_cursor_in_each_of_its_forms(client: httpx.AsyncClient) -> None:
    await fill(client, "t", 3)
    await put(client)
    times = [record["$ts"] for record in (await read(client, "t"))["records"]]
    for fields, cursor in (
        ({"seq": 2}, 2),
        ({"seq": 0}, 0),
        ({"to": "head"}, 3),
        ({"to": "earliest"}, 0),
        ({"ts": times[-1] + 1000}, 3),
        ({"ts": 0}, 0),
        ({"head": True}, 3),
        ({"earliest": True}, 0),
        ({"seq": "head"}, 3),
        ({"seq": "earliest"}, 0),
    ):
        moved = ConsumerAnswer.model_validate(await post(client, "seek", **fields))
        assert (moved.cursor_seq, moved.durable_seq) == (cursor, cursor), fields
    assert await data(client) == [1, 2, 3]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"limit": -1}, "limit"),
        ({"limit": "1"}, "limit"),
        ({"limit": 1.5}, "limit"),
        ({"limit": 2**64}, "limit"),
        ({"max_batch_bytes": -1}, "max_batch_bytes"),
        ({"max_bytes": True}, "max_bytes"),
        ({"wait_ms": -1}, "wait_ms"),
        ({"wait_ms": 2**64}, "wait_ms"),
        ({"checkpoint": 1}, "checkpoint"),
        ({"checkpoint": "false"}, "checkpoint"),
        ({"node": 1}, "node"),
        ({"node": [1]}, "node"),
        ({"attempt_key": 1}, "attempt_key"),
        ({"attempt_key": ""}, "attempt_key"),
        ({"attempt_key": "x" * 129}, "attempt_key"),
        ({"include_tags": 1}, "include_tags"),
        ({"include_meta": "x"}, "include_meta"),
        ({"include_data": []}, "include_data"),
        ({"skip_corrupt": 0}, "skip_corrupt"),
    ],
)
async def test_a_bad_field_of_a_read_is_named(client: httpx.AsyncClient, fields: dict[str, Any], field: str) -> None:
    await fill(client, "t", 1)
    await put(client)
    error = refused(await client.post(f"{URL}/read", json=fields), 400, "invalid_request")
    assert error["detail"]["field"].startswith(field)
    assert await data(client) == [1]


@pytest.mark.parametrize(
    ("what", "fields", "field"),
    [
        ("commit", {}, "seq"),
        ("commit", {"seq": None}, "seq"),
        ("commit", {"seq": -1}, "seq"),
        ("commit", {"seq": "1"}, "seq"),
        ("commit", {"seq": 1.5}, "seq"),
        ("commit", {"seq": 2**64}, "seq"),
        ("commit", {"seq": 4}, "seq"),
        ("seek", {}, "seq"),
        ("seek", {"seq": -1}, "seq"),
        ("seek", {"seq": "tail"}, "seq"),
        ("seek", {"seq": 4}, "seq"),
        ("seek", {"ts": "now"}, "ts"),
        ("seek", {"ts": -1}, "ts"),
        ("seek", {"to": "tail"}, "to"),
        ("seek", {"to": 1}, "to"),
        ("seek", {"seq": 1, "to": "head"}, "to"),
        ("seek", {"seq": 1, "ts": 1}, "ts"),
    ],
)
async def test_a_bad_position_is_named(
    client: httpx.AsyncClient, what: str, fields: dict[str, Any], field: str
) -> None:
    await fill(client, "t", 3)
    await put(client, start=1)
    refused_field(await client.post(f"{URL}/{what}", json=fields), field)
    assert (await get(client))["cursor_seq"] == 1


async def test_bodies_are_json(client: httpx.AsyncClient) -> None:
    await fill(client, "t", 1)
    await put(client)
    for what in ("read", "commit", "seek"):
        refused(await client.post(f"{URL}/{what}", content=b"{}"), 415, "unsupported_media_type")
        broken = await client.post(f"{URL}/{what}", content=b"{", headers={"content-type": "application/json"})
        refused(broken, 400, "invalid_request")
    refused(await client.get(f"{URL}/read"), 405, "method_not_allowed")


async def test_a_read_of_a_routed_topic_waits_for_records_of_its_source(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.routers.waiting.MAX_WAIT_S", 60.0)
    await client.put("/v0/routers/r", json={"source": "a", "dest": "t"})
    await put(client)
    for number in range(1, 6):
        await append(client, "a", {"data": number})
        answer = await post(client, "read")
        assert [record["data"] for record in answer["records"]] == [number]
        assert answer["performance"]["router_wait_ms"] >= 0


async def test_a_blocked_router_is_named(client: httpx.AsyncClient) -> None:
    await client.put("/v0/topics/t", json={"discard": "reject", "cap_records": 1})
    await client.put("/v0/routers/r", json={"source": "a", "dest": "t"})
    await put(client)
    await append(client, "a", {"data": 1}, {"data": 2})
    while (await client.get("/v0/routers/r")).json().get("blocked") is None:
        await read(client, "t")
    assert (await post(client, "read"))["router_blocked"] == ["r"]


@BOTH
async def test_positions_are_there_after_a_clean_stop(tmp_path: Path, consistency: str) -> None:
    settings = Settings(data_dir=tmp_path / "data")
    for expected in ([1, 2, 3], [4, 5], []):
        async with Engine.open(tmp_path / "data", SMALL) as engine, client_of(Broker(engine, settings)) as client:
            if expected == [1, 2, 3]:
                await fill(client, "t", 5)
                await put(client, consistency=consistency, persist_every=100)
            assert await data(client, limit=3) == expected
