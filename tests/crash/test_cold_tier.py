"""After any crash the cold tier comes to hold what the manifests name, as they say it, and nothing else."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from random import Random

import pytest

from storage.format.idx_entry import ENTRY_SIZE
from storage.manifest import COLD
from storage.segment import names
from storage.segment_store import id_of
from tests.crash import cold_workloads
from tests.crash.workloads import WORKLOADS
from tests.support.crash_check import End
from tests.support.crash_run import Crashed, CrashPoint, Cut, Workload, run, run_until, run_with_error, trace
from tests.support.crash_session import ROOT, Session
from tests.support.sim_disk import Loss, SimDisk, When

MOUNT = cold_workloads.COLD.cold_dir
NAMES = [name for name, workload in WORKLOADS.items() if workload.options.cold_dir]
SAMPLE = 25


def _objects(disk: SimDisk) -> dict[str, bytes]:
    """Content by key of all that is in the cold directory but for folders."""
    return {
        path.removeprefix(f"{MOUNT}/"): disk.read_file(path)
        for path in disk.tree()
        if path.startswith(f"{MOUNT}/") and not path.endswith("/")
    }


def _problems(session: Session) -> list[str]:
    """Where tier and manifests differ. What is read along proves that a copy of every record is there."""
    engine, disk = session.engine, session.disk
    there = _objects(disk)
    expected: set[str] = set()
    problems: list[str] = []
    cold = engine.store.cold
    assert cold is not None
    for topic in engine.catalog.topics.values():
        log = topic.log
        named: list[dict[str, int]] = []
        for segment in log.held.manifest.segments:
            id = id_of(log.topic_id, segment)
            data_here = disk.exists(names.path(ROOT, id, names.DATA))
            if data_here == (segment.tier == COLD):
                problems.append(f"{id} is {segment.tier}, and its .data is {'' if data_here else 'not '}here")
            if segment.tier != COLD:
                continue
            named.append({"first_seq": segment.first_seq, "end_seq": segment.end_seq, "gen": segment.gen})
            expected |= {cold.key(id, names.DATA), cold.key(id, names.IDX)}
            index = disk.read_file(names.path(ROOT, id, names.IDX))
            if len(index) != segment.count * ENTRY_SIZE or there.get(cold.key(id, names.IDX)) != index:
                problems.append(f"{id}: the .idx there is not the one here")
            if len(there.get(cold.key(id, names.DATA), b"")) != segment.data_bytes:
                problems.append(f"{id}: the .data there is not {segment.data_bytes} bytes long")
        key = cold.topic_key(log.topic_id)
        if named or key in there:
            expected.add(key)
            if key not in there or json.loads(there[key])["segments"] != named:
                problems.append(f"topic.json of {topic.name} does not name {named}")
    problems += [f"{key} is there, and nothing names it" for key in sorted(there.keys() - expected)]
    problems += [f"{key} is not there" for key in sorted(expected - there.keys())]
    if engine.catalog.pending_deletes:
        problems.append(f"still to be deleted: {engine.catalog.pending_deletes}")
    return problems


async def _settled_after(workload: Workload, crashed: Crashed, cut: Cut) -> list[str]:
    session = Session(cut.of(crashed.disk), workload.options, clock=crashed.clock, ledger=crashed.ledger.copy())
    await session.start()
    for _ in range(3):
        await session.absorb()
        await session.relocate()
    assert not session.refusals, session.refusals
    problems = _problems(session)
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
def test_the_tier_is_what_the_manifests_name_after_some_crashes(name: str) -> None:
    rng, workload = Random(random.getrandbits(32)), WORKLOADS[name]
    calls = trace(workload).disk.crash_points()
    points = [CrashPoint(index, rng.choice(list(When))) for index in rng.sample(calls, min(SAMPLE, len(calls)))]
    assert _failures(workload, ((run_until(workload, point), str(point)) for point in points), rng) == []


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", NAMES)
def test_the_tier_is_what_the_manifests_name_after_any_crash(name: str) -> None:
    rng, workload = Random(random.getrandbits(32)), WORKLOADS[name]
    points = [CrashPoint(index, when) for index in trace(workload).disk.crash_points() for when in When]
    assert _failures(workload, ((run_until(workload, point), str(point)) for point in points), rng) == []


@pytest.mark.parametrize("name", NAMES)
def test_the_tier_is_what_the_manifests_name_after_some_errors(name: str) -> None:
    rng, workload = Random(random.getrandbits(32)), WORKLOADS[name]
    calls = range(len(trace(workload).disk.calls))
    tries = ((run_with_error(workload, index, 5), f"errno 5 at call {index}") for index in rng.sample(calls, SAMPLE))
    assert _failures(workload, tries, rng) == []
