"""Two cells, either of which is stopped at calls to its disk. What moves between them exists once."""

from __future__ import annotations

from random import Random

import pytest

from tests.crash import foreign_workloads, move_workloads
from tests.support.cell_pair import CellPair
from tests.support.crash_sweep import SIZES, Size
from tests.support.pair_sweep import sweep


def jobs(rng: Random) -> move_workloads.Jobs:
    return move_workloads.Jobs(CellPair(rng, move_workloads.OWNERS))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", move_workloads.WORKLOADS)
def test_jobs_moved_between_cells_are_neither_lost_nor_doubled_by_a_crash(name: str, size: Size) -> None:
    assert sweep(jobs, move_workloads.WORKLOADS[name], size) == []


def routed(rng: Random) -> foreign_workloads.Routed:
    return foreign_workloads.Routed(CellPair(rng, foreign_workloads.OWNERS, foreign_workloads.SEGMENTS))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", foreign_workloads.WORKLOADS)
def test_records_routed_between_cells_are_neither_lost_nor_doubled_by_a_crash(name: str, size: Size) -> None:
    assert sweep(routed, foreign_workloads.WORKLOADS[name], size) == []
