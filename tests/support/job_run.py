"""Runs a queue workload until the machine stops, and opens what is left again and again. See `crash_driver`.

`examine` opens the directory, compares it with the ledger, and has the independent decoder read it. It kills that
process and opens the directory again (the same state), stops a third recovery at some call and opens what that leaves.
Then it takes all jobs out, cuts the power once more, and checks that none is back.
"""

from __future__ import annotations

from random import Random
from typing import Any, TypeAlias

from storage import Options
from tests.support import crash_driver
from tests.support.crash_check import End, Ending
from tests.support.crash_driver import Driver, recovered_differently, undecodable
from tests.support.crash_run import Cut, run
from tests.support.crash_view import TopicView, view
from tests.support.job_check import check, listing
from tests.support.job_drain import drain
from tests.support.job_ledger import JobLedger
from tests.support.job_session import JobSession
from tests.support.sim_disk import Loss, SimDisk

#: Turns of the loop within which open moves complete.
SETTLING_TURNS = 200

JobWorkload: TypeAlias = crash_driver.Workload[JobSession]
Crashed: TypeAlias = crash_driver.Crashed[JobLedger]

DRIVER: Driver[JobSession, JobLedger] = Driver(JobSession)
trace = DRIVER.trace
run_until = DRIVER.run_until
run_with_error = DRIVER.run_with_error


def examine(workload: JobWorkload, crashed: Crashed, cut: Cut) -> list[str]:
    """Everything that is wrong after this cut."""
    return run(_examine(workload.options, crashed, cut))


async def _examine(options: Options, crashed: Crashed, cut: Cut) -> list[str]:
    rng = Random(cut.seed)
    ending = Ending(cut.end, crashed.orderly)
    disk = cut.of(crashed.disk)
    session = await DRIVER.opened(disk, options, crashed)
    calls = len(disk.calls)
    problems = await check(session.engine, session.ledger, ending)
    first = await _seen(session, crashed)
    problems += undecodable(disk) if crashed.orderly else []
    problems += await _recovered_again(disk, options, crashed, first)
    third, worst = await DRIVER.opened_behind_killed_recovery(options, crashed, cut, calls, rng)
    problems += [f"recovery killed: {each}" for each in await check(third.engine, third.ledger, worst)]
    found = await DRIVER.opened(disk.process_kill(), options, crashed, session.ledger)
    problems += await check(found.engine, found.ledger, Ending(End.KILL))
    problems += [f"drained: {each}" for each in await drain(found)]
    loss = rng.choice([Loss.DROP, Loss.TORN, Loss.PREFIX])
    cut_again = found.disk.power_cut(loss, rng.randrange(1 << 30))
    last = await DRIVER.opened(cut_again, options, crashed, found.ledger, clock=found.clock)
    later = await check(last.engine, last.ledger, Ending(End.POWER))
    return problems + [f"crashed again ({loss}): {each}" for each in later]


Seen = tuple[dict[str, TopicView], dict[str, Any]]


async def _seen(session: JobSession, crashed: Crashed) -> Seen:
    """Everything that is visible of topics and queues.

    Leases that survived a clean stop and are not durable are left out: the next recovery, after a crash, may drop them.
    """
    await session.settle(SETTLING_TURNS)
    topics = await view(session.engine)
    queues: dict[str, Any] = {}
    for name, queue in session.ledger.queues.items():
        if queue.holds_dead or name not in topics:
            continue
        if queue.config.leases_durable or not crashed.ledger.perhaps_clean:
            queues[name] = listing(session.engine, name)
        else:
            topics[name].state.queue = None
    return topics, queues


async def _recovered_again(disk: SimDisk, options: Options, crashed: Crashed, first: Seen) -> list[str]:
    """What two recoveries of one directory disagree about."""
    again = await _seen(await DRIVER.opened(disk.process_kill(), options, crashed), crashed)
    return [each for one, two in zip(first, again, strict=True) for each in recovered_differently(one, two)]
