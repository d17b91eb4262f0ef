"""A hundred thousand jobs that died at once took half a minute to reach their dead letter topic, with three frames and
a task for each job. A redrive of ten thousand jobs was one request that was silent for several seconds."""

from __future__ import annotations

import pytest

from storage import Discard, Durability, Engine, ReadQuery, TopicConfig
from storage.queues import redrive
from storage.queues.dead_letter import MovedJobs, Mover
from tests.unit.storage.machine import Machine, record, sized
from tests.unit.storage.queues.jobs import claim, turns, with_jobs

JOBS = 300


async def dead(machine: Machine, count: int = JOBS, **settings: object) -> Engine:
    """An engine on which this many jobs have just died."""
    engine = await with_jobs(machine, max_deliveries=1, dead_letter="dead", **settings)
    await engine.put_topic("dead", TopicConfig(durability=Durability.FSYNC))
    for node in ("a", "b"):
        await engine.append("q", [record(number, tag="t") for number in range(count // 2)], node=node)
    return engine


async def nack(engine: Engine, count: int = JOBS, reason: str | None = None) -> None:
    taken = await claim(engine, count)
    await engine.queues.nack("q", "n", [seq for seq, _ in taken], reason=reason)


async def until_moved(engine: Engine, name: str, count: int) -> None:
    for _ in range(50):
        await turns()
        if engine.state(name).count == count:
            return
    raise AssertionError(f"{engine.state(name).count} of {count} have come")


async def dead_letters(engine: Engine) -> list[tuple[bytes, bytes, int, str]]:
    found = (await engine.read("dead", ReadQuery(limit=10_000))).records
    return [(each.node, each.tag, each.value, each.meta["$dead_letter_src_seq"]) for each in found]


async def test_dead_letters_of_a_nack_share_frames(machine: Machine) -> None:
    engine = await dead(machine)
    before = engine.publisher.commits
    await nack(engine, reason="no good")
    await until_moved(engine, "dead", JOBS)
    assert engine.state("q").count == 0
    # The claim, the nack, a Lease, a batch of copies for each node, and a Delete.
    assert engine.publisher.commits - before < 12
    half = JOBS // 2
    assert await dead_letters(engine) == [
        (b"a" if seq < half else b"b", b"t", seq % half, str(seq + 1)) for seq in range(JOBS)
    ]
    engine = await machine.cut_power()
    assert (engine.state("q").count, engine.state("dead").count) == (0, JOBS)
    before = engine.publisher.commits
    assert (await engine.queues.redrive("q", max=JOBS)).moved == JOBS
    assert engine.publisher.commits - before < 12
    engine = await machine.cut_power()
    assert (engine.state("q").count, engine.state("dead").count) == (JOBS, 0)


@pytest.mark.parametrize("when", range(0, 40, 3))
async def test_each_dead_letter_is_moved_once_over_a_crash_at_any_time(machine: Machine, when: int) -> None:
    engine = await dead(machine, 20, leases_durable=True)
    await nack(engine, 20)
    await turns(when)
    engine = await machine.cut_power()
    await until_moved(engine, "dead", 20)
    assert engine.state("q").count == 0
    assert sorted(int(seq) for *_, seq in await dead_letters(engine)) == [*range(1, 21)]


async def test_dead_letters_over_the_cap_wait_and_the_rest_are_moved(machine: Machine) -> None:
    engine = await dead(machine, 20)
    full = TopicConfig(durability=Durability.FSYNC, cap_records=7, discard=Discard.REJECT)
    await engine.put_topic("dead", full)
    await nack(engine, 20)
    await until_moved(engine, "dead", 7)
    assert engine.state("q").count == 13
    await engine.put_topic("dead", TopicConfig(durability=Durability.FSYNC))
    await machine.clock.advance(60_000)
    await until_moved(engine, "dead", 20)
    assert sorted(int(seq) for *_, seq in await dead_letters(engine)) == [*range(1, 21)]


async def test_an_oversized_dead_letter_does_not_delay_smaller_dead_letters(machine: Machine) -> None:
    engine = await dead(machine, 20)
    await engine.append("q", [sized(4000)])
    await engine.put_topic("dead", TopicConfig(durability=Durability.FSYNC, cap_bytes=4000))
    await nack(engine, 21)
    await until_moved(engine, "dead", 20)
    assert engine.queues.figures("q").dead_pending == 1


async def test_a_long_redrive_returns_after_a_part_with_the_remaining_count(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await dead(machine)
    await nack(engine)
    await until_moved(engine, "dead", JOBS)
    monkeypatch.setattr(redrive, "MAX_MOVES", 25)
    monkeypatch.setattr(redrive, "AT_ONCE", 1)
    move_many = Mover.move_many

    async def slow(self: Mover, *arguments: object) -> MovedJobs:
        await machine.clock.advance(redrive.STEP_MS // 2)
        return await move_many(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Mover, "move_many", slow)
    said: list[tuple[int, int]] = []
    while not said or said[-1][1]:
        answer = await engine.queues.redrive("q", max=JOBS)
        said.append((answer.moved, answer.remaining))
    assert said == [(50, 250), (50, 200), (50, 150), (50, 100), (50, 50), (50, 0)]
    assert (engine.state("q").count, engine.state("dead").count) == (JOBS, 0)
