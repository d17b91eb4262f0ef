"""The newest head of a cell is found in a few round trips, also while others are created."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from storage.bucket import keys
from storage.bucket.base import Head, Named, encode_head, newest_head
from storage.bucket.requests import Get, GetMany, Request, Steps, Unanswered
from storage.bucket.takeover import Candidate
from tests.support.bucket_steps import carry_out

CELL = "cell-00"
OWNER = Candidate("a", "1f" * 16)


def heads(numbers: range) -> dict[str, bytes]:
    return {
        keys.head(CELL, each): encode_head(Head(each, 1, OWNER.seal(0, 1), OWNER.nonce, Named("m", 0, 0)))
        for each in numbers
    }


class Trips:
    """Answers requests, and counts them."""

    def __init__(self, objects: dict[str, bytes], before: Callable[[str], None] = lambda _: None) -> None:
        self.objects = objects
        self.count = 0
        self._before = before
        self.unanswered: set[str] = set()

    def run(self, steps: Steps[Any]) -> Any:
        return carry_out(steps, self._answer)

    def _answer(self, request: Request) -> Any:
        self.count += 1
        match request:
            case Get(key):
                return self._get(key)
            case GetMany(several):
                return [self._get(key) for key in several]
            case _:
                raise AssertionError(request)

    def _get(self, key: str) -> bytes | Unanswered | None:
        self._before(key)
        return Unanswered("no answer") if key in self.unanswered else self.objects.get(key)


COUNTS = [1, 2, 3, 16, 17, 18, 100, 1000, 40_000, 70_000]


@pytest.mark.parametrize(
    ("count", "at_least"), [(count, known) for count in COUNTS for known in (0, 1, 15) if known < count]
)
def test_the_newest_head_is_found_in_a_few_round_trips(count: int, at_least: int) -> None:
    trips = Trips(heads(range(count)))
    found = trips.run(newest_head(CELL, at_least))
    assert found.number == count - 1
    assert trips.count <= 7


def test_a_cell_without_heads_has_no_newest_one() -> None:
    assert Trips({}).run(newest_head(CELL)) is None


def test_a_head_that_is_found_has_no_next_one_although_others_are_created_meanwhile() -> None:
    objects = heads(range(3))
    asked: list[str] = []

    def grow(key: str) -> None:
        asked.append(key)
        if len(asked) == 5:  # some were missing before, and those behind them are there
            objects.update(heads(range(3, 40)))

    found = Trips(objects, grow).run(newest_head(CELL))
    assert found.number == 39


def test_a_head_that_is_not_answered_is_not_taken_for_missing() -> None:
    trips = Trips(heads(range(20)))
    trips.unanswered = {keys.head(CELL, 19)}
    with pytest.raises(Unanswered):
        trips.run(newest_head(CELL))
