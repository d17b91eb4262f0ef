"""kill -9 of a broker that routes while clients write, also into the destination: each record is copied once, in
order."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import is_soak
from tests.support.broker_process import BrokerProcess, verify

SOAK = is_soak(os.environ)
BATCHES = 1500 if SOAK else 250
KILLS = 15 if SOAK else 4
PATIENCE_S = 120.0
#: Two sources lead into b, which clients also write to. A third router leads from b to another topic.
CLASSES = {"a": "fsync", "c": "disk", "b": "fsync", "d": "disk", "e": "fsync"}
ROUTERS = {"ab": ("a", "b"), "cb": ("c", "b"), "bd": ("b", "d"), "de": ("d", "e")}
FILTERED = ("a", "x", "even")
WRITERS = {"a": 2, "c": 2, "b": 2}

# With small files (the default here) and frequent snapshots, kills also meet file changes, trimming and snapshots.
SMALL: dict[str, Any] = {
    "wal_shards": 2,
    "snapshot_interval_ms": 300,
    "snapshot_wal_bytes": 256 << 10,
    "sync_point_bytes": 64 << 10,
    "checkpoint_records": 200,
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path, **SMALL) as process:
        yield process


class Load:
    """Writers that continue until each of their batches is acknowledged, over as many brokers as it takes."""

    def __init__(self, broker: BrokerProcess, dice: random.Random) -> None:
        self.broker = broker
        self.dice = dice
        self.sent: dict[str, list[str]] = {topic: [] for topic in WRITERS}
        self.acked = 0

    async def run(self, topic: str, writer: int) -> None:
        async with httpx.AsyncClient(timeout=10) as client:
            for batch in range(BATCHES):
                names = [f"{topic}-{writer}-{batch}-{n}" for n in range(self.dice.choice((1, 1, 3, 20)))]
                records = [{"data": name, "tag": ("even", "odd")[batch % 2]} for name in names]
                await self._write(client, topic, records, f"{writer}-{batch}")
                self.sent[topic] += names
                self.acked += 1

    async def _write(self, client: httpx.AsyncClient, topic: str, records: list[dict[str, Any]], key: str) -> None:
        body = {"records": records, "idempotency_key": key}
        while True:
            try:
                url = f"http://127.0.0.1:{self.broker.port}/v0/topics/{topic}?return_seqs=false"
                answer = await client.post(url, json=body)
                if answer.status_code in (200, 201):
                    return
                assert answer.status_code == 503, answer.text
            except httpx.HTTPError:
                pass
            await asyncio.sleep(0.01)


@pytest.mark.timeout(1800 if SOAK else 600)
async def test_router_copies_are_complete_and_unique_after_kills(broker: BrokerProcess, dice: random.Random) -> None:
    broker.start()
    for topic, durability in CLASSES.items():
        broker.ok("PUT", f"/v0/topics/{topic}", {"durability": durability})
    for name, (source, dest) in ROUTERS.items():
        broker.ok("PUT", f"/v0/routers/{name}", {"source": source, "dest": dest})
    source, dest, tag = FILTERED
    broker.ok("PUT", "/v0/routers/filtered", {"source": source, "dest": dest, "filter": tag})
    load = Load(broker, dice)
    async with asyncio.TaskGroup() as tasks:
        for topic, count in WRITERS.items():
            for writer in range(count):
                tasks.create_task(load.run(topic, writer))
        await kill_again_and_again(broker, load, dice)
    await drained(broker)
    compare(broker, load)
    assert broker.stop() == 0
    assert broker.complaints() == []
    print(verify(broker.data_dir))


async def kill_again_and_again(broker: BrokerProcess, load: Load, dice: random.Random) -> None:
    """At moments spread over the work. One of the ends is a clean stop."""
    clean = dice.randrange(KILLS + 1)
    for number in range(KILLS + 1):
        share = int(0.9 * BATCHES * sum(WRITERS.values()) * (number + 1) / (KILLS + 1))
        while load.acked < share:
            await asyncio.sleep(0.001)
        await asyncio.sleep(dice.uniform(0, 0.02))
        if number == clean:
            assert await asyncio.to_thread(broker.stop) == 0
        else:
            broker.kill()
        await asyncio.to_thread(broker.start)


async def drained(broker: BrokerProcess) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while any(router["lag"] for router in broker.ok("GET", "/v0/routers")["routers"]):
            await asyncio.sleep(0.05)


def contents(broker: BrokerProcess, topic: str) -> list[tuple[str, str]]:
    """(data, tag) of all records. There must be no loss."""
    found: list[tuple[str, str]] = []
    at = 0
    while True:
        page = broker.ok("POST", f"/v0/topics/{topic}/diff", {"from_seq": at, "limit": 1000, "include_tags": True})
        assert page["tombstone"] is None, page["tombstone"]
        found += [(record["data"], record["$tag"]) for record in page["records"]]
        if page["caught_up"]:
            return found
        at = page["next_from_seq"]


def compare(broker: BrokerProcess, load: Load) -> None:
    held = {topic: contents(broker, topic) for topic in (*CLASSES, FILTERED[1])}
    for topic in ("a", "c"):
        assert sorted(name for name, _ in held[topic]) == sorted(load.sent[topic])
    for router, (source, dest) in ROUTERS.items():
        wanted = set(held[source])
        copies = [record for record in held[dest] if record in wanted]
        assert copies == held[source], f"{router}: {first_difference(copies, held[source])}"
    source, dest, tag = FILTERED
    assert held[dest] == [record for record in held[source] if record[1] == tag]
    direct = [name for name, _ in held["b"] if name.startswith("b-")]
    assert sorted(direct) == sorted(load.sent["b"])
    assert len(held["b"]) == sum(map(len, load.sent.values()))
    assert held["d"] == held["b"] == held["e"]
    totals = {router["router"]: router["forwarded_total"] for router in broker.ok("GET", "/v0/routers")["routers"]}
    assert totals["ab"] == len(held["a"])
    assert totals["filtered"] == len(held["x"])


def first_difference(one: list[Any], other: list[Any]) -> str:
    for index, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return f"at {index}: {json.dumps(left)} where {json.dumps(right)} was due"
    return f"{len(one)} against {len(other)}"
