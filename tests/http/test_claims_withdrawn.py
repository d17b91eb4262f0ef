"""Claims whose client leaves before it is answered, over real connections."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import httpx
import pytest

from storage.records.values import QueueFigures
from tests.http.calls import append
from tests.http.hot_server import HotServer, Wire
from tests.http.queue_calls import call, claim, queue
from tests.http.test_long_poll import until

GONE = {("/v0/topics/{topic}/claim",): 1}


@pytest.fixture
async def server() -> AsyncIterator[HotServer]:
    async with HotServer() as server:
        yield server


@pytest.fixture
async def http(server: HotServer) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=server.server.url, timeout=20) as client:
        yield client


def figures(server: HotServer) -> QueueFigures:
    return server.engine.queues.figures("q")


async def asking(server: HotServer, **fields: object) -> Wire:
    """A connection on which a claim has been sent."""
    wire = await server.connect()
    body = json.dumps({"node": "w", **fields}).encode()
    head = b"POST /v0/topics/q/claim HTTP/1.1\r\nhost: localhost\r\n"
    wire.send(head, b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body), body)
    return wire


async def gone(server: HotServer) -> None:
    await until(lambda: server.counted("topics_http_clients_gone") == GONE)


async def test_a_waiting_claim_of_a_closed_connection_takes_no_job(server: HotServer, http: httpx.AsyncClient) -> None:
    await queue(http)
    wire = await asking(server, wait_ms=30_000)
    await until(lambda: server.broker.parking.parked == 1)
    await wire.close()
    await gone(server)
    assert (server.broker.parking.parked, figures(server).waiting_claims) == (0, 0)
    await append(http, "q", {"data": 1})
    assert figures(server).ready == 1


async def test_a_claim_in_progress_of_a_closed_connection_is_undone_without_a_delivery(
    server: HotServer, http: httpx.AsyncClient
) -> None:
    await queue(http, 1, 2, claim_jitter_ms=300, max_deliveries=1, dead_letter="dead")
    wire = await asking(server, max=2)
    await until(lambda: figures(server).waiting_claims == 1)
    await wire.close()
    await gone(server)
    await until(lambda: figures(server).ready == 2)
    # If the delivery counted, the jobs would have had their only one.
    assert [job["$seq"] for job in await claim(http, node="v")] == [1, 2]
    assert figures(server).dead_lettered == 0


async def test_a_keyed_claim_of_a_closed_connection_is_kept_for_its_repetition(
    server: HotServer, http: httpx.AsyncClient
) -> None:
    await queue(http, 1, 2, claim_jitter_ms=300)
    wire = await asking(server, attempt_key="k")
    await until(lambda: figures(server).waiting_claims == 1)
    await wire.close()
    await gone(server)
    await until(lambda: figures(server).in_flight == 1)
    [job] = await claim(http, node="w", attempt_key="k")
    assert (job["$seq"], job["deliveries"]) == (1, 1)
    assert (await call(http, "ack", node="w", seqs=[1], lease_ids=[job["lease_id"]]))["acked"] == 1
