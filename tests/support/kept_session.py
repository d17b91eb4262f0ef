"""An engine on a simulated disk, and a ledger of its answers about producers, states and offsets.

All of this is synced before it is acked, so the state after a crash is exact. An acked put counts, and one with an open
outcome may count. A producer's batch is there as a whole and once, and a log knows of a producer what its records say.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Any

from storage import Appended, Durability, Engine, Options, ReadQuery, TopicConfig
from storage.errors import ConsumerNotFound, StorageError, StorageFailed, TopicNotFound
from storage.records.values import ProducerBatch, StoredBodies
from storage.state.producer_table import last_sequence
from tests.support.crash_ledger import Outcome
from tests.support.fake_clock import FakeClock
from tests.support.sim_disk import SimDisk

ROOT = "/data/topics"


@dataclass(slots=True)
class StoredValue:
    """A value that was put, in the order of the requests."""

    value: Any
    outcome: Outcome = Outcome.OPEN


@dataclass(slots=True)
class Batch:
    """A batch of a producer with `count` records."""

    topic: str
    producer: ProducerBatch
    count: int
    certain: bool
    outcome: Outcome = Outcome.OPEN
    first_seq: int = 0


@dataclass(slots=True)
class Ledger:
    """What was requested and answered. Places are ("state", kind, key) and ("offset", topic, consumer)."""

    said: dict[tuple[str, str, str], list[StoredValue]] = field(
        default_factory=dict[tuple[str, str, str], list[StoredValue]]
    )
    batches: list[Batch] = field(default_factory=list[Batch])
    claimed: list[int] = field(default_factory=list[int])

    def copy(self) -> Ledger:
        return copy.deepcopy(self)

    def allowed(self, place: tuple[str, str, str]) -> list[Any]:
        """The values that may be there: the last acked one, and those requested since and not refused."""
        found: list[Any] = []
        for each in reversed(self.said[place]):
            if each.outcome is not Outcome.REFUSED:
                found.append(each.value)
            if each.outcome is Outcome.DONE:
                return found
        return [*found, None]

    def found(self, place: tuple[str, str, str], value: Any) -> None:
        """A start has decided what was open."""
        self.said[place] = [StoredValue(value, Outcome.DONE)]


class Session:
    """One process."""

    def __init__(self, disk: SimDisk, options: Options, clock: FakeClock | None = None, ledger: Ledger | None = None):
        self.disk = disk
        self.options = options
        self.clock = clock or FakeClock()
        self.ledger = ledger or Ledger()
        self.engine = Engine(ROOT, options, fs=disk, clock=self.clock, threaded=False)

    async def start(self) -> None:
        if self.engine.closing:
            self.engine = Engine(ROOT, self.options, fs=self.disk, clock=self.clock, threaded=False)
        await self.engine.start()

    async def close(self) -> None:
        await self.engine.close()

    async def together(self, *operations: Awaitable[Any]) -> None:
        await asyncio.gather(*operations)

    async def put(self, name: str, config: TopicConfig) -> None:
        await self._ask(self.engine.put_topic(name, config))

    async def keep(self, kind: str, key: str, value: bytes | None) -> None:
        """Put a state, or delete it."""
        states = self.engine.states
        work = states.delete(kind, key) if value is None else states.put(kind, key, value)
        await self._say(("state", kind, key), value, work)

    async def commit(
        self, topic: str, consumer: str, seq: int, metadata: bytes | None = None, epoch: int | None = None
    ) -> None:
        work = self.engine.consumers.commit_offset(topic, consumer, seq, metadata, leader_epoch=epoch)
        await self._say(("offset", topic, consumer), (seq, metadata, epoch), work)

    async def claim(self) -> None:
        outcome, answer = await self._ask(self.engine.producers.claim())
        if outcome is Outcome.DONE:
            assert answer[0] not in self.ledger.claimed, f"{answer[0]} was handed out before"
            self.ledger.claimed.append(answer[0])

    async def send(self, topic: str, producer: ProducerBatch, count: int = 1, *, certain: bool = True) -> None:
        """One batch. `certain`: the topic keeps acked writes through a power cut."""
        batch = Batch(topic, producer, count, certain)
        self.ledger.batches.append(batch)
        await self.resend(len(self.ledger.batches) - 1)

    async def resend(self, number: int) -> Appended | None:
        """Send that batch, perhaps again."""
        batch = self.ledger.batches[number]
        bodies = StoredBodies([b'{"data":[%d,%d],"ct":5}' % (number, index) for index in range(batch.count)])
        config = TopicConfig(durability=Durability.FSYNC if batch.certain else Durability.DISK)
        work = self.engine.append(batch.topic, bodies, producer=batch.producer, config=config)
        outcome, answer = await self._ask(work)
        if outcome is Outcome.DONE:
            assert batch.first_seq in (0, answer.first_seq), f"batch {number} is {answer.first_seq}: {batch}"
            batch.first_seq = answer.first_seq
        if batch.outcome is not Outcome.DONE:
            batch.outcome = outcome
        return answer

    async def snapshot(self) -> None:
        with contextlib.suppress(StorageError, OSError):
            await self.engine.snapshotter.take()

    async def mark_flushed(self) -> None:
        with contextlib.suppress(StorageError, OSError):
            await self.engine.segment_worker.flush_all()

    async def _say(self, place: tuple[str, str, str], value: Any, work: Awaitable[Any]) -> None:
        said = StoredValue(value)
        self.ledger.said.setdefault(place, []).append(said)
        said.outcome, _ = await self._ask(work)

    async def _ask(self, work: Awaitable[Any]) -> tuple[Outcome, Any]:
        try:
            return Outcome.DONE, await work
        except StorageFailed:
            return Outcome.OPEN, None
        except StorageError:
            return Outcome.REFUSED, None


async def check(session: Session, *, power: bool) -> list[str]:
    """What is wrong with the state after a start. Operations that are open are closed by it."""
    engine, ledger, problems = session.engine, session.ledger, list[str]()
    for place, said in ledger.said.items():
        found = _found(engine, place)
        allowed = ledger.allowed(place)
        if found not in allowed and not (found is None and said[0].outcome is not Outcome.DONE and len(said) == 1):
            problems.append(f"{place} is {found!r}, and not one of {allowed}")
        ledger.found(place, found)
    for topic in sorted({batch.topic for batch in ledger.batches}):
        problems += await _check_batches(engine, ledger, topic, power=power)
    return problems


def _found(engine: Engine, place: tuple[str, str, str]) -> Any:
    what, first, second = place
    if what == "state":
        return engine.states.get(first, second)
    try:
        return engine.consumers.committed(first, second)
    except (ConsumerNotFound, TopicNotFound):
        return None


async def _check_batches(engine: Engine, ledger: Ledger, topic: str, *, power: bool) -> list[str]:
    problems: list[str] = []
    stored = await _stored(engine, topic)
    known: dict[int, tuple[int, list[tuple[int, int, int]]]] = {}
    for number, seqs in stored.items():
        batch = ledger.batches[number]
        if seqs != list(range(seqs[0], seqs[0] + batch.count)):
            problems.append(f"{topic}: batch {number} of {batch.count} is {seqs}")
        if batch.first_seq not in (0, seqs[0]):
            problems.append(f"{topic}: batch {number} was acked as {batch.first_seq} and is {seqs[0]}")
        producer_id, epoch, base = batch.producer
        before, sent = known.get(producer_id, (epoch, []))
        goes_on = before == epoch and sent and base == last_sequence(sent[-1][1], 2)
        sent = sent if goes_on else []
        known[producer_id] = (epoch, [*sent, (base, last_sequence(base, batch.count), seqs[0])][-5:])
    for number, batch in enumerate(ledger.batches):
        lost = batch.topic == topic and batch.outcome is Outcome.DONE and number not in stored
        if lost and (batch.certain or not power):
            problems.append(f"{topic}: batch {number} was acked and is gone")
        elif batch.topic == topic and number not in stored:
            batch.outcome, batch.first_seq = Outcome.REFUSED, 0
        elif batch.topic == topic:
            batch.outcome, batch.first_seq = Outcome.DONE, stored[number][0]
    table = engine.catalog.topics[topic].log.producers if topic in engine.catalog.topics else None
    for producer_id, wanted in known.items():
        entry = table.entry(producer_id) if table is not None else None
        found = None if entry is None else (entry.epoch, [tuple(sent) for sent in entry.sent])
        if found != wanted:
            problems.append(f"{topic}: producer {producer_id} is {found}, its records say {wanted}")
    if table is not None and len(table) != len(known):
        problems.append(f"{topic}: {len(table)} producers are known, {len(known)} have written")
    return problems


async def _stored(engine: Engine, topic: str) -> dict[int, list[int]]:
    """Seqs by the number of their batch, in the order of the log."""
    found: dict[int, list[int]] = {}
    seq = 0
    while topic in engine.catalog.topics and seq < engine.state(topic).head_seq:
        result = await engine.read(topic, ReadQuery(limit=1000, from_seq=seq))  # a read that stops at a loss range
        for record in result.records:
            number, _ = json.loads(record.body)["data"]
            found.setdefault(number, []).append(record.seq)
        seq = result.next_from_seq
    return found
