"""Partitions on a real port: the fast path, watching, and the client."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from tests.http.conftest import Serve
from tests.http.hot_server import HotServer
from tests.http.test_watch import PATIENCE_S
from tests.http.test_websocket import socket
from tests.http.watch_calls import session, stream
from topics_client import AsyncClient, InvalidRequest


@pytest.fixture
async def server(serve: Serve) -> AsyncIterator[HotServer]:
    async with serve() as server:
        yield server


@pytest.fixture
async def http(server: HotServer) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=server.server.url, timeout=PATIENCE_S) as client:
        assert (await client.put("/v0/topics/t", json={"partitions": 3})).status_code == 201
        yield client


async def post(http: httpx.AsyncClient, partition: int | None = None, count: int = 1) -> int:
    query = "" if partition is None else f"?partition={partition}"
    answer = await http.post(f"/v0/topics/t{query}", json={"records": [{"data": 1}] * count})
    assert answer.status_code == 200, answer.text
    return answer.json()["partition"]


async def test_plain_writes_rotate_over_partitions(http: httpx.AsyncClient) -> None:
    assert [await post(http) for _ in range(4)] == [0, 1, 2, 0]


async def test_a_watch_of_a_partition_gets_only_its_records(http: httpx.AsyncClient) -> None:
    await post(http, 1, 2)
    path = await session(http, topics={"t": {"partition": 1, "from_seq": 0}})
    async with stream(http, path) as watch:
        [backlog, caught_up] = await watch.caught_up()
        assert (backlog.seqs, backlog.data["topic"], backlog.data["partition"]) == ([1, 2], "t", 1)
        assert (caught_up.data["topic"], caught_up.data["partition"]) == ("t", 1)
        assert list(caught_up.cursor) == ["t#1"]
        await post(http, 0)
        await post(http, 1)
        live = await watch.next()
        assert (live.seqs, live.data["partition"], live.cursor["t#1"]["seq"]) == ([3], 1, 3)
    again = await session(http, topics={"t": {"partition": 1, "from_seq": 0}})
    async with stream(http, again, backlog.id) as watch:
        assert next(event.data["head_seq"] for event in await watch.caught_up()) == 3


async def test_a_last_event_id_of_a_partition_does_not_apply_to_another_partition(http: httpx.AsyncClient) -> None:
    await post(http, 0, 2)
    await post(http, 1, 2)
    path = await session(http, topics={"t": {"partition": 1, "from_seq": 0}})
    async with stream(http, path) as watch:
        last = (await watch.caught_up())[-1].id
    zero = await session(http, topics={"t": {"from_seq": 0}})
    async with stream(http, zero, last) as watch:
        first = await watch.next()
        assert (first.seqs, "partition" in first.data, list(first.cursor)) == ([1, 2], False, ["t"])


async def test_a_watch_of_a_partition_reports_the_deletion_of_its_topic(http: httpx.AsyncClient) -> None:
    path = await session(http, topics={"t": {"partition": 2, "from_seq": 0}})
    async with stream(http, path) as watch:
        await watch.caught_up()
        await http.delete("/v0/topics/t")
        gone = await watch.next()
        assert (gone.name, gone.data["topic"], gone.data["partition"]) == ("topic-deleted", "t", 2)


async def test_an_absent_partition_cannot_be_watched(http: httpx.AsyncClient) -> None:
    answer = await http.post("/v0/watch", json={"topics": {"t": {"partition": 3}}})
    assert (answer.status_code, answer.json()["error"]["detail"]) == (400, {"field": "topics.t.partition"})


async def test_one_stream_has_several_partitions_of_a_topic(http: httpx.AsyncClient) -> None:
    await post(http, 0)
    await post(http, 2, 2)
    answer = await http.post("/v0/watch", json={"topics": {"t": {"partitions": [2, 0, 2], "from_seq": 0}}})
    assert answer.status_code == 200, answer.text
    assert answer.json()["topics"]["t"] == {
        "from_seq": 0,
        "head_seq": 2,
        "earliest_seq": 1,
        "partitions": [
            {"partition": 2, "from_seq": 0, "head_seq": 2, "earliest_seq": 1},
            {"partition": 0, "from_seq": 0, "head_seq": 1, "earliest_seq": 1},
        ],
    }
    async with stream(http, answer.json()["stream_url"]) as watch:
        backlog = [*await watch.caught_up(), *await watch.caught_up()]
        found = {each.data.get("partition", 0): each.seqs for each in backlog if each.name == "record"}
        assert found == {0: [1], 2: [1, 2]}
        assert {*backlog[-1].cursor} == {"t", "t#2"}
        await post(http, 1)
        await post(http, 0)
        live = await watch.next()
        assert (live.data.get("partition", 0), live.seqs) == (0, [2])
    # With the id of an event, a stream on another connection continues each partition where it was.
    again = await session(http, topics={"t": {"partitions": [0, 1, 2], "from_seq": 0}})
    async with stream(http, again, live.id) as watch:
        first = await watch.records(1)
        assert [record["$seq"] for record in first] == [1]
        await http.delete("/v0/topics/t")
        gone: set[int] = set()
        while len(gone) < 3:
            event = await watch.next()
            if event.name == "topic-deleted":
                gone.add(event.data.get("partition", 0))
        assert gone == {0, 1, 2}


@pytest.mark.parametrize(
    ("start", "field"),
    [
        ({"partitions": []}, "topics.t.partitions"),
        ({"partitions": [-1]}, "topics.t.partitions[0]"),
        ({"partitions": [0, 3]}, "topics.t.partitions"),
        ({"partitions": [1 << 40]}, "topics.t.partitions"),
        ({"partitions": [*range(257)]}, "topics"),
    ],
)
async def test_partitions_that_make_no_sense(http: httpx.AsyncClient, start: dict[str, object], field: str) -> None:
    answer = await http.post("/v0/watch", json={"topics": {"t": start}})
    assert (answer.status_code, answer.json()["error"]["detail"]["field"]) == (400, field)


async def test_a_socket_has_several_partitions_of_a_topic(server: HotServer, http: httpx.AsyncClient) -> None:
    await post(http, 1)
    await post(http, 2)
    async with socket(server) as ws:
        told = await ws.ask("subscribe", topic="t", partitions=[1, 2], from_seq=0)
        assert [each["partition"] for each in told["topics"]["t"]["partitions"]] == [1, 2]
        found = [await ws.next() for _ in range(4)]
        assert {message["partition"] for message in found if message["type"] == "record"} == {1, 2}
        ended = await ws.ask("unsubscribe", topic="t", partitions=[1, 2, 0])
        assert ended["topics"] == ["t"]
        await post(http, 1)
        await post(http, 2)
        assert (await ws.ask("ping"))["type"] == "pong"


async def test_websocket_messages_name_the_partition(server: HotServer, http: httpx.AsyncClient) -> None:
    async with socket(server) as ws:
        told = await ws.ask("subscribe", topic="t", partition=1, from_seq=0)
        assert (told["type"], list(told["topics"])) == ("subscribed", ["t"])
        assert (await ws.next())["partition"] == 1  # caught up
        await ws.say("publish", topic="t", partition=1, records=[{"data": 5}])
        found = {message["type"]: message for message in (await ws.next(), await ws.next())}
        assert (found["ack"]["topic"], found["ack"]["partition"], found["ack"]["first_seq"]) == ("t", 1, 1)
        assert (found["record"]["topic"], found["record"]["partition"]) == ("t", 1)
        ended = await ws.ask("unsubscribe", topic="t", partition=1)
        assert (ended["type"], ended["topics"]) == ("unsubscribed", ["t"])


async def test_the_client_reaches_every_partition(server: HotServer, http: httpx.AsyncClient) -> None:
    async with AsyncClient(server.server.url) as client:
        done = await client.append("t", [1, 2], partition=2)
        assert (done.partition, done.first_seq) == (2, 1)
        assert [record.data for record in (await client.read("t", partition=2)).records] == [1, 2]
        assert (await client.get_record("t", 2, partition=2)).data == 2
        assert (await client.read("t")).records == []
        state = await client.state("t")
        assert ([each.count for each in state.partitions], state.of(2).head_seq, state.of(None).head_seq) == (
            [0, 0, 2],
            2,
            0,
        )
        with pytest.raises(InvalidRequest):
            state.of(3)
        await client.consumers.put("t", "c", partition=2)
        read = await client.consumers.read("t", "c", limit=1, partition=2)
        assert [record.data for record in read.records] == [1]
        assert (await client.consumers.commit("t", "c", 2, partition=2)).cursor_seq == 2
        assert (await client.delete_records("t", before_seq=2, partition=2)).deleted == 1
        tail = client.tail("t", 0, partition=2)
        assert (await anext(tail)).seq == 2
        await tail.aclose()


async def test_partition_is_one_more_of_the_partitions_of_a_watch(http: httpx.AsyncClient) -> None:
    await http.put("/v0/topics/t", json={"partitions": 3})
    answer = await http.post("/v0/watch", json={"topics": {"t": {"partition": 2, "partitions": [0, 2]}}})
    assert [each["partition"] for each in answer.json()["topics"]["t"]["partitions"]] == [2, 0]
