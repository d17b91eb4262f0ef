"""Every call of a redrive read all remaining dead letters to count them: half a million of them for 100,000 jobs."""

from __future__ import annotations

import pytest

from storage import Discard, Engine, ReadQuery
from storage.errors import TopicFull
from storage.queues import redrive
from tests.unit.storage.machine import Machine
from tests.unit.storage.queues.jobs import claim_seqs, config, turns, with_jobs

JOBS = 60


async def with_dead_letters(machine: Machine, jobs: int = JOBS, **settings: int) -> Engine:
    engine = await with_jobs(machine, jobs, max_deliveries=1, dead_letter="dead")
    await die(engine, jobs)
    return engine


async def die(engine: Engine, jobs: int) -> None:
    await engine.queues.nack("q", "n", await claim_seqs(engine, jobs))
    await turns(400)


def looks(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The bodies that redrives look at."""
    looked: list[bytes] = []
    came_from = redrive.came_from

    def counted(body: bytes) -> str | None:
        looked.append(body)
        return came_from(body)

    monkeypatch.setattr(redrive, "came_from", counted)
    return looked


async def test_each_dead_letter_is_scanned_once(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = await with_dead_letters(machine)
    looked = looks(monkeypatch)
    for left in range(JOBS - 10, -1, -10):
        done = await engine.queues.redrive("q", max=10)
        assert (done.moved, done.remaining) == (10, left)
    assert len(looked) == JOBS


async def test_dead_letters_added_and_deleted_between_redrives_are_counted(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await with_dead_letters(machine)
    assert (await engine.queues.redrive("q", max=10)).remaining == 50
    left = [each.seq for each in (await engine.read("dead", ReadQuery())).records]
    await engine.delete_records("dead", before_seq=left[20])
    assert (await engine.queues.redrive("q", dry_run=True)).moved == 30
    await die(engine, 10)  # the jobs that were moved back
    looked = looks(monkeypatch)
    done = await engine.queues.redrive("q", max=35)
    assert (done.moved, done.remaining, len(looked)) == (35, 5, 10)


async def test_a_recreated_dead_letter_topic_is_scanned_from_its_start(machine: Machine) -> None:
    engine = await with_dead_letters(machine)
    assert (await engine.queues.redrive("q", max=10)).remaining == 50
    await engine.delete_topic("dead")
    await die(engine, 10)
    assert (await engine.queues.redrive("q", dry_run=True)).moved == 10


async def test_a_redrive_after_a_refused_redrive_scans_all_dead_letters(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await with_dead_letters(machine)
    assert (await engine.queues.redrive("q", max=10)).remaining == 50
    await engine.put_topic("q", config(max_deliveries=1, dead_letter="dead", cap_records=10, discard=Discard.REJECT))
    with pytest.raises(TopicFull):
        await engine.queues.redrive("q", max=10)
    await engine.put_topic("q", config(max_deliveries=1, dead_letter="dead"))
    looked = looks(monkeypatch)
    done = await engine.queues.redrive("q", max=10)
    assert (done.moved, done.remaining, len(looked)) == (10, 40, 50)


async def test_the_memory_of_a_redrive_is_bounded(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redrive, "MOST_SEEN", 20)
    engine = await with_dead_letters(machine)
    for left in (45, 30, 15, 0):
        done = await engine.queues.redrive("q", max=15)
        assert (done.moved, done.remaining) == (15, left)
        assert engine.queues.seen is not None
        assert len(engine.queues.seen.seqs) <= 20
