"""Clients ask for much and do not read their answers. The broker's memory stays bounded, and it still reports its
health."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.unread import RECORD_BYTES, UnreadClients, Watch, get, resident

#: Without limits, each of these would hold 8 MB or more.
CLIENTS, SOAK_CLIENTS = 80, 1000
#: For clients that get one record each.
MANY_CLIENTS = 320
JOBS_AT_ONCE = 20
#: The memory is measured until it has not grown for this long, or for this long at most.
STILL_S, GROWING_S = 1.5, 30
MAX_BYTES = 600 << 20
BUDGET_BYTES = 32 << 20
#: Records move to sealed segments soon.
SOON = {"segment_max_events": 5, "checkpoint_records": 1, "checkpoint_batches": 1, "checkpoint_interval_ms": 20}
TARGET = "/v0/topics/t/records?limit=10&max_batch_bytes=8388608"
DIFF = json.dumps({"max_batch_bytes": 8 << 20}).encode()
WAITING = json.dumps({"limit": 10, "max_batch_bytes": 8 << 20, "wait_ms": 30_000}).encode()
CLAIM = json.dumps({"node": "n", "max": 5}).encode()
WAITING_CLAIM = json.dumps({"node": "n", "max": 5, "wait_ms": 30_000}).encode()
SUBSCRIBE = json.dumps({"type": "subscribe", "topics": {"t": {"from_seq": 0}}, "max_batch_bytes": 8 << 20}).encode()


def post(path: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


def streams(broker: BrokerProcess, clients: UnreadClients, count: int) -> None:
    wish = {"topics": {"t": {"from_seq": 0}}, "max_batch_bytes": 8 << 20}
    for _ in range(count):
        clients.http1(1, get(broker.ok("POST", "/v0/watch", wish)["stream_url"]))


def queue(broker: BrokerProcess, jobs: int) -> None:
    broker.ok("PUT", "/v0/topics/q", {"type": "queue", "durability": "disk"})
    add_jobs(broker, jobs)


def add_jobs(broker: BrokerProcess, jobs: int) -> None:
    for _ in range(jobs // JOBS_AT_ONCE):
        broker.ok("POST", "/v0/topics/q", {"records": [{"data": "x" * RECORD_BYTES}] * JOBS_AT_ONCE})


def jobs(broker: BrokerProcess, clients: UnreadClients, count: int) -> None:
    """Work streams, each with room for several large jobs."""
    queue(broker, 5 * CLIENTS)
    clients.http1(count, get("/v0/topics/q/work?node=n&max=5"))


def claims(broker: BrokerProcess, clients: UnreadClients, count: int) -> None:
    queue(broker, 5 * CLIENTS)
    clients.http1(count, post("/v0/topics/q/claim", CLAIM))


def waiting_claims(broker: BrokerProcess, clients: UnreadClients, count: int) -> None:
    """Claims that wait until many jobs arrive."""
    queue(broker, 0)
    clients.http1(max(count, MANY_CLIENTS), post("/v0/topics/q/claim", WAITING_CLAIM))
    broker.until(lambda: broker.metric("topics_parked_requests") >= max(count, MANY_CLIENTS))
    add_jobs(broker, MANY_CLIENTS)
    broker.until(lambda: broker.metric("topics_parked_requests") == 0)


def parked(broker: BrokerProcess, clients: UnreadClients, count: int) -> None:
    """Consumer reads that wait, and are all answered by one append."""
    readers = max(count, MANY_CLIENTS)
    for number in range(readers):
        broker.ok("PUT", f"/v0/topics/t/consumers/c{number}", {"start": "head"})
        clients.http1(1, post(f"/v0/topics/t/consumers/c{number}/read", WAITING))
    broker.until(lambda: broker.metric("topics_parked_requests") >= readers)
    broker.ok("POST", "/v0/topics/t", {"records": [{"data": "x" * RECORD_BYTES}] * 5})


def segments(broker: BrokerProcess, clients: UnreadClients, count: int) -> None:
    """Raw files of a segment of 4 MB."""
    listing = "/v0/topics/t/segments"
    broker.until(lambda: any(each["sealed"] for each in broker.ok("GET", listing)["segments"]))
    first = broker.ok("GET", listing)["segments"][0]["first_seq"]
    clients.http1(3 * count, get(f"/v0/topics/t/segments/{first}/data"))


def until_it_grows_no_more(broker: BrokerProcess) -> None:
    """Waits until the requests have been answered as far as possible."""
    highest, grown = 0, time.monotonic()
    until = grown + GROWING_S
    while time.monotonic() - grown < STILL_S and time.monotonic() < until:
        if (now := resident(broker)) > highest + (1 << 20):
            highest, grown = now, time.monotonic()
        time.sleep(0.05)


#: One case for each protocol, for the fast tier. A case takes a broker, its clients and some seconds.
FAST_DOORS = {"http1", "past asgi", "http2", "kafka"}
DOORS: dict[str, Callable[[BrokerProcess, UnreadClients, int], None]] = {
    "http1": lambda _, clients, count: clients.http1(count, get(TARGET)),
    "pipelined": lambda _, clients, count: clients.http1(count, get(TARGET) * 20),
    "past asgi": lambda _, clients, count: clients.http1(count, post("/v0/topics/t/diff", DIFF)),
    "http2": lambda _, clients, count: clients.http2(count // 10, TARGET, 100),
    "http2, open windows": lambda _, clients, count: clients.http2(count // 10, TARGET, 100, window=1 << 30),
    "the document over http2": lambda _, clients, count: clients.http2(count // 10, "/openapi.json", 100),
    "events": streams,
    "jobs": jobs,
    "claims": claims,
    "claims that wait": waiting_claims,
    "parked": parked,
    "websocket": lambda _, clients, count: clients.websockets(count, SUBSCRIBE),
    "kafka": lambda _, clients, count: clients.kafka(count, "t", fetches=3),
    "segments": segments,
    "proxy": lambda _, clients, count: clients.http1(
        count, get("/topics/t/partitions/0/records?offset=0&max_bytes=8388608")
    ),
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "door", [door if door in FAST_DOORS else pytest.param(door, marks=pytest.mark.slow) for door in DOORS]
)
def test_memory_of_unread_answers_is_bounded(tmp_path: Path, door: str, soak_mode: bool) -> None:
    count = SOAK_CLIENTS if soak_mode else CLIENTS
    kafka_port = tmp_path / "kafka"
    settings: dict[str, Any] = {} if soak_mode else {"max_answer_memory_bytes": BUDGET_BYTES}
    if door == "segments":
        settings |= SOON
    with BrokerProcess(
        tmp_path, kafka_port=0, kafka_port_file=kafka_port, wal_file_bytes=16 << 20, **settings
    ) as broker:
        broker.start()
        broker.ok("PUT", "/v0/topics/t", {"durability": "disk"})
        for _ in range(3):
            broker.ok("POST", "/v0/topics/t", {"records": [{"data": "x" * RECORD_BYTES}] * 5})
        before = resident(broker)
        port = int(kafka_port.read_text()) if door == "kafka" else broker.port
        with Watch(broker) as watch, UnreadClients(port) as clients:
            DOORS[door](broker, clients, count)
            until_it_grows_no_more(broker)
        seen = watch.seen()
        print(door, count, f"{before >> 20} -> {seen.peak_bytes >> 20} MiB, health {seen.slowest_s:.3f} s")
        assert not watch.killed
        assert seen.answered > 0
        assert seen.peak_bytes < (MAX_BYTES if soak_mode else before + 6 * BUDGET_BYTES)
        assert broker.ok("GET", "/v0/topics/t")["head_seq"] in (15, 20)
        assert broker.complaints() == []
