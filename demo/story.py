"""The demonstration itself: write, kill, continue, read back, compare."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from demo.flights import flights
from demo.own_broker import OwnBroker
from demo.screen import Screen
from demo.sending import Sending, batches
from demo.verdict import Digests, Verdict
from topics_client import AsyncClient

TOPIC_PREFIX = "flights."
#: Longer than any run, so that no key expires before the end.
_KEY_WINDOW_MS = 3_600_000
_READ_RECORDS = 1000
_READ_BYTES = 8 << 20
_TOPICS_READ_AT_ONCE = 4
_KILL_WITHIN_S = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Parameters: every n-th flight (`every`), records per batch, batches in flight at once."""

    data_file: Path
    every: int = 1
    batch: int = 500
    at_once: int = 8


@dataclass(slots=True)
class Outcome:
    """The figures of a run. Times in seconds; `write_s` includes the broker's downtime and recovery (`down_s`)."""

    topics: int = 0
    records: int = 0
    bytes: int = 0
    acked: int = 0
    acked_at_kill: int = 0
    in_flight_at_kill: int = 0
    repeated: int = 0
    already_stored: int = 0
    found: int = 0
    write_s: float = 0.0
    down_s: float = 0.0
    read_s: float = 0.0
    verdict: Verdict = field(default_factory=Verdict)


async def tell(plan: Plan, broker: OwnBroker, screen: Screen, started: Callable[[str], Awaitable[None]]) -> Outcome:
    """Run the demonstration with a broker that is not started yet. Raises BrokerDied if the broker fails.

    `started` is called with the broker's address before records are written.
    """
    outcome = Outcome()
    records = await asyncio.to_thread(_load, plan, screen)
    outcome.topics = len(records)
    outcome.records = sum(map(len, records.values()))
    outcome.bytes = sum(len(record) for topic in records.values() for record in topic)
    await broker.start()
    await started(broker.url)
    await asyncio.gather(*(_make(broker.client, topic) for topic in records))
    await _write(records, plan, broker, screen, outcome)
    await _read_back(records, broker.client, screen, outcome)
    return outcome


def _load(plan: Plan, screen: Screen) -> dict[str, list[bytes]]:
    """The flights by topic, in the order of the file."""
    records: dict[str, list[bytes]] = {}
    with screen.phase("Reading the data set", None):
        for carrier, record in flights(plan.data_file, plan.every):
            records.setdefault(TOPIC_PREFIX + carrier, []).append(record)
    return records


async def _make(client: AsyncClient, topic: str) -> None:
    await client.put_topic(topic, durability="fsync", idempotency_window_ms=_KEY_WINDOW_MS)


async def _write(
    records: Mapping[str, Sequence[bytes]], plan: Plan, broker: OwnBroker, screen: Screen, outcome: Outcome
) -> None:
    work = {topic: batches(topic, its, plan.batch) for topic, its in records.items()}
    began_s = time.monotonic()
    with screen.phase("Writing", outcome.records) as advance:
        sending = Sending(broker, plan.at_once, advance)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(sending.run(work))
            tasks.create_task(_crash(sending, broker, screen, outcome))
    outcome.write_s = time.monotonic() - began_s
    outcome.acked = sending.acked
    outcome.repeated = sending.repeated
    outcome.already_stored = sending.already_stored


async def _crash(sending: Sending, broker: OwnBroker, screen: Screen, outcome: Outcome) -> None:
    """Half-way, with batches in flight: kill the broker and start it again over the same data directory."""
    await sending.reaches(outcome.records // 2)
    # At a random moment: some batches are then stored but not acknowledged, others neither.
    await asyncio.sleep(random.uniform(0, _KILL_WITHIN_S))
    began_s = time.monotonic()
    sending.hold()
    outcome.acked_at_kill, outcome.in_flight_at_kill = sending.acked, sending.in_flight
    await broker.kill()
    screen.say(f"Killed the broker (SIGKILL) with {outcome.in_flight_at_kill} batches in flight.")
    await sending.quiet()
    await broker.start()
    outcome.down_s = time.monotonic() - began_s
    screen.say(f"Started it again: ready after {outcome.down_s:.2f} s. Going on with the same idempotency keys.")
    sending.go_on()


async def _read_back(
    records: Mapping[str, Sequence[bytes]], client: AsyncClient, screen: Screen, outcome: Outcome
) -> None:
    found = {topic: Digests() for topic in records}
    slots = asyncio.Semaphore(_TOPICS_READ_AT_ONCE)
    began_s = time.monotonic()
    with screen.phase("Reading back", outcome.records) as advance:

        async def read(topic: str) -> None:
            from_seq, caught_up = 0, False
            async with slots:
                while not caught_up:
                    diff = await client.read(topic, from_seq, limit=_READ_RECORDS, max_batch_bytes=_READ_BYTES)
                    found[topic].add(record.data_raw for record in diff.records)
                    from_seq, caught_up = diff.next_from_seq, diff.caught_up
                    advance(len(diff.records))

        await asyncio.gather(*map(read, records))
    outcome.read_s = time.monotonic() - began_s
    outcome.found = sum(len(digests.each) for digests in found.values())
    for topic, its in records.items():
        outcome.verdict.add(topic, Digests(its), found[topic])
