"""The stream of jobs, over real connections."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from broker.api import events
from broker.api.routes import work
from tests.http.calls import append, refused
from tests.http.conftest import Serve
from tests.http.hot_server import HotServer
from tests.http.queue_calls import call, figures, queue
from tests.http.test_long_poll import until

PATIENCE_S = 20


@pytest.fixture
async def server(serve: Serve) -> AsyncIterator[HotServer]:
    async with serve() as server:
        yield server


@pytest.fixture
async def http(server: HotServer) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=server.server.url, timeout=PATIENCE_S) as client:
        yield client


class Stream:
    """The frames of an answer, one by one."""

    def __init__(self, answer: httpx.Response) -> None:
        self.answer = answer
        self._frames = self._split()

    async def _split(self) -> AsyncIterator[str]:
        rest = ""
        async for text in self.answer.aiter_text():
            rest += text
            while "\n\n" in rest:
                frame, _, rest = rest.partition("\n\n")
                yield frame
        assert rest == ""

    async def frame(self) -> str:
        """The next frame, complete. Raises StopAsyncIteration at the end."""
        async with asyncio.timeout(PATIENCE_S):
            return await anext(self._frames)

    async def event(self) -> tuple[str, Any, str | None]:
        """The next event of the stream: its name, data and id."""
        lines: list[str] = []
        while not any(line.startswith("event: ") for line in lines):
            lines = (await self.frame()).split("\n")
        fields = dict(line.split(": ", 1) for line in lines)
        assert list(fields) in (["event", "data"], ["event", "id", "data"])
        return fields["event"], json.loads(fields["data"]), fields.get("id")

    async def job(self) -> dict[str, Any]:
        name, job, seq = await self.event()
        assert (name, seq) == ("job", str(job["$seq"]))
        return job


@asynccontextmanager
async def working(http: httpx.AsyncClient, query: str = "node=w", **headers: str) -> AsyncIterator[Stream]:
    async with http.stream("GET", f"/v0/topics/q/work?{query}", headers=headers) as answer:
        assert answer.status_code == 200
        yield Stream(answer)


async def test_a_work_stream_has_headers_against_caching_and_buffering(http: httpx.AsyncClient) -> None:
    await queue(http)
    async with working(http, **{"accept-encoding": "gzip"}) as stream:
        headers = stream.answer.headers
        assert headers["content-type"] == "text/event-stream"
        assert headers["cache-control"] == "no-store"
        assert headers["x-accel-buffering"] == "no"
        assert "content-encoding" not in headers
        assert await stream.frame() == "retry: 2000"


async def test_an_appended_job_is_pushed(http: httpx.AsyncClient) -> None:
    await queue(http)
    async with working(http) as stream:
        await append(http, "q", {"data": {"n": 1}, "tag": "t", "node": "p", "meta": [1]})
        job = await stream.job()
        assert {name: job[name] for name in ("topic", "$seq", "$node", "$tag", "deliveries", "data", "meta")} == {
            "topic": "q",
            "$seq": 1,
            "$node": "p",
            "$tag": "t",
            "deliveries": 1,
            "data": {"n": 1},
            "meta": [1],
        }
        done = await call(http, "ack", node="w", seqs=[1], lease_ids=[job["lease_id"]])
        assert done["acked"] == 1


async def test_existing_jobs_are_pushed_at_once(http: httpx.AsyncClient) -> None:
    await queue(http, 1, 2, 3)
    async with working(http, "node=w&max=3") as stream:
        assert [(await stream.job())["data"] for _ in range(3)] == [1, 2, 3]


async def test_line_breaks_in_a_job_become_spaces(http: httpx.AsyncClient) -> None:
    await queue(http)
    body = b'{"records":[{"data":{\r\n"a":\n1 },"meta":[\r1]}]}'
    await http.post("/v0/topics/q", content=body, headers={"content-type": "application/json"})
    async with working(http) as stream:
        await stream.frame()
        frame = await stream.frame()
        assert frame.endswith('"data":{  "a": 1 },"meta":[ 1]}')
        assert "\r" not in frame
        assert len(frame.split("\n")) == 3


@pytest.mark.parametrize(("query", "most"), [("", 1), ("&max=0", 1), ("&max=2", 2)])
async def test_a_stream_holds_at_most_max_jobs(http: httpx.AsyncClient, query: str, most: int) -> None:
    await queue(http, 1, 2, 3)
    async with working(http, f"node=w{query}") as stream:
        for _ in range(most):
            await stream.job()
        assert (await figures(http))["in_flight"] == most
        await call(http, "ack", node="w", seqs=[1])
        assert (await stream.job())["$seq"] == most + 1
        assert (await figures(http))["in_flight"] == most


@pytest.mark.parametrize("calls", ["nack", "ack"])
async def test_each_settled_job_makes_room(http: httpx.AsyncClient, calls: str) -> None:
    await queue(http, *range(20))
    async with working(http) as stream:
        seen: list[int] = []
        while len(seen) < 20:
            job = await stream.job()
            seen.append(job["$seq"])
            more = {"delay_ms": 60_000} if calls == "nack" else {}
            await call(http, calls, node="w", seqs=[job["$seq"]], **more)
        assert seen == list(range(1, 21))


@pytest.mark.one_cell("looks into the engine")
async def test_a_lease_has_the_requested_duration(server: HotServer, http: httpx.AsyncClient) -> None:
    await queue(http, 1)
    begin = server.engine.now_ms()
    async with working(http, "node=w&lease_ms=77000") as stream:
        assert begin + 77_000 <= (await stream.job())["deadline"] <= server.engine.now_ms() + 77_000


@pytest.mark.one_cell("looks into the engine")
async def test_jobs_of_a_disconnected_client_are_ready_at_once(server: HotServer, http: httpx.AsyncClient) -> None:
    await queue(http, 1, 2, 3)
    async with working(http, "node=w&max=2") as stream:
        assert [(await stream.job())["$seq"] for _ in range(2)] == [1, 2]
    await until(lambda: server.engine.queues.figures("q").in_flight == 0)
    assert server.engine.queues.figures("q").ready == 3
    assert server.broker.streams.parked == 0
    async with working(http, "node=v") as stream:
        assert (await stream.job())["deliveries"] == 2


async def test_a_work_stream_ends_with_topic_deleted_when_its_queue_is_deleted(http: httpx.AsyncClient) -> None:
    await queue(http, 1, 2)
    async with working(http) as stream:
        await stream.job()
        await http.delete("/v0/topics/q")
        name, data, _ = await stream.event()
        assert (name, data) == ("topic-deleted", {"topic": "q", "head_seq": 2, "reason": "deleted"})
        with pytest.raises(StopAsyncIteration):
            await stream.frame()


@pytest.mark.one_cell("looks into the engine")
@pytest.mark.parametrize("most", [1, 2])
async def test_a_work_stream_ends_with_server_shutting_down_at_shutdown(
    server: HotServer, http: httpx.AsyncClient, most: int
) -> None:
    """Whether its worker waits for a job, or has as many as it wants."""
    await queue(http, 1)
    async with working(http, f"node=w&max={most}") as stream:
        await stream.job()
        server.engine.begin_shutdown()
        name, data = (await stream.frame()).split("\n")
        assert (name, data[:6]) == ("event: error", "data: ")
        assert json.loads(data[6:])["code"] == "server_shutting_down"
        assert json.loads(data[6:])["error"]
        with pytest.raises(StopAsyncIteration):
            await stream.frame()


@pytest.mark.one_cell("looks into the engine")
async def test_an_idle_work_stream_sends_heartbeats(http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "HEARTBEAT_S", 0.01)
    await queue(http)
    async with working(http) as stream:
        await stream.frame()
        for _ in range(3):
            comment, name, moment = (await stream.frame()).split(" ")
            assert (comment, name) == (":", "hb")
            assert int(moment) > 1_700_000_000_000
        await append(http, "q", {"data": 1})
        assert (await stream.job())["$seq"] == 1


@pytest.mark.one_cell("looks into the engine")
async def test_streams_are_bounded(server: HotServer, http: httpx.AsyncClient) -> None:
    await queue(http)
    server.broker.streams.max = 1
    async with working(http):
        error = refused(await http.get("/v0/topics/q/work?node=w"), 429, "throttled")
        assert error["detail"] == {"limit": "max_sse_connections", "max": 1}
        assert server.broker.streams.refused_total == 1
    await until(lambda: server.broker.streams.parked == 0)
    async with working(http) as stream:
        assert await stream.frame() == "retry: 2000"


@pytest.mark.one_cell("looks into the engine")
async def test_a_head_request_claims_no_job(server: HotServer, http: httpx.AsyncClient) -> None:
    await queue(http, 1)
    answer = await http.head("/v0/topics/q/work?node=w")
    assert (answer.status_code, answer.headers["content-type"], answer.content) == (200, "text/event-stream", b"")
    assert server.engine.queues.figures("q").in_flight == 0
    assert server.broker.streams.parked == 0


@pytest.mark.one_cell("looks into the engine")
async def test_an_unread_work_stream_is_closed_and_its_jobs_are_ready(
    server: HotServer, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meanwhile no more of them are taken from the queue than fit in the buffers."""
    monkeypatch.setattr(events, "PATIENCE_S", 0.3)
    monkeypatch.setattr(work, "MAX_BUFFERED_BYTES", 1 << 16)
    await queue(http)
    for _ in range(3):
        await append(http, "q", *({"data": "x" * 100_000} for _ in range(200)))
    wire = await server.connect()
    wire.transport.pause_reading()
    wire.send(b"GET /v0/topics/q/work?node=w&max=1000 HTTP/1.1\r\nhost: localhost\r\n\r\n")
    await until(lambda: server.broker.streams.parked == 1)
    await until(lambda: server.broker.streams.parked == 0)
    await until(lambda: server.engine.queues.figures("q").in_flight == 0)
    assert server.engine.queues.figures("q").ready == 600


@pytest.mark.one_cell("looks into the engine")
async def test_other_streams_do_not_wait_for_an_unread_stream(
    server: HotServer, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "MAX_BUFFERED_BYTES", 1 << 16)
    await queue(http)
    wire = await server.connect()
    wire.transport.pause_reading()
    wire.send(b"GET /v0/topics/q/work?node=w&max=1000 HTTP/1.1\r\nhost: localhost\r\n\r\n")
    await until(lambda: server.broker.streams.parked == 1)
    for _ in range(2):
        await append(http, "q", *({"data": "x" * 100_000} for _ in range(400)))
    async with working(http, "node=v&max=3") as stream:
        for _ in range(3):
            await stream.job()
