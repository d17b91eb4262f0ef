"""Writers and readers of consumers over HTTP, which continue while their broker is killed again and again.

`through_kills` runs all of it: everything is written, however long it takes, and every consumer reads to the end.
`problems` says what was wrong with what the readers got, according to `consume_check`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from tests.support.broker_process import BrokerProcess
from tests.support.consume_check import Consumed, Life

WRITERS = 2


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
    begins_at: float = 0.0
    """Nobody reads before so much of everything is written, 0 to 1."""


class Load:
    """Writers that continue until each of their batches is acknowledged, and readers, over as many brokers as it
    takes."""

    def __init__(
        self,
        broker: BrokerProcess,
        dice: random.Random,
        kinds: Sequence[Kind],
        *,
        batches: int,
        record_bytes: int = 0,
    ) -> None:
        """`batches`: for each writer of each topic. `record_bytes`: the least size of a record."""
        self.broker = broker
        self.dice = dice
        self.kinds = kinds
        self.topics = sorted({kind.topic for kind in kinds})
        self.batches = batches
        self.record_bytes = record_bytes
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
            for kind in self.kinds
        }

    @property
    def share(self) -> float:
        """The part of all batches that is acknowledged, 0 to 1."""
        return self.acked / (self.batches * len(self.topics) * WRITERS)

    def problems(self) -> list[str]:
        """What was wrong with what the readers got, after they have read everything."""
        heads = self.heads
        assert heads is not None
        return [problem for kind in self.kinds for problem in self.consumed[kind.name].check(heads[kind.topic])]

    def died(self, *, killed: bool) -> None:
        """The broker of this life has ended. No answers of it arrive any more except those on their way."""
        for consumed in self.consumed.values():
            consumed.lives[-1].killed = killed
            consumed.lives.append(Life())
        self.life += 1

    async def post(self, client: httpx.AsyncClient, path: str, body: Any) -> dict[str, Any] | None:
        """The answer. None if the broker refused because it stops. Raises httpx.HTTPError if no answer came."""
        answer = await client.post(f"http://127.0.0.1:{self.broker.port}/v0/topics/{path}", json=body)
        assert answer.status_code in (200, 201, 503), answer.text
        return None if answer.status_code == 503 else answer.json()

    async def write(self, topic: str, writer: int) -> None:
        async with httpx.AsyncClient(timeout=10) as client:
            for batch in range(self.batches):
                texts = [
                    f"{writer}-{batch}-{n}".ljust(self.record_bytes) for n in range(self.dice.choice((1, 1, 3, 20)))
                ]
                records = [{"data": text} for text in texts]
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
        """Read to the end of a topic that nobody writes to any more."""
        while self.share < kind.begins_at:
            await asyncio.sleep(0.01)
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


def make_consumers(load: Load) -> None:
    """Make consumers of all kinds. Their topics exist."""
    for kind in load.kinds:
        settings = {"consistency": kind.consistency, "persist_every": kind.persist_every}
        load.broker.ok("PUT", f"/v0/topics/{kind.topic}/consumers/{kind.name}", settings)


async def through_kills(load: Load, kills: int, patience_s: float) -> None:
    """Write and read everything, over `kills` kills and one clean stop in between."""
    async with asyncio.TaskGroup() as tasks:
        writers = [tasks.create_task(load.write(topic, n)) for topic in load.topics for n in range(WRITERS)]
        for kind in load.kinds:
            for _ in range(kind.readers):
                tasks.create_task(load.read(kind))
        await _kill_again_and_again(load, kills)
        async with asyncio.timeout(patience_s):
            await asyncio.gather(*writers)
            load.heads = {topic: load.broker.ok("GET", f"/v0/topics/{topic}")["head_seq"] for topic in load.topics}


async def _kill_again_and_again(load: Load, kills: int) -> None:
    """At moments spread over the work. One of the ends is a clean stop."""
    broker, dice = load.broker, load.dice
    clean = dice.randrange(kills + 1)
    for number in range(kills + 1):
        while load.share < 0.95 * (number + 1) / (kills + 1):
            await asyncio.sleep(0.001)
        await asyncio.sleep(dice.uniform(0, 0.05))
        if number == clean:
            assert await asyncio.to_thread(broker.stop) == 0
        else:
            broker.kill()
        load.died(killed=number != clean)
        await asyncio.to_thread(broker.start)


def told(load: Load) -> None:
    """How much the test has shown: kills that took nothing back prove nothing."""
    for kind in load.kinds:
        lives = load.consumed[kind.name].lives
        total = sum(len(life.given) for life in lives)
        again = total - len({seq for life in lives for seq in life.given})
        print(f"{kind.name}: {total} given, {again} of them again, {sum(life.lost for life in lives)} answers lost")
