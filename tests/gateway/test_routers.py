"""Routers between any topics of a set, through its gateway."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from storage import Engine, Options
from storage.state.routers import Definition
from tests.support.cells_in_process import SMALL, cells, client_of, topic_of

PATIENCE_S = 60


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():
            await asyncio.sleep(0.02)


async def route(client: httpx.AsyncClient, name: str, source: str, dest: str, **more: Any) -> httpx.Response:
    return await client.put(f"/v0/routers/{name}", json={"source": source, "dest": dest, **more})


async def write(client: httpx.AsyncClient, topic: str, *numbers: int) -> None:
    done = await client.post(f"/v0/topics/{topic}", json={"records": [{"data": number} for number in numbers]})
    assert done.status_code in (200, 201), done.text


async def read(client: httpx.AsyncClient, topic: str) -> list[Any]:
    """Its records, once the routers into it have caught up."""
    answer: Any = None
    for _ in range(PATIENCE_S):
        answer = (await client.post(f"/v0/topics/{topic}/diff", json={"from_seq": 0})).json()
        if answer["performance"].get("router_wait_ms", 0) < 900 and not answer.get("router_blocked"):
            return [record["data"] for record in answer["records"]]
    raise AssertionError(f"the routers into {topic} do not catch up: {answer}")


async def listed(client: httpx.AsyncClient) -> list[str]:
    return [each["router"] for each in (await client.get("/v0/routers")).json()["routers"]]


async def test_a_router_copies_from_one_cell_to_another_and_reads_there_find_what_was_written(tmp_path: Path) -> None:
    async with cells(tmp_path) as made, client_of(made) as client:
        source, dest = made.topic(1), made.topic(2)
        for topic in (source, dest):
            await client.put(f"/v0/topics/{topic}", json={})
        done = await route(client, "r", source, dest)
        assert (done.status_code, done.json()["created"]) == (201, True), done.text
        await write(client, source, 1, 2, 3)
        assert await read(client, dest) == [1, 2, 3]
        state = (await client.get("/v0/routers/r")).json()
        assert (state["source"], state["dest"], state["lag"], state["forwarded_total"]) == (source, dest, 0, 3)
        found = (await client.get("/v0/routers")).json()["routers"]
        assert [(each["router"], each["forwarded_total"]) for each in found] == [("r", 3)]
        assert "r" in made.brokers[2].engine.catalog.routes.by_name

        again = await route(client, "r", source, dest, filter=["tag", "Eq", "x"])
        assert (again.status_code, again.json()["created"]) == (200, False)
        changed = await client.patch("/v0/routers/r", json={"filter": None})
        assert changed.json()["filter"] is None
        assert (await route(client, "r", dest, source)).json()["error"]["code"] == "topic_exists_incompatible"
        await write(client, source, 4)
        assert await read(client, dest) == [1, 2, 3, 4]

        assert (await client.delete("/v0/routers/r")).json()["deleted"] is True
        assert (await client.delete("/v0/routers/r")).json()["deleted"] is False
        assert (await client.get("/v0/routers/r")).status_code == 404
        assert await listed(client) == []
        await write(client, source, 5)
        assert await read(client, dest) == [1, 2, 3, 4]


async def test_one_topic_fans_out_into_all_cells(tmp_path: Path) -> None:
    async with cells(tmp_path) as made, client_of(made) as client:
        source = made.topic(1)
        await client.put(f"/v0/topics/{source}", json={})
        dests = [made.topic(cell, 1) for cell in range(3)]
        for number, dest in enumerate(dests):
            await client.put(f"/v0/topics/{dest}", json={})
            assert (await route(client, f"r{number}", source, dest)).status_code == 201
        await write(client, source, 1, 2)
        for dest in dests:
            assert await read(client, dest) == [1, 2]
        assert await listed(client) == ["r0", "r1", "r2"]


async def test_a_chain_through_all_cells_is_read_at_its_end(tmp_path: Path) -> None:
    async with cells(tmp_path) as made, client_of(made) as client:
        topics = [made.topic(cell) for cell in range(3)] + [made.topic(0, 1)]
        for topic in topics:
            await client.put(f"/v0/topics/{topic}", json={})
        for number in range(3):
            assert (await route(client, f"r{number}", topics[number], topics[number + 1])).status_code == 201
        await write(client, topics[0], 1, 2)
        assert await read(client, topics[3]) == [1, 2]


async def test_a_circle_over_cells_is_refused_and_a_record_in_an_allowed_one_is_copied_seven_times(
    tmp_path: Path,
) -> None:
    async with cells(tmp_path) as made, client_of(made) as client:
        topics = [made.topic(cell) for cell in range(3)]
        for topic in topics:
            await client.put(f"/v0/topics/{topic}", json={})
        assert (await route(client, "r0", topics[1], topics[2])).status_code == 201
        assert (await route(client, "r1", topics[2], topics[0])).status_code == 201
        refused = await route(client, "r2", topics[0], topics[1])
        assert refused.json()["error"]["code"] == "router_cycle"
        assert refused.json()["error"]["detail"]["cycle"] == [topics[0], topics[1], topics[2], topics[0]]
        assert await listed(client) == ["r0", "r1"]
        assert (await route(client, "r2", topics[0], topics[1], allow_cycle=True)).status_code == 201
        await write(client, topics[1], 1)

        async def ended() -> bool:
            return sum([len(await read(client, topic)) for topic in topics]) == 8

        await until(ended)


async def test_a_new_dest_is_made_beside_its_source_and_a_refused_router_leaves_no_topic(tmp_path: Path) -> None:
    async with cells(tmp_path) as made, client_of(made) as client:
        source, dest = made.topic(1), made.topic(2)
        await client.put(f"/v0/topics/{source}", json={})
        missing = await route(client, "r", source, dest, create_dest=False)
        assert missing.json()["error"]["code"] == "topic_not_found"
        assert (await route(client, "r", source, dest)).status_code == 201
        assert dest in made.brokers[1].engine.catalog.topics
        assert all(made.brokers[cell].engine.placing.owner(dest) == 1 for cell in (1, 2))
        await write(client, source, 1)
        await write(client, dest, 2)
        assert sorted(await read(client, dest)) == [1, 2]
        assert (await client.delete(f"/v0/topics/{dest}")).json()["routers_removed"] == ["r"]
        assert (await client.get("/v0/routers/r")).status_code == 404
        await client.put(f"/v0/topics/{dest}", json={})
        assert dest in made.brokers[1].engine.catalog.topics

        many, other = made.topic(2, 1), made.topic(1, 1)
        await client.put(f"/v0/topics/{many}", json={"partitions": 2})
        assert (await route(client, "s", other, many)).status_code == 409
        assert (await client.get(f"/v0/topics/{other}")).status_code == 404


async def test_a_router_ends_with_its_source_and_one_out_of_a_new_source_begins_anew(tmp_path: Path) -> None:
    async with cells(tmp_path) as made, client_of(made) as client:
        source, dest = made.topic(1), made.topic(2)
        for topic in (source, dest):
            await client.put(f"/v0/topics/{topic}", json={})
        await route(client, "r", source, dest)
        await write(client, source, 1)
        assert await read(client, dest) == [1]
        gone = await client.delete(f"/v0/topics/{source}")
        assert gone.json()["routers_removed"] == ["r"]
        assert await listed(client) == []
        await write(client, source, 2)
        again = await route(client, "r", source, dest)
        assert (again.status_code, again.json()["created"]) == (201, True)
        await write(client, source, 3)
        assert await read(client, dest) == [1, 3]
        # The circle that the router closed is none any more when its dest is gone.
        await client.delete(f"/v0/topics/{dest}")
        assert (await route(client, "back", dest, source)).status_code == 201


async def test_the_limit_of_routers_is_that_of_the_set(tmp_path: Path) -> None:
    async with cells(tmp_path, max_routers=2) as made, client_of(made) as client:
        topics = [made.topic(cell) for cell in range(3)]
        assert (await route(client, "r0", topics[0], topics[1])).status_code == 201
        assert (await route(client, "r1", topics[1], topics[2])).status_code == 201
        refused = await route(client, "r2", topics[0], topics[2])
        assert refused.json()["error"]["detail"] == {"limit": "max_routers", "max": 2}
        await client.delete("/v0/routers/r0")
        assert (await route(client, "r2", topics[0], topics[2])).status_code == 201


async def test_routers_of_a_directory_that_became_cell_0_are_in_the_graph(tmp_path: Path) -> None:
    first, second, third = topic_of(0), topic_of(0, 1), topic_of(1)
    (tmp_path / "data").mkdir()
    async with Engine.open(str(tmp_path / "data" / "cell-00"), Options(**SMALL)) as engine:
        await engine.routers.put("old", Definition(source=first, dest=second))
    async with cells(tmp_path) as made, client_of(made) as client:
        assert (await route(client, "r", second, third)).status_code == 201
        assert (await route(client, "s", third, first)).json()["error"]["code"] == "router_cycle"
        await write(client, first, 1)
        assert await read(client, third) == [1]
        assert (await client.delete("/v0/routers/old")).json()["deleted"] is True
        assert (await route(client, "s", third, first)).status_code == 201


@pytest.mark.parametrize("method", ["PUT", "PATCH", "GET", "DELETE"])
async def test_other_cells_name_the_one_that_changes_routers(tmp_path: Path, method: str) -> None:
    async with cells(tmp_path) as made:
        transport = httpx.AsyncHTTPTransport(uds=str(made.sockets[1]))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            body = {"source": "a", "dest": "b"} if method in ("PUT", "PATCH") else None
            answer = await client.request(method, "/v0/routers/r", json=body)
            assert answer.status_code == 421
            assert answer.json()["error"]["detail"]["cell"] == 0


async def test_a_topic_that_a_router_of_another_cell_copies_from_gets_no_second_partition(tmp_path: Path) -> None:
    async with cells(tmp_path) as made, client_of(made) as client:
        source, dest = made.topic(1), made.topic(2)
        for topic in (source, dest):
            await client.put(f"/v0/topics/{topic}", json={})
        assert (await route(client, "r", source, dest)).status_code == 201
        for topic in (source, dest):
            refused = await client.put(f"/v0/topics/{topic}", json={"partitions": 3})
            assert refused.status_code == 409, refused.text
            assert refused.json()["error"]["detail"]["field"] == "partitions"
            assert (await client.get(f"/v0/topics/{topic}")).json()["config"]["partitions"] == 1
        assert (await client.delete("/v0/routers/r")).status_code == 200
        for topic in (source, dest):
            assert (await client.put(f"/v0/topics/{topic}", json={"partitions": 3})).status_code == 200
