"""Every workload of every family, stopped at calls to the disk in every way, and with failing calls.

See `crash_sweep`. `queues-...` is a workload of the family of queues.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.crash import (
    cold_workloads,
    consumed_workloads,
    consumer_workloads,
    kept_workloads,
    packed_workloads,
    partition_workloads,
    queue_workloads,
    router_workloads,
    segment_workloads,
)
from tests.crash.workloads import WORKLOADS
from tests.support import crash_run, job_run, kept_run, reader_run, route_run
from tests.support.crash_run import Workload, trace
from tests.support.crash_session import ROOT
from tests.support.crash_sweep import SIZES, Size, Sweep, torn_cuts

for module in (cold_workloads, consumed_workloads, packed_workloads, partition_workloads, segment_workloads):
    assert module  # it registers its own in the table

FAMILIES: dict[str, Sweep[Any, Any]] = {
    "records": Sweep(WORKLOADS, crash_run, points=6, errors=4, cuts=torn_cuts),
    "producers": Sweep(kept_workloads.WORKLOADS, kept_run, points=4, errors=2),
    "queues": Sweep(queue_workloads.WORKLOADS, job_run, points=3, errors=2),
    "consumers": Sweep(consumer_workloads.WORKLOADS, reader_run, points=3, errors=2),
    "routers": Sweep(router_workloads.WORKLOADS, route_run, points=3, errors=2),
}
CASES = [pytest.param(sweep, name, id=f"{family}-{name}") for family, sweep in FAMILIES.items() for name in sweep.names]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("sweep", "name"), CASES)
def test_promises_hold_after_a_crash(sweep: Sweep[Any, Any], name: str, size: Size) -> None:
    assert sweep.crashes(name, size) == []


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("sweep", "name"), CASES)
def test_promises_hold_after_a_failed_call(sweep: Sweep[Any, Any], name: str, size: Size) -> None:
    assert sweep.errors(name, size) == []


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload_makes_the_same_calls_every_time(name: str) -> None:
    assert calls_of(WORKLOADS[name]) == calls_of(WORKLOADS[name])


def calls_of(workload: Workload) -> list[str]:
    """Calls to the disk, without the cluster id, which is different in every run."""
    disk = trace(workload).disk
    cluster_id = disk.read_file(f"{ROOT}/FORMAT").split()[1].decode()
    return [str(call).replace(cluster_id, "<cluster id>") for call in disk.calls]
