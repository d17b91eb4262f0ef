"""The workloads on a machine whose log goes into slots. A power cut takes the whole disk, so that only the bucket is
left.

Each snapshot is followed by a base, and the next machine begins with one of the two newest. See `crash_sweep`. The log
of a cell in a bucket has one shard, and its segments are not packed.
"""

from __future__ import annotations

import dataclasses
from random import Random
from typing import Any

import msgspec
import pytest

from storage import Options
from storage.segments import names
from tests.crash import (
    bucket_cold_workloads,
    consumer_workloads,
    foreign_workloads,
    kept_workloads,
    move_workloads,
    queue_workloads,
    router_workloads,
    segment_workloads,
)
from tests.crash.workloads import WORKLOADS
from tests.support import crash_run, job_run, kept_run, pair_sweep, reader_run, route_run
from tests.support.bucket_disk import BucketDisk
from tests.support.cell_pair import CellPair
from tests.support.crash_run import SMALL, CrashPoint, trace
from tests.support.crash_sweep import SIZES, Size, Sweep
from tests.support.sim_disk import When

assert segment_workloads  # it registers its own in the table


def options_of(options: Options) -> Options:
    """As an owner of a cell has them."""
    return msgspec.structs.replace(options, wal_shards=1, segment_pack_bytes=0, put_interval_ms=0, sync_leases=True)


def in_a_bucket(workloads: dict[str, Any]) -> dict[str, Any]:
    """The workloads with one log, on such a machine."""
    return {
        name: dataclasses.replace(
            each,
            disk=BucketDisk,
            options=options_of(each.options),
        )
        for name, each in workloads.items()
        if each.options.wal_shards == 1
    }


FAMILIES: dict[str, Sweep[Any, Any]] = {
    "cold": Sweep(in_a_bucket(bucket_cold_workloads.WORKLOADS), crash_run, points=3, errors=2),
    "records": Sweep(in_a_bucket(WORKLOADS), crash_run, points=3, errors=2),
    "producers": Sweep(in_a_bucket(kept_workloads.WORKLOADS), kept_run, points=2, errors=1),
    "queues": Sweep(in_a_bucket(queue_workloads.WORKLOADS), job_run, points=2, errors=1),
    "consumers": Sweep(in_a_bucket(consumer_workloads.WORKLOADS), reader_run, points=2, errors=1),
    "routers": Sweep(in_a_bucket(router_workloads.WORKLOADS), route_run, points=2, errors=1),
}
CASES = [pytest.param(sweep, name, id=f"{family}-{name}") for family, sweep in FAMILIES.items() for name in sweep.names]
#: At size FEW there is one case for each family.
SOME = [size for size in SIZES if size.id != Size.FEW]


@pytest.mark.parametrize("size", SOME)
@pytest.mark.parametrize(("sweep", "name"), CASES)
def test_promises_hold_when_the_machine_is_lost(sweep: Sweep[Any, Any], name: str, size: Size) -> None:
    assert sweep.crashes(name, size) == []


@pytest.mark.parametrize("size", SOME)
@pytest.mark.parametrize(("sweep", "name"), CASES)
def test_promises_hold_after_a_failed_call(sweep: Sweep[Any, Any], name: str, size: Size) -> None:
    assert sweep.errors(name, size) == []


def jobs(rng: Random) -> move_workloads.Jobs:
    return move_workloads.Jobs(CellPair(rng, move_workloads.OWNERS, options_of(SMALL), disk=BucketDisk))


def test_copies_from_a_queue_that_was_deleted_while_they_were_written_are_forgotten() -> None:
    point = CrashPoint(index=18, when=When.HALF)
    assert pair_sweep.run_pair(jobs, move_workloads.the_queue_is_deleted, 302469132, 0, point)[0] == []


def routed(rng: Random) -> foreign_workloads.Routed:
    options = options_of(foreign_workloads.SEGMENTS)
    return foreign_workloads.Routed(CellPair(rng, foreign_workloads.OWNERS, options, disk=BucketDisk))


@pytest.mark.parametrize("size", SOME)
@pytest.mark.parametrize("name", move_workloads.WORKLOADS)
def test_jobs_moved_between_cells_in_a_bucket_are_neither_lost_nor_doubled(name: str, size: Size) -> None:
    assert pair_sweep.sweep(jobs, move_workloads.WORKLOADS[name], size) == []


@pytest.mark.parametrize("size", SOME)
@pytest.mark.parametrize("name", foreign_workloads.WORKLOADS)
def test_records_routed_between_cells_in_a_bucket_are_neither_lost_nor_doubled(name: str, size: Size) -> None:
    assert pair_sweep.sweep(routed, foreign_workloads.WORKLOADS[name], size) == []


@pytest.mark.parametrize("family", FAMILIES)
def test_promises_hold_for_one_workload_of_each_family(family: str) -> None:
    sweep = FAMILIES[family]
    name = sweep.names[0]
    assert sweep.crashes(name, Size.FEW) + sweep.errors(name, Size.FEW) == []


@pytest.mark.parametrize("name", bucket_cold_workloads.WORKLOADS)
def test_the_workloads_move_segments_to_the_bucket(name: str) -> None:
    calls = trace(in_a_bucket(bucket_cold_workloads.WORKLOADS)[name]).disk.calls
    assert any(call.op == "unlink" and call.path.endswith(names.DATA) for call in calls)


def test_segments_that_are_only_in_a_base_are_read() -> None:
    crashed = trace(in_a_bucket(WORKLOADS)["segments_rewritten_and_dropped"])
    assert isinstance(crashed.disk, BucketDisk)
    assert len(crashed.disk.bases) == 2
    assert len(crashed.disk.slots) < crashed.disk.end
    assert any("/segments/" in key for key in crashed.disk.objects)
