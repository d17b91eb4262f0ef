"""After any crash the cold tier gets exactly the files that the manifests name, with the named contents."""

from __future__ import annotations

import random
from collections.abc import Iterable
from random import Random

import pytest

from tests.crash import cold_workloads, packed_workloads
from tests.crash.cold_view import MOUNT, tier_problems
from tests.crash.workloads import WORKLOADS
from tests.support.crash_check import End
from tests.support.crash_run import Crashed, CrashPoint, Cut, Workload, run, run_until, run_with_error, trace
from tests.support.crash_session import ROOT, Session
from tests.support.sim_disk import Loss, When

assert cold_workloads
assert packed_workloads  # they register themselves
NAMES = [name for name, workload in WORKLOADS.items() if workload.options.cold_dir]
SAMPLE = 25


async def _settled_after(workload: Workload, crashed: Crashed, cut: Cut) -> list[str]:
    session = Session(cut.of(crashed.disk), workload.options, clock=crashed.clock, ledger=crashed.ledger.copy())
    await session.start()
    for _ in range(3):
        await session.mark_flushed()
        await session.relocate()
    assert not session.refusals, session.refusals
    problems = tier_problems(session)
    await session.engine.close()
    return problems


def _failures(workload: Workload, tries: Iterable[tuple[Crashed, str]], rng: Random) -> list[str]:
    found: list[str] = []
    for crashed, where in tries:
        for cut in (Cut(End.KILL), Cut(End.POWER, rng.choice(list(Loss)), rng.randrange(1 << 30))):
            problems = run(_settled_after(workload, crashed, cut))
            if problems:
                found.append("\n  ".join([f"{workload.name}: {where}, {cut}", *problems]))
    return found


@pytest.mark.parametrize("name", NAMES)
def test_the_workloads_do_move_segments(name: str) -> None:
    calls = trace(WORKLOADS[name]).disk.calls
    assert any(call.op == "unlink" and call.path.startswith(ROOT) and call.path.endswith(".data") for call in calls)
    assert any(call.op == "rename" and call.path.startswith(MOUNT) and "topic.json" in call.path for call in calls)


@pytest.mark.parametrize("name", NAMES)
def test_the_cold_tier_matches_the_manifests_after_sampled_crashes(name: str) -> None:
    rng, workload = Random(random.getrandbits(32)), WORKLOADS[name]
    calls = trace(workload).disk.crash_points()
    points = [CrashPoint(index, rng.choice(list(When))) for index in rng.sample(calls, min(SAMPLE, len(calls)))]
    assert _failures(workload, ((run_until(workload, point), str(point)) for point in points), rng) == []


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", NAMES)
def test_the_cold_tier_matches_the_manifests_after_any_crash(name: str) -> None:
    rng, workload = Random(random.getrandbits(32)), WORKLOADS[name]
    points = [CrashPoint(index, when) for index in trace(workload).disk.crash_points() for when in When]
    assert _failures(workload, ((run_until(workload, point), str(point)) for point in points), rng) == []


@pytest.mark.parametrize("name", NAMES)
def test_the_cold_tier_matches_the_manifests_after_sampled_errors(name: str) -> None:
    rng, workload = Random(random.getrandbits(32)), WORKLOADS[name]
    calls = range(len(trace(workload).disk.calls))
    tries = ((run_with_error(workload, index, 5), f"errno 5 at call {index}") for index in rng.sample(calls, SAMPLE))
    assert _failures(workload, tries, rng) == []
