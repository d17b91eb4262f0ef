"""kill -9 of a broker whose consumers are being read while clients write: what a crash may do to each, and no more."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import is_long
from tests.support.broker_process import BrokerProcess, verify
from tests.support.consume_check import Consumed, Life

LONG = is_long(os.environ)
BATCHES = 600 if LONG else 80
KILLS = 30 if LONG else 10
PATIENCE_S = 120.0 if LONG else 60.0
TOPICS = {"a": "fsync", "b": "disk"}
WRITERS = 2

# Small files (the default here) and frequent snapshots: a kill then meets turning over, trimming and snapshots as well.
SMALL: dict[str, Any] = {
    "wal_shards": 2,
    "snapshot_interval_ms": 300,
    "snapshot_wal_bytes": 256 << 10,
    "sync_point_bytes": 64 << 10,
    "checkpoint_records": 200,
}


@dataclass(frozen=True, slots=True)
class Kind:
    """A consumer, and how it is read."""

    name: str
    topic: str
    consistency: str
    limit: int
    readers: int = 2
    persist_every: int = 1000
    commits: bool = False


KINDS = [
    Kind("strict-single", "a", "strictly_at_once", 1, readers=3),
    Kind("strict-batch", "b", "strictly_at_once", 20),
    Kind("strict-alone", "b", "strictly_at_once", 5, readers=1),
    Kind("single", "a", "at_least_once", 1, readers=3, persist_every=25),
    Kind("alone", "a", "at_least_once", 10, readers=1, persist_every=40),
    Kind("batch", "b", "at_least_once", 20, persist_every=60),
    Kind("each", "b", "at_least_once", 20, persist_every=1),
    Kind("commits", "a", "at_least_once", 7, readers=1, commits=True),
    Kind("strict-commits", "b", "strictly_at_once", 7, readers=1, commits=True),
]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path, **SMALL) as process:
        yield process


class Load:
    """Writers that go on until each of their batches is acknowledged, and readers, over as many brokers as it takes."""

    def __init__(self, broker: BrokerProcess, dice: random.Random) -> None:
        self.broker = broker
        self.dice = dice
        self.life = 0
        self.acked = 0
        self.heads: dict[str, int] | None = None
        """Of the topics, once nothing is written any more."""
        self.consumed = {
            kind.name: Consumed(
                name=kind.name,
                strict=kind.consistency == "strictly_at_once",
                limit=kind.limit,
                persist_every=kind.persist_every,
                alone=kind.readers == 1,
                commits=kind.commits,
            )
            for kind in KINDS
        }

    def died(self, *, killed: bool) -> None:
        """The broker of this life has ended; no answer of it can come any more but those that are on their way."""
        for consumed in self.consumed.values():
            consumed.lives[-1].killed = killed
            consumed.lives.append(Life())
        self.life += 1

    async def post(self, client: httpx.AsyncClient, path: str, body: Any) -> dict[str, Any] | None:
        """The answer; None when the broker refused because it stops. Raises httpx.HTTPError where nothing came."""
        answer = await client.post(f"http://127.0.0.1:{self.broker.port}/v0/topics/{path}", json=body)
        assert answer.status_code in (200, 201, 503), answer.text
        return None if answer.status_code == 503 else answer.json()

    async def write(self, topic: str, writer: int) -> None:
        async with httpx.AsyncClient(timeout=10) as client:
            for batch in range(BATCHES):
                records = [{"data": f"{writer}-{batch}-{n}"} for n in range(self.dice.choice((1, 1, 3, 20)))]
                body = {"records": records, "idempotency_key": f"{writer}-{batch}"}
                while True:
                    try:
                        if await self.post(client, topic, body) is not None:
                            break
                    except httpx.HTTPError:
                        pass
                    await asyncio.sleep(0.01)
                self.acked += 1

    async def read(self, kind: Kind) -> None:
        """Until it has come to the end of a topic that nobody writes to any more."""
        url = f"{kind.topic}/consumers/{kind.name}"
        consumed = self.consumed[kind.name]
        body = {"limit": kind.limit, "wait_ms": 100, "checkpoint": not kind.commits}
        async with httpx.AsyncClient(timeout=10) as client:
            while True:
                life = self.life
                try:
                    answer = await self.post(client, f"{url}/read", body)
                    if answer is not None:
                        assert answer["tombstone"] is None, answer
                        await self._took(client, url, kind, life, answer)
                        if self.heads is not None and answer["cursor_seq"] >= self.heads[kind.topic]:
                            return
                        continue
                except httpx.ConnectError:
                    pass
                except httpx.HTTPError:
                    consumed.lives[life].lost += 1
                await asyncio.sleep(0.01)

    async def _took(self, client: httpx.AsyncClient, url: str, kind: Kind, life: int, answer: dict[str, Any]) -> None:
        consumed = self.consumed[kind.name]
        seqs = [record["$seq"] for record in answer["records"]]
        if not kind.commits:
            consumed.given(life, seqs)
            return
        consumed.peeked(life, answer["cursor_seq"], seqs)
        if seqs:
            consumed.committing(seqs[-1])
            if await self.post(client, f"{url}/commit", {"seq": seqs[-1]}) is not None:
                consumed.committed(seqs[-1])


@pytest.mark.timeout(1800 if LONG else 300)
async def test_each_crash_does_what_it_may_and_no_more(broker: BrokerProcess, dice: random.Random) -> None:
    broker.start()
    for topic, durability in TOPICS.items():
        broker.ok("PUT", f"/v0/topics/{topic}", {"durability": durability})
    for kind in KINDS:
        settings = {"consistency": kind.consistency, "persist_every": kind.persist_every}
        broker.ok("PUT", f"/v0/topics/{kind.topic}/consumers/{kind.name}", settings)
    load = Load(broker, dice)
    async with asyncio.TaskGroup() as tasks:
        writers = [tasks.create_task(load.write(topic, n)) for topic in TOPICS for n in range(WRITERS)]
        for kind in KINDS:
            for _ in range(kind.readers):
                tasks.create_task(load.read(kind))
        await kill_again_and_again(broker, load, dice)
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*writers)
            load.heads = {topic: broker.ok("GET", f"/v0/topics/{topic}")["head_seq"] for topic in TOPICS}
    heads = load.heads
    assert heads is not None
    problems = [problem for kind in KINDS for problem in load.consumed[kind.name].check(heads[kind.topic])]
    assert problems == []
    told(load)
    assert broker.stop() == 0
    assert broker.complaints() == []
    print(verify(broker.data_dir))


async def kill_again_and_again(broker: BrokerProcess, load: Load, dice: random.Random) -> None:
    """At moments spread over the work; one of the ends is a clean stop."""
    clean = dice.randrange(KILLS + 1)
    for number in range(KILLS + 1):
        share = int(0.95 * BATCHES * len(TOPICS) * WRITERS * (number + 1) / (KILLS + 1))
        while load.acked < share:
            await asyncio.sleep(0.001)
        await asyncio.sleep(dice.uniform(0, 0.05))
        if number == clean:
            assert await asyncio.to_thread(broker.stop) == 0
        else:
            broker.kill()
        load.died(killed=number != clean)
        await asyncio.to_thread(broker.start)


def told(load: Load) -> None:
    """How much of a test it was: kills that took nothing back have shown nothing."""
    for kind in KINDS:
        lives = load.consumed[kind.name].lives
        total = sum(len(life.given) for life in lives)
        again = total - len({seq for life in lives for seq in life.given})
        print(f"{kind.name}: {total} given, {again} of them again, {sum(life.lost for life in lives)} answers lost")
