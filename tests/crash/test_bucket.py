"""Owners of a cell in a bucket, stopped, paused and cut off at any request: their answers stay true."""

from __future__ import annotations

import random
from random import Random

import pytest

from tests.support.bucket_cell import Cell, facts
from tests.support.sim_bucket import World

SEEDS = [
    pytest.param(40, id="some", marks=pytest.mark.fast),
    pytest.param(400, id="more", marks=pytest.mark.slow),
    pytest.param(20_000, id="many", marks=[pytest.mark.soak, pytest.mark.timeout(4 * 3600)]),
]


def history(seed: int, faults: float = 0.05, without: str = "") -> Cell:
    """Two minutes of a cell."""
    cell = Cell(World(Random(seed), faults=faults), without=without)
    cell.live(seconds=120)
    return cell


@pytest.mark.parametrize("count", SEEDS)
def test_answers_of_owners_stay_true_whatever_happens(count: int) -> None:
    first = random.getrandbits(32)
    wrong: list[str] = []
    for seed in range(first, first + count):
        wrong += [f"history({seed}): {each}" for each in history(seed).problems()[:3]]
    assert wrong == []


def test_histories_have_several_owners_and_deletions() -> None:
    happened = dict.fromkeys(facts(Cell(World(Random(0)))), 0)
    for seed in range(60):
        for name, count in facts(history(seed)).items():
            happened[name] += count
    assert all(happened.values()), happened


@pytest.mark.parametrize("rule", ["silence", "time", "in front", "own base", "outcome"])
def test_histories_find_what_a_rule_excludes(rule: str) -> None:
    assert any(history(seed, without=rule).problems() for seed in range(60))


def test_an_owner_without_faults_stays_owner() -> None:
    cell = Cell(World(Random(1), faults=0.0))
    cell.world.run(60)
    assert (cell.takeovers, cell.again) == (1, 0)
    assert len(cell.answered) > 100
    assert cell.problems() == []
