"""Streams of the REST Proxy over a real port: events, and receipts while records are still being sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.http.conftest import Serve
from tests.http.hot_server import HotServer
from tests.http.proxy.calls import produce, send, subscribed, values
from tests.http.test_work_stream import PATIENCE_S

EVENTS = {"accept": "text/event-stream"}


@pytest.fixture
async def server(serve: Serve) -> AsyncIterator[HotServer]:
    async with serve() as server:
        yield server


@pytest.fixture
async def http(server: HotServer) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=server.server.url, timeout=PATIENCE_S) as client:
        yield client


class Events:
    """The events of an answer that have data, one by one."""

    def __init__(self, answer: httpx.Response) -> None:
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/event-stream"
        self._lines = answer.aiter_lines()

    async def next(self) -> tuple[dict[str, str], Any]:
        """The fields of an event, with decoded data."""
        fields: dict[str, str] = {}
        async with asyncio.timeout(PATIENCE_S):
            async for line in self._lines:
                name, _, value = line.partition(": ")
                if line and name:
                    fields[name] = value
                elif not line and "data" in fields:
                    return fields, json.loads(fields["data"])
                elif not line:
                    fields = {}
        raise AssertionError("the stream has ended")


async def test_a_partition_is_streamed_and_resumed(http: httpx.AsyncClient) -> None:
    await produce(http, "t", 0, 1)
    url = "/topics/t/partitions/0/records"
    async with http.stream("GET", url, headers=EVENTS) as answer:
        events = Events(answer)
        fields, record = await events.next()
        assert (fields["id"], record["offset"], record["value"]) == ("0", 0, 0)
        assert (await events.next())[1]["value"] == 1
        await produce(http, "t", 2)
        assert (await events.next())[1]["value"] == 2
    async with http.stream("GET", url, headers={**EVENTS, "last-event-id": "1"}) as answer:
        assert (await Events(answer).next())[1]["value"] == 2
    async with http.stream("GET", f"{url}?offset=1&format=binary", headers=EVENTS) as answer:
        assert (await Events(answer).next())[1]["value"] == "MQ=="


async def test_a_loss_is_streamed_as_an_event(http: httpx.AsyncClient) -> None:
    await http.put("/v0/topics/t", json={"cap_records": 1})
    await produce(http, "t", 0, 1, 2)
    async with http.stream("GET", "/topics/t/partitions/0/records?offset=0", headers=EVENTS) as answer:
        events = Events(answer)
        fields, lost = await events.next()
        assert fields["event"] == "lost"
        assert lost == {"topic": "t", "partition": 0, "from": 0, "to": 1, "reason": "cap"}
        assert (await events.next())[1]["value"] == 2


async def test_json_with_line_breaks_is_sent_as_a_single_event(http: httpx.AsyncClient) -> None:
    body = '{"records":[{"value":{"a":\n\r\n1,"b":"x\\ny"}}]}'
    headers = {"content-type": "application/vnd.kafka.json.v2+json"}
    assert (await http.post("/topics/t", content=body, headers=headers)).is_success
    async with http.stream("GET", "/topics/t/partitions/0/records", headers=EVENTS) as answer:
        assert (await Events(answer).next())[1]["value"] == {"a": 1, "b": "x\ny"}


async def test_a_commit_covers_the_streamed_records(http: httpx.AsyncClient) -> None:
    await produce(http, "t", 0, 1)
    path = await subscribed(http, "t")
    async with http.stream("GET", f"{path}/records", headers=EVENTS) as answer:
        events = Events(answer)
        assert [(await events.next())[1]["value"] for _ in range(2)] == [0, 1]
        await produce(http, "t", 2)
        assert (await events.next())[1]["value"] == 2
    await send(http, f"{path}/offsets")
    assert await values(http, path) == []


@pytest.mark.one_cell("looks into the engine")
async def test_a_stream_ends_when_the_broker_stops(http: httpx.AsyncClient, server: HotServer) -> None:
    await produce(http, "t", 0)
    path = await subscribed(http, "t")
    for url in (f"{path}/records", "/topics/t/partitions/0/records"):
        async with http.stream("GET", url, headers=EVENTS) as answer:
            assert (await Events(answer).next())[1]["value"] == 0
    async with http.stream("GET", "/topics/t/partitions/0/records", headers=EVENTS) as answer:
        events = Events(answer)
        await events.next()
        server.broker.proxy.shut_down()
        server.engine.begin_shutdown()
        with pytest.raises(AssertionError, match="has ended"):
            await events.next()


@pytest.mark.one_cell("looks into the engine")
async def test_streams_are_counted(server: HotServer, http: httpx.AsyncClient) -> None:
    await produce(http, "t", 0)
    async with http.stream("GET", "/topics/t/partitions/0/records", headers=EVENTS) as answer:
        await Events(answer).next()
        assert server.broker.streams.parked == 1


@pytest.mark.one_cell("looks into the engine")
async def test_receipts_come_while_records_are_sent(server: HotServer, http: httpx.AsyncClient) -> None:
    sent: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def content() -> AsyncIterator[bytes]:
        while (piece := await sent.get()) is not None:
            yield piece

    reader, writer = await asyncio.open_connection("127.0.0.1", server.server.port)
    url = f"/v3/clusters/{server.engine.cluster_id}/topics/t/records"
    head = f"POST {url} HTTP/1.1\r\nhost: [::]\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    writer.write(head.encode())
    for number in range(3):
        piece = json.dumps({"value": {"type": "JSON", "data": number}}).encode()
        writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        async with asyncio.timeout(PATIENCE_S):
            line = b""
            while b'"offset"' not in line:
                line = await reader.readline()
        receipt = json.loads(line)
        assert (receipt["error_code"], receipt["offset"]) == (200, number)
    writer.write(b"0\r\n\r\n")
    async with asyncio.timeout(PATIENCE_S):
        rest = await reader.readuntil(b"0\r\n\r\n")
    assert b"error_code" not in rest
    writer.close()
    await writer.wait_closed()


def clients_gone(server: HotServer) -> float:
    families = [each for each in server.broker.http_metrics.families() if each.name == "topics_http_clients_gone"]
    return sum(sample.value for family in families for sample in family.samples)


@pytest.mark.one_cell("looks into the engine")
async def test_records_sent_before_a_client_disconnects_are_stored(server: HotServer, http: httpx.AsyncClient) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.server.port)
    url = f"/v3/clusters/{server.engine.cluster_id}/topics/t/records"
    head = f"POST {url} HTTP/1.1\r\nhost: [::]\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    piece = b'{"value":{"type":"JSON","data":1}}{"value":'
    writer.write(head.encode() + b"%x\r\n%b\r\n" % (len(piece), piece))
    async with asyncio.timeout(PATIENCE_S):
        line = b""
        while b'"offset"' not in line:
            line = await reader.readline()
    writer.transport.abort()
    async with asyncio.timeout(PATIENCE_S):
        while not clients_gone(server):
            await asyncio.sleep(0.01)
    answer = await http.get("/topics/t/partitions/0/records", headers={"accept": "application/json"})
    assert [each["value"] for each in answer.json()] == [1]
