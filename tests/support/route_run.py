"""Runs a router workload until the machine stops, and opens what is left again and again. See `crash_run`.

`examine` opens the directory, lets it forward and holds it to the ledger, has the independent decoder read it, kills
that process and opens it again, stops a third recovery at some call and opens what that leaves; then writes more to
every topic, cuts the power once more, and looks again.
"""

from __future__ import annotations

from random import Random
from typing import Any, TypeAlias

from storage import Options
from tests.support.crash_check import End, Ending
from tests.support.crash_drive import Drive, DriveWorkload, Stopped, undecodable
from tests.support.crash_run import Cut, until_crash
from tests.support.crash_view import view
from tests.support.route_check import check
from tests.support.route_session import RouteLedger, RouteSession
from tests.support.sim_disk import Loss, SimDisk, When

RouteWorkload: TypeAlias = DriveWorkload[RouteSession]


async def _opened(disk: SimDisk, options: Options, crashed: Stopped, ledger: RouteLedger | None = None) -> RouteSession:
    session = RouteSession(disk, options, clock=crashed.clock(), ledger=ledger or crashed.ledger.copy())
    await session.start()
    await session.settle()
    return session


async def _examine(options: Options, crashed: Stopped, cut: Cut) -> list[str]:
    rng = Random(cut.seed)
    ending = Ending(cut.end, crashed.orderly)
    disk = cut.of(crashed.disk)
    session = RouteSession(disk, options, clock=crashed.clock(), ledger=crashed.ledger.copy())
    await session.start()
    calls = len(disk.calls)
    await session.settle()
    problems = await check(session.engine, session.ledger, ending)
    problems += undecodable(disk) if crashed.orderly else []
    first = await _seen(session)
    found = await _opened(disk.process_kill(), options, crashed, session.ledger)
    again = await _seen(found)
    problems += [
        f"recovered twice: {name}: {first.get(name)} against {again.get(name)}"
        for name in sorted(first.keys() | again.keys())
        if first.get(name) != again.get(name)
    ]
    problems += [f"recovery killed: {each}" for each in await _kill_recovery(options, crashed, cut, ending, calls, rng)]
    found.ledger.restarts.append(len(found.ledger.sent))
    for state in found.engine.topics():
        await found.append(state.topic, 2, tag="x")
    await found.settle()
    problems += [f"gone on: {each}" for each in await check(found.engine, found.ledger, Ending(End.KILL))]
    loss = rng.choice([Loss.DROP, Loss.TORN, Loss.PREFIX])
    found.ledger.restarts.append(len(found.ledger.sent))
    last = await _opened(found.disk.power_cut(loss, rng.randrange(1 << 30)), options, crashed, found.ledger)
    later = await check(last.engine, last.ledger, Ending(End.POWER))
    return problems + [f"crashed again ({loss}): {each}" for each in later]


async def _seen(session: RouteSession) -> dict[str, Any]:
    """All that can be seen of topics and routers. Times of copies differ from one recovery to the next."""
    topics = await view(session.engine)
    seen: dict[str, Any] = {}
    for name, topic in topics.items():
        seen[name] = ([record.body for record in topic.records], topic.state.epoch, topic.state.config)
    for state in session.engine.routers.page(limit=1000):
        seen[f"router {state.name}"] = (state.definition, state.lag)
    return seen


async def _kill_recovery(
    options: Options, crashed: Stopped, cut: Cut, ending: Ending, calls: int, rng: Random
) -> list[str]:
    """Stop the machine somewhere in the recovery, and recover from that."""
    disk = cut.of(crashed.disk)
    disk.crash_at(rng.randrange(calls), rng.choice(list(When)))
    dying = RouteSession(disk, options, clock=crashed.clock())
    await until_crash(disk, dying.start())
    end = rng.choice(list(End))
    found = await _opened(Cut(end, rng.choice(list(Loss)), rng.randrange(1 << 30)).of(disk), options, crashed)
    worst = End.POWER if End.POWER in (end, ending.end) else End.KILL
    return await check(found.engine, found.ledger, Ending(worst, orderly=False))


DRIVE = Drive(RouteSession, _examine)
