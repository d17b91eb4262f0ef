"""Topics with several partitions after a crash, read by the independent decoder.

`test_sweep` has the same workloads and checks the promises to readers and writers.
"""

from __future__ import annotations

import random
from random import Random

import pytest

from tests.crash import partition_workloads
from tests.crash.workloads import WORKLOADS
from tests.support.crash_check import End
from tests.support.crash_driver import undecodable
from tests.support.crash_run import CrashPoint, Cut, Workload, run, run_until, trace
from tests.support.crash_session import ROOT, Session
from tests.support.sim_disk import Loss, SimDisk, When
from tests.support.spec_decoder import Decoded, read_files
from tests.support.spec_partitions import unfinished

assert partition_workloads  # it registers its own in the table
NAMES = [name for name in WORKLOADS if name.startswith("partitions_") and name != "partitions_on_a_full_disk"]


def decoded(disk: SimDisk) -> Decoded:
    files = {path.removeprefix(f"{ROOT}/"): data for path, data in disk.content().items() if "/quarantine/" not in path}
    return read_files({path: lambda data=data: data for path, data in files.items()})


def problems(workload: Workload, point: CrashPoint, cut: Cut) -> list[str]:
    """Problems in the files after the cut, and in those after the next start."""
    crashed = run_until(workload, point)
    disk = cut.of(crashed.disk)
    # Other files may be half written, which recovery handles.
    found = [each for each in undecodable(disk) if "partition" in each]

    async def start() -> None:
        session = Session(disk, workload.options, clock=crashed.clock)
        await session.start()

    run(start())
    after = disk.process_kill()
    return [*found, *undecodable(after), *unfinished(decoded(after).logs)]


def examined(name: str, points: int | None) -> list[str]:
    rng = Random(random.getrandbits(32))
    workload = WORKLOADS[name]
    calls = trace(workload).disk.crash_points()
    tries = [CrashPoint(index, when) for index in calls for when in (When.BEFORE, When.AFTER)]
    found: list[str] = []
    for point in tries if points is None else rng.sample(tries, points):
        loss = rng.choice([Loss.DROP, Loss.KEEP, Loss.PREFIX])
        cut = rng.choice([Cut(End.KILL), Cut(End.POWER, loss, rng.randrange(1 << 30))])
        found += [f"{name}: {point}, {cut}: {each}" for each in problems(workload, point, cut)]
    return found


@pytest.mark.parametrize("name", NAMES)
def test_partitions_are_consistent_after_any_crash(name: str) -> None:
    assert examined(name, 25) == []


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", NAMES)
def test_partitions_fit_together_after_a_crash_at_any_call(name: str) -> None:
    assert examined(name, None) == []
