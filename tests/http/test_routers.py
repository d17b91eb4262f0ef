"""Routers over HTTP: making, describing, listing and deleting them, and reads that wait for them."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import msgspec
import pytest

from schemas.routers import RouterAnswer, RouterDeleteAnswer, RouterListAnswer, RouterPutAnswer
from storage import Engine
from tests.http.calls import append, read, refused, refused_field, state

URL = "/v0/routers/r"
PATIENCE_S = 20


@pytest.fixture(autouse=True)
def no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting for routers ends only when they have copied: no time limit decides what these tests see."""
    monkeypatch.setattr("storage.routers.waiting.MAX_WAIT_S", PATIENCE_S)


async def put(client: httpx.AsyncClient, name: str = "r", source: str = "a", dest: str = "b", **fields: Any) -> Any:
    answer = await client.put(f"/v0/routers/{name}", json={"source": source, "dest": dest, **fields})
    assert answer.status_code in (200, 201), answer.text
    return answer.json()


async def test_a_put_makes_the_router_and_echoes_its_definition(client: httpx.AsyncClient) -> None:
    answer = await client.put(URL, json={"source": "a", "dest": "b", "filter": "x", "preserve_tag": None})
    assert answer.status_code == 201
    made = RouterPutAnswer.model_validate(answer.json())
    assert {name: value for name, value in answer.json().items() if name != "performance"} == {
        "router": "r",
        "created": True,
        "source": "a",
        "dest": "b",
        "preserve_node": True,
        "preserve_tag": True,
        "create_dest": True,
        "filter": ["tag", "Eq", "x"],
        "allow_cycle": False,
        "guarantee": "at_least_once",
        "from": "head",
    }
    assert made.performance.server_total_ms > 0
    again = await client.put(URL, json={"source": "a", "dest": "b", "from": "earliest"})
    assert again.status_code == 200
    assert (again.json()["created"], again.json()["filter"], again.json()["from"]) == (False, None, "earliest")
    assert [each["topic"] for each in (await client.get("/v0/topics")).json()["topics"]] == ["a", "b"]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"source": None}, "source"),
        ({"dest": None}, "dest"),
        ({"source": 1}, "source"),
        ({"source": ""}, "source"),
        ({"source": "a b"}, "source"),
        ({"dest": "é"}, "dest"),
        ({"dest": "a"}, "dest"),
        ({"preserve_node": "yes"}, "preserve_node"),
        ({"preserve_tag": 1}, "preserve_tag"),
        ({"create_dest": "true"}, "create_dest"),
        ({"allow_cycle": 0}, "allow_cycle"),
        ({"guarantee": "maybe"}, "guarantee"),
        ({"from": "tail"}, "from"),
        ({"from": 7}, "from"),
        ({"filter": ["tag", "Glob", "x"]}, "filter"),
        ({"filter": ["tag", "Glob", "*x*"]}, "filter"),
        ({"filter": ["node", "Eq", "x"]}, "filter"),
        ({"filter": 5}, "filter"),
        ({"filter": {}}, "filter"),
    ],
)
async def test_a_bad_field_is_named(client: httpx.AsyncClient, fields: dict[str, Any], field: str) -> None:
    refused_field(await client.put(URL, json={"source": "a", "dest": "b", **fields}), field)
    assert (await client.get("/v0/topics")).json()["topics"] == []
    assert (await client.get("/v0/routers")).json()["routers"] == []


@pytest.mark.parametrize("name", ["%3Ea", "a b", "é", "x" * 256, "a*"])
@pytest.mark.parametrize("method", ["PUT", "GET", "DELETE"])
async def test_an_invalid_router_name_is_400(client: httpx.AsyncClient, method: str, name: str) -> None:
    body = {"source": "a", "dest": "b"} if method == "PUT" else None
    refused_field(await client.request(method, f"/v0/routers/{name}", json=body), "router")


async def test_a_name_may_hold_an_arrow(client: httpx.AsyncClient) -> None:
    await put(client, "a->b")
    assert (await client.get("/v0/routers/a-%3Eb")).json()["router"] == "a->b"


async def test_a_put_without_a_body_is_400(client: httpx.AsyncClient) -> None:
    refused_field(await client.put(URL), "source")
    refused(await client.put(URL, content=b"{}"), 415, "unsupported_media_type")


async def test_refused_router_requests_have_their_error_codes(client: httpx.AsyncClient) -> None:
    refused(await client.get(URL), 404, "router_not_found")
    missing = await client.put(URL, json={"source": "a", "dest": "b", "create_dest": False})
    refused(missing, 404, "topic_not_found")
    await put(client)
    other = await client.put(URL, json={"source": "a", "dest": "c"})
    refused(other, 409, "topic_exists_incompatible")
    cycle = await client.put("/v0/routers/back", json={"source": "b", "dest": "a"})
    assert refused(cycle, 409, "router_cycle")["detail"] == {"cycle": ["b", "a", "b"]}
    await put(client, "back", "b", "a", allow_cycle=True)


async def test_the_state_of_a_router_has_cursor_lag_and_total(client: httpx.AsyncClient) -> None:
    await put(client)
    await append(client, "a", {"data": 1}, {"data": 2})
    assert len((await read(client, "b"))["records"]) == 2
    answer = (await client.get(URL)).json()
    found = RouterAnswer.model_validate(answer)
    assert (found.cursor_seq, found.lag, found.forwarded_total) == (2, 0, 2)
    assert "blocked" not in answer


async def test_lists_are_paged_and_filtered(client: httpx.AsyncClient) -> None:
    for name, source, dest in (("b", "x", "y"), ("a", "x", "z"), ("B", "w", "y")):
        await put(client, name, source, dest)

    async def names(**query: Any) -> list[str]:
        answer = await client.get("/v0/routers", params=query)
        return [each.router for each in RouterListAnswer.model_validate(answer.json()).routers]

    assert await names() == ["B", "a", "b"]
    assert await names(source="x") == ["a", "b"]
    assert await names(dest="y", source="w") == ["B"]
    assert await names(prefix="a") == ["a"]
    first = (await client.get("/v0/routers", params={"page_size": 2})).json()
    assert await names(cursor=first["next_cursor"], page_size=2) == ["b"]
    assert "next_cursor" not in (await client.get("/v0/routers", params={"page_size": 3})).json()
    refused_field(await client.get("/v0/routers", params={"cursor": "nonsense"}), "cursor")
    refused_field(await client.get("/v0/routers", params={"page_size": "-1"}), "page_size")
    refused_field(await client.get("/v0/routers", params={"source": "a b"}), "source")
    refused_field(await client.get("/v0/routers", params={"dest": "?"}), "dest")


async def test_a_delete_states_whether_the_router_existed(client: httpx.AsyncClient) -> None:
    await put(client)
    for deleted in (True, False):
        answer = await client.delete(URL)
        assert answer.status_code == 200
        assert RouterDeleteAnswer.model_validate(answer.json()).deleted is deleted


async def test_deleting_a_topic_removes_its_routers_and_names_them(client: httpx.AsyncClient) -> None:
    await put(client, "r2", "a", "b")
    await put(client, "r1", "b", "c")
    await put(client, "r3", "a", "c")
    answer = (await client.delete("/v0/topics/b")).json()
    assert (answer["deleted"], answer["routers_removed"]) == (True, ["r1", "r2"])
    assert (await client.delete("/v0/topics/b")).json()["routers_removed"] == []
    assert [each["router"] for each in (await client.get("/v0/routers")).json()["routers"]] == ["r3"]


async def test_every_kind_of_read_waits_for_records_of_the_source(client: httpx.AsyncClient) -> None:
    await client.put("/v0/topics/jobs", json={"type": "queue"})
    await put(client, "r", "a", "b")
    await put(client, "r2", "b", "jobs")
    for number in range(1, 6):
        await append(client, "a", {"data": number})
        if number == 1:
            found = await read(client, "jobs")
            assert [each["data"] for each in found["records"]] == [1]
            performance = found["performance"]
        elif number == 2:
            records = (await client.get("/v0/topics/jobs/records", params={"from_seq": 1})).json()
            assert [each["data"] for each in records["records"]] == [2]
            performance = records["performance"]
        elif number == 3:
            one = await client.get("/v0/topics/jobs/records/3")
            assert one.json()["data"] == 3
            performance = one.json()["performance"]
        elif number == 4:
            described = await state(client, "jobs")
            assert described["head_seq"] == 4
            performance = described["performance"]
        else:
            claimed = (await client.post("/v0/topics/jobs/claim", json={"node": "n", "max": 9})).json()
            assert [each["data"] for each in claimed["claimed"]] == [1, 2, 3, 4, 5]
            performance = claimed["performance"]
        assert performance["router_wait_ms"] >= 0
    assert "router_wait_ms" not in (await read(client, "a"))["performance"]
    assert "router_wait_ms" not in (await state(client, "a"))["performance"]


async def test_a_blocked_router_is_named(client: httpx.AsyncClient) -> None:
    await client.put("/v0/topics/b", json={"discard": "reject", "cap_records": 1})
    await put(client)
    await append(client, "a", {"data": 1}, {"data": 2})
    async with asyncio.timeout(PATIENCE_S):
        while (await client.get(URL)).json().get("blocked") is None:
            await asyncio.sleep(0.01)
    assert (await client.get(URL)).json()["blocked"] == "topic_full"
    assert (await read(client, "b"))["router_blocked"] == ["r"]
    assert (await state(client, "b"))["router_blocked"] == ["r"]
    await client.put("/v0/topics/b", json={})
    async with asyncio.timeout(PATIENCE_S):
        while len((await read(client, "b"))["records"]) < 2:
            await asyncio.sleep(0.01)
        while "router_blocked" in await read(client, "b"):  # its cursor is written after the copies
            await asyncio.sleep(0.01)
    assert "router_blocked" not in await state(client, "b")


@pytest.mark.one_cell("each cell and gateway has samples of its own")
async def test_metrics_show_routers(client: httpx.AsyncClient) -> None:
    await put(client)
    await append(client, "a", {"data": 1})
    await read(client, "b")
    text = (await client.get("/v0/metrics")).text
    assert 'topics_router_forwarded_total{router="r"} 1' in text
    assert 'topics_router_lag{router="r"} 0' in text
    assert 'topics_router_blocked{router="r"} 0' in text
    assert "topics_routers 1" in text


async def test_a_router_over_the_limit_is_refused_with_max_routers(client: httpx.AsyncClient, engine: Engine) -> None:

    engine.logs.options = msgspec.structs.replace(engine.options, max_routers=1)
    await put(client)
    answer = await client.put("/v0/routers/more", json={"source": "a", "dest": "c"})
    assert refused(answer, 429, "throttled")["detail"] == {"limit": "max_routers", "max": 1}
    assert answer.headers["retry-after"]
    await put(client, preserve_tag=False)


async def test_a_watch_starts_after_pending_router_copies(client: httpx.AsyncClient) -> None:
    await put(client)
    for number in range(1, 6):
        await append(client, "a", {"data": number})
        made = (await client.post("/v0/watch", json={"topics": {"b": {}}})).json()
        assert made["topics"]["b"]["head_seq"] == number
        assert made["performance"]["router_wait_ms"] >= 0
    assert "router_wait_ms" not in (await client.post("/v0/watch", json={"topics": {"a": {}}})).json()["performance"]
