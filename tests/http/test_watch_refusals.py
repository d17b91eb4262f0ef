"""Refused watch requests and their answers."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest

from broker.wiring import Broker
from schemas.watch import WatchAnswer
from tests.http.calls import append, fill, refused, refused_field


async def post(client: httpx.AsyncClient, topics: Any, query: str = "", **fields: Any) -> httpx.Response:
    return await client.post(f"/v0/watch{query}", json={"topics": topics, **fields})


@pytest.mark.one_cell("the id of a session names its cells")
async def test_a_new_watch_session_is_answered_with_its_start_positions(client: httpx.AsyncClient) -> None:
    await client.put("/v0/topics/t", json={"cap_records": 2})
    await fill(client, "t", 5)
    answer = await post(client, {"t": {"from_seq": 1}})
    assert answer.status_code == 200
    found = WatchAnswer.model_validate(answer.json())
    assert re.fullmatch(r"wid_[A-Za-z0-9_-]{22}", found.wid)
    assert found.stream_url == f"/v0/watch/{found.wid}"
    assert found.session_ttl_ms == 300_000
    assert answer.json()["topics"] == {"t": {"from_seq": 1, "head_seq": 5, "earliest_seq": 4}}


@pytest.mark.parametrize(
    ("topics", "field"),
    [
        ({}, "topics"),
        (None, "topics"),
        ([], "topics"),
        ({f"t{number}": {} for number in range(257)}, "topics"),
        ({"-x": {}}, "topics"),
        ({"t": {"from_seq": -1}}, "topics.t.from_seq"),
        ({"t": {"from_seq": "1"}}, "topics.t.from_seq"),
        ({"t": {"partition": -1}}, "topics.t.partition"),
    ],
)
async def test_invalid_topics_of_a_watch_are_refused(client: httpx.AsyncClient, topics: Any, field: str) -> None:
    refused_field(await post(client, topics), field)


@pytest.mark.parametrize(
    "fields",
    [{"limit": -1}, {"heartbeat_ms": 1.5}, {"include_meta": 1}, {"consistency": "weak"}, {"max_batch_bytes": "1"}],
)
async def test_invalid_fields_of_a_watch_are_refused(client: httpx.AsyncClient, fields: dict[str, Any]) -> None:
    await fill(client, "t", 1)
    refused_field(await post(client, {"t": {}}, **fields), next(iter(fields)))


async def test_null_fields_of_a_watch_get_their_defaults(client: httpx.AsyncClient) -> None:
    await fill(client, "t", 1)
    answer = await post(client, {"t": None}, node=None, limit=None, consistency=None)
    assert answer.json()["topics"]["t"]["from_seq"] == 1
    assert (await post(client, {"t": {"partition": 0, "from_seq": None, "tail": False}})).status_code == 200


async def test_an_absent_topic_is_refused_or_omitted_if_lenient(client: httpx.AsyncClient) -> None:
    await fill(client, "t", 1)
    refused(await post(client, {"t": {}, "no": {}}), 404, "topic_not_found")
    answer = await post(client, {"t": {}, "no": {}}, "?lenient=true")
    assert answer.json()["topics"].keys() == {"t"}


async def test_a_strong_watch_of_an_ephemeral_topic_is_refused(client: httpx.AsyncClient) -> None:
    await client.put("/v0/topics/t", json={"durability": "ephemeral"})
    refused_field(await post(client, {"t": {}}, consistency="strong"), "consistency")
    assert (await post(client, {"t": {}})).status_code == 200


async def test_sessions_are_bounded(broker: Broker, client: httpx.AsyncClient) -> None:
    await fill(client, "t", 1)
    broker.live.sessions.max = 1
    await post(client, {"t": {}})
    error = refused(await post(client, {"t": {}}), 429, "throttled")
    assert error["detail"] == {"limit": "max_watch_sessions", "max": 1}


async def test_streams_are_bounded(broker: Broker, client: httpx.AsyncClient) -> None:
    await fill(client, "t", 1)
    url = (await post(client, {"t": {}})).json()["stream_url"]
    broker.streams.max = 1
    with broker.streams.hold():
        error = refused(await client.get(url), 429, "throttled")
        assert error["detail"] == {"limit": "max_sse_connections", "max": 1}
    assert broker.live.sessions.find(url.rpartition("/")[2], None, 0).streams == 0


async def test_an_absent_session_is_not_found(client: httpx.AsyncClient) -> None:
    refused(await client.get("/v0/watch/wid_9vKX3Zb1Qm0Rr2Tt4Yy6Ug"), 404, "not_found")


@pytest.mark.parametrize("accept", ["application/json", "text/html", "text/event-stream;q=0", "*/*;q=0"])
async def test_a_watch_without_a_matching_accept_header_is_not_acceptable(
    client: httpx.AsyncClient, accept: str
) -> None:
    refused(await client.get("/v0/watch/wid_x", headers={"accept": accept}), 406, "not_acceptable")


async def test_a_websocket_needs_an_upgrade(client: httpx.AsyncClient) -> None:
    refused_field(await client.get("/v0/ws"), "Upgrade")


async def test_the_effective_priority_is_shown(client: httpx.AsyncClient) -> None:
    async def shown(topic: str) -> tuple[int, int]:
        state = (await client.get(f"/v0/topics/{topic}")).json()
        listed = (await client.get("/v0/topics", params={"prefix": topic})).json()["topics"][0]
        return state["effective_priority"], listed["effective_priority"]

    await client.put("/v0/topics/set", json={"priority": -7})
    await client.put("/v0/topics/idle")
    await client.put("/v0/topics/never", json={"auto_priority": False})
    for topic in ("set", "busy", "never"):
        await append(client, topic, {"data": 1})
    assert await shown("set") == (-7, -7)
    assert await shown("idle") == (0, 0)
    assert await shown("never") == (0, 0)
    assert all(90 <= priority <= 100 for priority in await shown("busy"))
