"""Cells that are stopped at calls to their disks: what moves between them, and what connects them, is there once."""

from __future__ import annotations

from random import Random

import pytest

from tests.crash import foreign_workloads, graph_workloads, move_workloads, spread_workloads
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


def asked(rng: Random) -> graph_workloads.Asked:
    return graph_workloads.Asked(CellPair(rng, graph_workloads.HOMES, count=graph_workloads.CELLS))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", graph_workloads.WORKLOADS)
def test_routers_of_a_set_and_their_graph_stay_the_same_over_a_crash(name: str, size: Size) -> None:
    assert sweep(asked, graph_workloads.WORKLOADS[name], size) == []


def partitions(rng: Random) -> spread_workloads.Spread:
    pair = CellPair(rng, {"t": 0})
    pair.rest_ms = 15_000  # cells that did not answer are told again every second
    return spread_workloads.Spread(pair)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", spread_workloads.WORKLOADS)
def test_partitions_in_two_cells_agree_with_their_topic_after_a_crash(name: str, size: Size) -> None:
    assert sweep(partitions, spread_workloads.WORKLOADS[name], size) == []
