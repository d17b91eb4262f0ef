"""Every workload, stopped at every call to the disk, in every way, and with every call failing: promises are kept.

See `crash_sweep`.
"""

from __future__ import annotations

import pytest

from tests.crash import cold_workloads, consumed_workloads, packed_workloads, partition_workloads, segment_workloads
from tests.crash.workloads import WORKLOADS
from tests.support import crash_run
from tests.support.crash_run import Workload, trace
from tests.support.crash_session import ROOT
from tests.support.crash_sweep import Sweep, torn_cuts

for module in (cold_workloads, consumed_workloads, packed_workloads, partition_workloads, segment_workloads):
    assert module  # enters its own into the table

SWEEP = Sweep(WORKLOADS, crash_run, points=30, errors=20, cuts=torn_cuts)


@pytest.mark.parametrize("name", WORKLOADS)
def test_promises_survive_a_crash_at_some_calls(name: str) -> None:
    assert SWEEP.some_crashes(name) == []


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", WORKLOADS)
def test_promises_survive_a_crash_at_any_call(name: str) -> None:
    assert SWEEP.all_crashes(name) == []


@pytest.mark.parametrize("name", WORKLOADS)
def test_promises_survive_an_error_at_some_calls(name: str) -> None:
    assert SWEEP.some_errors(name) == []


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", WORKLOADS)
def test_promises_survive_an_error_at_any_call(name: str) -> None:
    assert SWEEP.all_errors(name) == []


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload_makes_the_same_calls_every_time(name: str) -> None:
    assert _calls(WORKLOADS[name]) == _calls(WORKLOADS[name])


def _calls(workload: Workload) -> list[str]:
    """Calls to the disk, without the cluster id, which is another one every time."""
    disk = trace(workload).disk
    cluster_id = disk.read_file(f"{ROOT}/FORMAT").split()[1].decode()
    return [str(call).replace(cluster_id, "<cluster id>") for call in disk.calls]
