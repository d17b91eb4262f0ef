"""Runs a workload of `kept_session` until the machine stops, and opens what is left again and again.

The counterpart of `crash_run` for producers, states and offsets. `crash_sweep` calls both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random

from storage import Options
from storage.errors import OutOfOrderSequence, StorageError
from storage.records.values import ProducerBatch
from storage.state.producer_table import last_sequence
from tests.support.crash_check import End
from tests.support.crash_ledger import Outcome
from tests.support.crash_run import SMALL, CrashPoint, Cut, run, until_crash
from tests.support.fake_clock import FakeClock
from tests.support.kept_session import Ledger, Session, check
from tests.support.sim_disk import Loss, SimDisk, When


@dataclass(frozen=True, slots=True)
class KeptWorkload:
    """The steps of a workload, and the options of its engine."""

    name: str
    body: Callable[[Session], Awaitable[None]]
    options: Options = field(default=SMALL)
    #: Makes the machine's empty disk.
    disk: Callable[[], SimDisk] = SimDisk


@dataclass(slots=True)
class Crashed:
    """A stopped machine."""

    disk: SimDisk
    ledger: Ledger
    clock: FakeClock


def trace(workload: KeptWorkload) -> Crashed:
    """Run it to the end, without a crash. The process is then still alive."""
    return run(_run_until(workload, None))


def run_until(workload: KeptWorkload, point: CrashPoint) -> Crashed:
    """Run it until the machine stops at that call."""
    return run(_run_until(workload, point))


async def _run_until(workload: KeptWorkload, point: CrashPoint | None) -> Crashed:
    disk = workload.disk()
    if point is not None:
        disk.crash_at(point.index, point.when)
    session = Session(disk, workload.options)

    async def work() -> None:
        await session.start()
        await workload.body(session)

    await until_crash(disk, work())
    return Crashed(disk, session.ledger, session.clock)


def run_with_error(workload: KeptWorkload, index: int, errno: int) -> Crashed:
    """Run it with one failing call."""
    return run(_run_with_error(workload, index, errno))


async def _run_with_error(workload: KeptWorkload, index: int, errno: int) -> Crashed:
    disk = workload.disk()
    disk.fail("*", nth=index + 1, errno=errno)
    session = Session(disk, workload.options)
    try:
        await session.start()
        await workload.body(session)
    except (OSError, StorageError):
        assert not session.engine.ready, "this came out of an engine that runs, and not as a refusal"
    return Crashed(disk, session.ledger, session.clock)


def examine(workload: KeptWorkload, crashed: Crashed, cut: Cut) -> list[str]:
    """Everything that is wrong after this cut."""
    return run(_examine(workload.options, crashed, cut))


async def _examine(options: Options, crashed: Crashed, cut: Cut) -> list[str]:
    rng = Random(cut.seed)
    power = cut.end is End.POWER
    session = Session(cut.of(crashed.disk), options, crashed.clock, crashed.ledger.copy())
    await session.start()
    problems = await check(session, power=power)
    calls = len(session.disk.calls)
    problems += [f"recovery killed: {each}" for each in await _kill_recovery(options, crashed, cut, calls, rng)]
    again = Session(session.disk.process_kill(), options, crashed.clock, session.ledger)
    await again.start()
    problems += [f"recovered twice: {each}" for each in await check(again, power=False)]
    problems += [f"carrying on: {each}" for each in await _carry_on(again)]
    last = Session(again.disk.power_cut(rng.choice(list(Loss)), rng.randrange(1 << 30)), options, crashed.clock)
    last.ledger = again.ledger
    await last.start()
    await last.claim()
    return problems + [f"crashed again: {each}" for each in await check(last, power=True)]


async def _kill_recovery(options: Options, crashed: Crashed, cut: Cut, calls: int, rng: Random) -> list[str]:
    """Stop the machine somewhere in the recovery, and recover from that."""
    disk = cut.of(crashed.disk)
    disk.crash_at(rng.randrange(calls), rng.choice(list(When)))
    dying = Session(disk, options, crashed.clock)
    await until_crash(disk, dying.start())
    end = rng.choice(list(End))
    found = Cut(end, rng.choice(list(Loss)), rng.randrange(1 << 30)).of(disk)
    session = Session(found, options, crashed.clock, crashed.ledger.copy())
    await session.start()
    return await check(session, power=End.POWER in (end, cut.end))


async def _carry_on(session: Session) -> list[str]:
    """Every producer sends its last batch again, then the next one. Ids, states and offsets continue as well."""
    problems: list[str] = []
    ledger = session.ledger
    newest: dict[tuple[str, int], int] = {}
    for number, batch in enumerate(ledger.batches):
        if batch.outcome is Outcome.DONE:
            newest[batch.topic, batch.producer.producer_id] = number
    for (topic, producer_id), number in newest.items():
        batch = ledger.batches[number]
        answer = await session.resend(number)
        if answer is None or not answer.deduped or answer.first_seq != batch.first_seq:
            problems.append(f"batch {number} at {batch.first_seq} sent again is {answer}")
        base = last_sequence(batch.producer.base_sequence, batch.count + 1)
        await session.send(topic, batch.producer._replace(base_sequence=base), 2, certain=batch.certain)
        gap = ProducerBatch(producer_id, batch.producer.epoch, last_sequence(base, 4))
        try:
            await session.engine.append(topic, b"gap", producer=gap)
            problems.append(f"a gap of producer {producer_id} was taken")
        except OutOfOrderSequence:
            pass
    for kind, first, second in list(ledger.said):
        if kind == "state":
            await session.keep(first, second, b"later")
    await session.claim()
    await asyncio.sleep(0)
    return problems
