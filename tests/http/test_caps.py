"""Limits are exact under many simultaneous requests and released when they are not needed, and each has a metric."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import msgspec
import pytest
from websockets import InvalidStatus
from websockets.asyncio.client import connect

from tests.http.auth_calls import bearer
from tests.http.calls import fill, refused
from tests.http.hot_server import ASGI, HotServer, Wire, post, records
from tests.http.queue_calls import queue
from tests.http.test_work_stream import PATIENCE_S
from tests.http.watch_calls import session, soon
from tests.unit.storage.machine import options

ONE = bearer("one")
CROWD = 100


def client(server: HotServer, key: str | None = "one") -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=None)
    headers = {} if key is None else bearer(key)
    return httpx.AsyncClient(base_url=server.server.url, timeout=PATIENCE_S, headers=headers, limits=limits)


def limited(server: HotServer) -> dict[str, float]:
    """Number of refusals by each limit."""
    return {limit: count for (limit,), count in server.counted("topics_limit_refused").items()}


async def shown(server: HotServer, name: str, key: str | None = "one") -> float:
    """A gauge in /v0/metrics."""
    async with client(server, key) as http:
        lines = (await http.get("/v0/metrics")).text.splitlines()
    [value] = [float(line.rpartition(" ")[2]) for line in lines if line.startswith((f"{name} ", f"{name}{{"))]
    return value


def unfinished(topic: str, headers: dict[str, str]) -> tuple[bytes, bytes]:
    """A write without the end of its body, and that end."""
    whole = post(topic, records(1), headers)
    return whole[:-1], whole[-1:]


# -- requests under way ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [{}, ASGI], ids=["hot", "asgi"])
async def test_concurrent_requests_of_a_key_are_limited_exactly(kind: dict[str, str]) -> None:
    async with HotServer(api_keys="one,two", max_inflight_per_key=CROWD) as server:
        await server.topic("t")
        head, rest = unfinished("t", ONE | kind)
        wires = await asyncio.gather(*(server.connect() for _ in range(2 * CROWD)))
        for wire in wires:
            wire.send(head)
        # Requests beyond the limit are answered. The others wait for the rest of their bodies.
        await soon(lambda: limited(server).get("max_inflight_per_key") == CROWD)
        [one, two] = server.broker.gate.callers() if server.broker.gate else []
        assert (one.inflight, two.inflight) == (CROWD, 0)
        # Other requests have their own limits, and requests that end work are let through.
        assert (await server.ask(post("t", records(1), bearer("two") | kind))).status == 200
        for call in ("ack", "nack", "extend"):
            answer = await server.ask(post(f"t/{call}", {"node": "n", "seqs": [1], "lease_ms": 1}, ONE | kind))
            assert answer.code == "not_a_queue"
        reply = await server.ask(post("t", records(1), ONE | kind))
        assert (reply.status, reply.code) == (429, "throttled")
        assert reply.body["error"]["detail"] == {"limit": "max_inflight_per_key", "max": CROWD}
        assert reply.header("retry-after") == ["1"]
        for wire in wires:
            wire.send(rest)
        statuses = [(await wire.answer()).status for wire in wires]
        assert (statuses.count(200), statuses.count(429)) == (CROWD, CROWD)
        assert one.inflight == 0
        assert (await server.ask(post("t", records(1), ONE | kind))).status == 200


@pytest.mark.parametrize("kind", [{}, ASGI], ids=["hot", "asgi"])
async def test_every_end_of_a_request_frees_its_inflight_slot(kind: dict[str, str]) -> None:
    async with HotServer(api_keys="one", max_inflight_per_key=1) as server:
        [one] = server.broker.gate.callers() if server.broker.gate else []
        head, _ = unfinished("t", ONE | kind)
        gone = await server.connect()
        gone.send(head)
        await soon(lambda: one.inflight == 1)
        await gone.close()
        await soon(lambda: one.inflight == 0)
        # A first write to a topic goes to ASGI. So do refusals of every kind, and answers that are streams.
        assert (await server.ask(post("t", records(1), ONE | kind))).status == 201
        for body, status in ((b"{", 400), (b'{"records":[]}', 400), (b'{"records":[{"data":1}],"create":false}', 404)):
            assert (await server.ask(post("absent", body, ONE | kind))).status == status
            assert one.inflight == 0
        async with client(server) as http:
            for path in ("/v0/topics", "/v0/topics/t", "/v0/topics/t/segments", "/v0/topics/absent", "/v0/metrics"):
                assert (await http.get(path)).status_code in (200, 404)
                assert one.inflight == 0
            assert (await http.get("/v0/watch/wid_x", headers={"accept": "text/html"})).status_code == 406
        assert one.inflight == 0


async def test_a_waiting_request_does_not_count_as_in_flight() -> None:
    async with HotServer(api_keys="one", max_inflight_per_key=2) as server, client(server) as http:
        await fill(http, "log", 1)
        await queue(http)
        async with asyncio.TaskGroup() as group:
            reads = [
                group.create_task(http.post("/v0/topics/log/diff", json={"from_seq": 1, "wait_ms": 30_000}))
                for _ in range(2)
            ]
            await soon(lambda: server.broker.parking.parked == 2)
            claims = [
                group.create_task(http.post("/v0/topics/q/claim", json={"node": "n", "wait_ms": 30_000}))
                for _ in range(2)
            ]
            await soon(lambda: server.broker.parking.parked == 4)
            [one] = server.broker.gate.callers() if server.broker.gate else []
            assert one.inflight == 0
            assert await shown(server, "topics_parked_requests") == 4
            assert await shown(server, "topics_key_inflight_requests") == 1  # the request that asks
            await fill(http, "log", 1)
            await fill(http, "q", 2)
        assert all(task.result().status_code == 200 for task in (*reads, *claims))
        assert one.inflight == 0


async def test_the_number_of_waiting_requests_is_limited() -> None:
    async with HotServer(max_parked=CROWD) as server, client(server, None) as http:
        await fill(http, "t", 1)
        ask = {"from_seq": 1, "wait_ms": 30_000}
        tasks = [asyncio.create_task(http.post("/v0/topics/t/diff", json=ask)) for _ in range(2 * CROWD)]
        await soon(lambda: limited(server) == {"max_parked": CROWD})
        assert server.broker.parking.parked == CROWD
        await fill(http, "t", 1)
        codes = [(await task).status_code for task in tasks]
        assert (codes.count(200), codes.count(429)) == (CROWD, CROWD)
        assert server.broker.parking.parked == 0


async def test_requests_without_keys_have_no_inflight_limit() -> None:
    async with HotServer(max_inflight_per_key=1, max_sse_connections_per_key=1) as server:
        head, rest = unfinished("t", {})
        wires = [await server.connect() for _ in range(5)]
        for wire in wires:
            wire.send(head)
        for wire in wires:
            wire.send(rest)
        assert {(await wire.answer()).status for wire in wires} <= {200, 201}


# -- event streams ---------------------------------------------------------------------------------------------------


async def opened(server: HotServer, path: str, key: str = "one") -> Wire:
    wire = await server.connect()
    wire.send(f"GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n\r\n".encode())
    return wire


@pytest.mark.parametrize(
    ("setting", "limit"),
    [("max_sse_connections_per_key", "max_sse_connections_per_key"), ("max_sse_connections", "max_sse_connections")],
)
async def test_the_number_of_streams_is_limited(setting: str, limit: str) -> None:
    given: dict[str, Any] = {"api_keys": "one,two", setting: CROWD, "max_inflight_per_key": 3}
    async with HotServer(**given) as server, client(server) as http:
        await fill(http, "t", 1)
        await queue(http)
        path = await session(http, "t")
        wires = [await opened(server, path) for _ in range(CROWD - 2)]
        await soon(lambda: server.broker.streams.parked == CROWD - 2)
        async with connect(f"ws://127.0.0.1:{server.server.port}/v0/ws", additional_headers=ONE):
            wires.append(await opened(server, "/v0/topics/q/work?node=n"))
            await soon(lambda: server.broker.streams.parked == CROWD)
            refusals = [await opened(server, path) for _ in range(3)]
            for wire in refusals:
                answer = await wire.answer()
                assert answer.status == 429
                assert answer.body["error"]["detail"] == {"limit": limit, "max": CROWD}
            refused(await http.get("/v0/topics/q/work?node=n"), 429, "throttled")
            with pytest.raises(InvalidStatus) as refusal:
                async with connect(f"ws://127.0.0.1:{server.server.port}/v0/ws", additional_headers=ONE):
                    pass
            assert refusal.value.response.status_code == 429
            assert limited(server) == {limit: 5}
            other = await opened(server, "/v0/topics/q/work?node=n", "two")
            if limit == "max_sse_connections":
                assert (await other.answer()).status == 429
            else:
                await soon(lambda: server.broker.streams.parked == CROWD + 1)
                await other.close()
                await soon(lambda: server.broker.streams.parked == CROWD)
            assert server.broker.streams.parked == CROWD
        for wire in wires[:5]:
            await wire.close()
        await soon(lambda: server.broker.streams.parked == CROWD - 6)
        [one, _] = server.broker.gate.callers() if server.broker.gate else []
        assert (one.streams.parked, one.inflight) == (CROWD - 6, 0)


async def test_the_number_of_sessions_is_limited() -> None:
    async with HotServer(max_watch_sessions=CROWD) as server, client(server, None) as http:
        await fill(http, "t", 1)
        made = await asyncio.gather(*(http.post("/v0/watch", json={"topics": {"t": {}}}) for _ in range(CROWD + 20)))
        codes = [answer.status_code for answer in made]
        assert (codes.count(200), codes.count(429)) == (CROWD, 20)
        assert limited(server) == {"max_watch_sessions": 20}
        assert await shown(server, "topics_watch_sessions", None) == CROWD


# -- what is stored --------------------------------------------------------------------------------------------------


async def test_the_topic_limit_holds_for_every_way_of_creation() -> None:
    limits = msgspec.structs.replace(options(), max_topics=CROWD)
    async with HotServer(limits=limits) as server, client(server, None) as http:
        calls: list[Any] = []
        for number in range(60):
            calls.append(http.put(f"/v0/topics/put-{number}", json={}))
            calls.append(http.post(f"/v0/topics/write-{number}", json=records(1)))
            calls.append(http.put(f"/v0/routers/r-{number}", json={"source": f"s-{number}", "dest": f"d-{number}"}))
        answers: list[httpx.Response] = await asyncio.gather(*calls)
        assert {answer.status_code for answer in answers} == {201, 429}
        assert limited(server) == {"max_topics": sum(answer.status_code == 429 for answer in answers)}
        # A router that is refused may remove its topics again, so that there is room. There is never one too many.
        there = await shown(server, "topics_topics", None)
        assert CROWD - 2 <= there <= CROWD
        for number in range(10):
            await http.put(f"/v0/topics/fill-{number}", json={})
        assert await shown(server, "topics_topics", None) == CROWD
        refused(await http.put("/v0/topics/more", json={}), 429, "throttled")
        [first, *_] = (await http.get("/v0/topics")).json()["topics"]
        assert (await http.put(f"/v0/topics/{first['topic']}", json={"ttl_ms": 5})).status_code == 200
        assert (await http.delete(f"/v0/topics/{first['topic']}")).status_code == 200
        assert (await http.put("/v0/topics/more", json={})).status_code == 201


async def test_the_number_of_routers_is_limited() -> None:
    limits = msgspec.structs.replace(options(), max_routers=20)
    async with HotServer(limits=limits) as server, client(server, None) as http:
        body = {"source": "s", "dest": "d"}
        puts = (http.put(f"/v0/routers/r-{number}", json=body) for number in range(CROWD))
        codes = [answer.status_code for answer in await asyncio.gather(*puts)]
        assert (codes.count(201), codes.count(429)) == (20, CROWD - 20)
        assert limited(server) == {"max_routers": CROWD - 20}
        assert await shown(server, "topics_routers", None) == 20
        [first, *_] = (await http.get("/v0/routers")).json()["routers"]
        assert (await http.put(f"/v0/routers/{first['router']}", json=body)).status_code == 200


@pytest.mark.parametrize("kind", [{}, ASGI], ids=["hot", "asgi"])
async def test_no_more_bytes_are_stored_than_may(kind: dict[str, str]) -> None:
    size = 1000
    limits = msgspec.structs.replace(options(), max_total_bytes=50 * size + 1)
    async with HotServer(limits=limits) as server, client(server, None) as http:
        for topic in ("a", "b"):
            await server.topic(topic)
        data = "x" * (size - 2)
        wires = [await server.connect() for _ in range(CROWD)]
        for number, wire in enumerate(wires):
            wire.send(post("ab"[number % 2], records(data), kind))
        answers = [await wire.answer() for wire in wires]
        codes = [answer.status for answer in answers]
        assert (codes.count(200), codes.count(429)) == (50, 50)
        assert {answer.body["error"]["detail"]["limit"] for answer in answers if answer.status == 429} == {
            "max_total_bytes"
        }
        assert limited(server) == {"max_total_bytes": 50}
        assert await shown(server, "topics_live_bytes", None) == 50 * size
        assert (await http.post("/v0/topics/a/delete", json={"before_seq": 3})).status_code == 200
        assert (await server.ask(post("b", records(data), kind))).status == 200
