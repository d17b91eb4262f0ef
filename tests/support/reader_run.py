"""Runs a consumer workload until the machine stops, and opens what is left again and again. See `crash_drive`.

`examine` opens the directory, holds it to the ledger, has the independent decoder read it, kills that process and opens
it again, stops a third recovery at some call and opens what that leaves; then every consumer reads on while more is
written, the power is cut once more, and what is left is looked at again.
"""

from __future__ import annotations

from random import Random
from typing import Any, TypeAlias

from storage import Options
from tests.support.crash_check import End
from tests.support.crash_drive import Drive, DriveWorkload, Stopped, undecodable
from tests.support.crash_ledger import Outcome
from tests.support.crash_run import Cut, until_crash
from tests.support.crash_view import view
from tests.support.reader_check import check, read_on
from tests.support.reader_session import ReaderLedger, ReaderSession
from tests.support.sim_disk import Loss, SimDisk, When

ReaderWorkload: TypeAlias = DriveWorkload[ReaderSession]


async def _opened(
    disk: SimDisk, options: Options, crashed: Stopped, ledger: ReaderLedger | None = None
) -> ReaderSession:
    session = ReaderSession(disk, options, clock=crashed.clock(), ledger=ledger or crashed.ledger.copy())
    await session.start()
    return session


async def _examine(options: Options, crashed: Stopped, cut: Cut) -> list[str]:
    rng = Random(cut.seed)
    disk = cut.of(crashed.disk)
    killed = cut.end is End.KILL and crashed.orderly
    session = await _opened(disk, options, crashed)
    calls = len(disk.calls)
    problems = await check(session, killed=killed)
    problems += undecodable(disk) if crashed.orderly else []
    first = await _seen(session)
    found = await _opened(disk.process_kill(), options, crashed, session.ledger)
    again = await _seen(found)
    problems += [
        f"recovered twice: {name}: {first.get(name)} against {again.get(name)}"
        for name in sorted(first.keys() | again.keys())
        if first.get(name) != again.get(name)
    ]
    problems += [f"recovery killed: {each}" for each in await _kill_recovery(options, crashed, cut, calls, rng)]
    problems += [f"read on: {each}" for each in await read_on(found)]
    await _go_on(found)
    loss = rng.choice([Loss.DROP, Loss.TORN, Loss.PREFIX])
    last = await _opened(found.disk.power_cut(loss, rng.randrange(1 << 30)), options, crashed, found.ledger)
    problems += [f"crashed again ({loss}): {each}" for each in await check(last, killed=False)]
    return problems + [f"read on again: {each}" for each in await read_on(last)]


async def _go_on(found: ReaderSession) -> None:
    """More records, read by everybody, most of it not yet known to the log."""
    for state in found.engine.topics():
        await found.append(state.topic, 7)
    for life in list(found.ledger.lives):
        if life.made is Outcome.DONE and life.deleted is None and life.topic not in found.ledger.gone:
            await found.read(life.topic, life.name, 2, times=3)


async def _seen(session: ReaderSession) -> dict[str, Any]:
    """All that can be seen of topics and consumers."""
    seen: dict[str, Any] = {}
    for name, topic in (await view(session.engine)).items():
        seen[name] = ([record.body for record in topic.records], topic.state.epoch, topic.state.config)
        if topic.state.config.durability != "ephemeral" and topic.state.config.type == "log":
            for state in session.engine.consumers.list(name, limit=1000):
                seen[f"consumer {state.consumer} of {name}"] = state
    return seen


async def _kill_recovery(options: Options, crashed: Stopped, cut: Cut, calls: int, rng: Random) -> list[str]:
    """Stop the machine somewhere in the recovery, and recover from that."""
    disk = cut.of(crashed.disk)
    disk.crash_at(rng.randrange(calls), rng.choice(list(When)))
    dying = ReaderSession(disk, options, clock=crashed.clock())
    await until_crash(disk, dying.start())
    end = rng.choice(list(End))
    found = await _opened(Cut(end, rng.choice(list(Loss)), rng.randrange(1 << 30)).of(disk), options, crashed)
    problems = await check(found, killed=False)
    return problems + await read_on(found)


DRIVE = Drive(ReaderSession, _examine)
