"""Runs a router workload until the machine stops, and opens what is left again and again. See `crash_driver`.

`examine` opens the directory, lets it forward, compares it with the ledger, and has the independent decoder read it. It
kills that process and opens the directory again, stops a third recovery at some call and opens what that leaves. Then
it writes more to every topic, cuts the power once more, and checks again.
"""

from __future__ import annotations

from random import Random
from typing import Any, TypeAlias

from storage import Options
from tests.support import crash_driver
from tests.support.crash_check import End, Ending
from tests.support.crash_driver import Driver, recovered_differently, undecodable
from tests.support.crash_run import Cut, run
from tests.support.crash_view import view
from tests.support.route_check import check
from tests.support.route_session import RouteLedger, RouteSession
from tests.support.sim_disk import Loss

RouteWorkload: TypeAlias = crash_driver.Workload[RouteSession]
Crashed: TypeAlias = crash_driver.Crashed[RouteLedger]

DRIVER: Driver[RouteSession, RouteLedger] = Driver(
    RouteSession, stopped=lambda ledger: ledger.restarts.append(len(ledger.sent))
)
trace = DRIVER.trace
run_until = DRIVER.run_until
run_with_error = DRIVER.run_with_error


def examine(workload: RouteWorkload, crashed: Crashed, cut: Cut) -> list[str]:
    """Everything that is wrong after this cut."""
    return run(_examine(workload.options, crashed, cut))


async def _examine(options: Options, crashed: Crashed, cut: Cut) -> list[str]:
    rng = Random(cut.seed)
    ending = Ending(cut.end, crashed.orderly)
    disk = cut.of(crashed.disk)
    session = await DRIVER.opened(disk, options, crashed)
    calls = len(disk.calls)
    await session.settle()
    problems = await check(session.engine, session.ledger, ending)
    problems += undecodable(disk) if crashed.orderly else []
    first = await _seen(session)
    found = await DRIVER.opened(disk.process_kill(), options, crashed, session.ledger)
    await found.settle()
    problems += recovered_differently(first, await _seen(found))
    third, worst = await DRIVER.opened_behind_killed_recovery(options, crashed, cut, calls, rng)
    await third.settle()
    problems += [f"recovery killed: {each}" for each in await check(third.engine, third.ledger, worst)]
    found.ledger.restarts.append(len(found.ledger.sent))
    for state in found.engine.topics():
        await found.append(state.topic, 2, tag="x")
    await found.settle()
    problems += [f"gone on: {each}" for each in await check(found.engine, found.ledger, Ending(End.KILL))]
    loss = rng.choice([Loss.DROP, Loss.TORN, Loss.PREFIX])
    found.ledger.restarts.append(len(found.ledger.sent))
    cut_again = found.disk.power_cut(loss, rng.randrange(1 << 30))
    last = await DRIVER.opened(cut_again, options, crashed, found.ledger)
    await last.settle()
    later = await check(last.engine, last.ledger, Ending(End.POWER))
    return problems + [f"crashed again ({loss}): {each}" for each in later]


async def _seen(session: RouteSession) -> dict[str, Any]:
    """Everything that is visible of topics and routers. Times of copies differ from one recovery to the next."""
    topics = await view(session.engine)
    seen: dict[str, Any] = {}
    for name, topic in topics.items():
        seen[name] = ([record.body for record in topic.records], topic.state.epoch, topic.state.config)
    for state in session.engine.routers.page(limit=1000):
        seen[f"router {state.name}"] = (state.definition, state.lag)
    return seen
