"""Runs a consumer workload until the machine stops, and opens what is left again and again. See `crash_driver`.

`examine` opens the directory, compares it with the ledger, and has the independent decoder read it. It kills that
process and opens the directory again, stops a third recovery at some call and opens what that leaves. Then every
consumer reads on while more is written, the power is cut once more, and the rest is checked again.
"""

from __future__ import annotations

from random import Random
from typing import Any, TypeAlias

from storage import Options
from tests.support import crash_driver
from tests.support.crash_check import End
from tests.support.crash_driver import Driver, recovered_differently, undecodable
from tests.support.crash_ledger import Outcome
from tests.support.crash_run import Cut, run
from tests.support.crash_view import view
from tests.support.reader_check import check, read_on
from tests.support.reader_session import ReaderLedger, ReaderSession
from tests.support.sim_disk import Loss

ReaderWorkload: TypeAlias = crash_driver.Workload[ReaderSession]
Crashed: TypeAlias = crash_driver.Crashed[ReaderLedger]

DRIVER: Driver[ReaderSession, ReaderLedger] = Driver(ReaderSession)
trace = DRIVER.trace
run_until = DRIVER.run_until
run_with_error = DRIVER.run_with_error


def examine(workload: ReaderWorkload, crashed: Crashed, cut: Cut) -> list[str]:
    """Everything that is wrong after this cut."""
    return run(_examine(workload.options, crashed, cut))


async def _examine(options: Options, crashed: Crashed, cut: Cut) -> list[str]:
    rng = Random(cut.seed)
    disk = cut.of(crashed.disk)
    killed = cut.end is End.KILL and crashed.orderly
    session = await DRIVER.opened(disk, options, crashed)
    calls = len(disk.calls)
    problems = await check(session, killed=killed)
    problems += undecodable(disk) if crashed.orderly else []
    first = await _seen(session)
    found = await DRIVER.opened(disk.process_kill(), options, crashed, session.ledger)
    problems += recovered_differently(first, await _seen(found))
    third, _ = await DRIVER.opened_behind_killed_recovery(options, crashed, cut, calls, rng)
    problems += [f"recovery killed: {each}" for each in [*await check(third, killed=False), *await read_on(third)]]
    problems += [f"read on: {each}" for each in await read_on(found)]
    await _go_on(found)
    loss = rng.choice([Loss.DROP, Loss.TORN, Loss.PREFIX])
    last = await DRIVER.opened(found.disk.power_cut(loss, rng.randrange(1 << 30)), options, crashed, found.ledger)
    problems += [f"crashed again ({loss}): {each}" for each in await check(last, killed=False)]
    return problems + [f"read on again: {each}" for each in await read_on(last)]


async def _go_on(found: ReaderSession) -> None:
    """Append more records, which everybody reads. Most of that is not in the log yet."""
    for state in found.engine.topics():
        await found.append(state.topic, 7)
    for life in list(found.ledger.lives):
        if life.made is Outcome.DONE and life.deleted is None and life.topic not in found.ledger.gone:
            await found.read(life.topic, life.name, 2, times=3)


async def _seen(session: ReaderSession) -> dict[str, Any]:
    """Everything that is visible of topics and consumers."""
    seen: dict[str, Any] = {}
    for name, topic in (await view(session.engine)).items():
        seen[name] = ([record.body for record in topic.records], topic.state.epoch, topic.state.config)
        if topic.state.config.durability != "ephemeral" and topic.state.config.type == "log":
            for state in session.engine.consumers.list(name, limit=1000):
                seen[f"consumer {state.consumer} of {name}"] = state
    return seen
