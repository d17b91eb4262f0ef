"""How the gateway divides a watch between the cells of partitions, and puts their answers together."""

from __future__ import annotations

import pytest

from broker.cells import address_in
from broker.gateway.owners import Owners
from broker.gateway.partitions import numbers_of, opened, part_of


@pytest.mark.parametrize(
    ("start", "numbers"),
    [
        (None, [0]),
        ({}, [0]),
        ({"from_seq": 3}, [0]),
        ({"partition": 2}, [2]),
        ({"partitions": [3, 1, 3]}, [3, 1]),
        ({"partition": 1, "partitions": [2, 1]}, [1, 2]),
        ({"partitions": []}, [0]),
        ({"partitions": "1"}, [0]),
        ({"partition": True}, [0]),
        ({"partition": -1}, [0]),
        ({"partition": 5000}, [0]),
        (7, [0]),
    ],
)
def test_the_partitions_of_a_start(start: object, numbers: list[int]) -> None:
    assert numbers_of(start) == numbers


def test_a_part_of_a_start_keeps_its_other_fields() -> None:
    assert part_of({"from_seq": 7, "partition": 1, "partitions": [2, 4]}, [2]) == {"from_seq": 7, "partitions": [2]}


def test_answers_of_cells_become_one_in_the_order_of_the_request() -> None:
    def part(number: int) -> dict[str, int]:
        return {"from_seq": number, "head_seq": 10 + number, "earliest_seq": 1}

    starts = {"t": {"partitions": [2, 0, 1, 3]}, "u": None, "gone": None}
    by_cell = {
        0: {"t": {"partitions": [0, 3]}, "u": None},
        1: {"t": {"partitions": [1]}},
        2: {"t": {"partitions": [2]}},
    }
    said = {
        0: {"t": {**part(0), "partitions": [{"partition": each, **part(each)} for each in (0, 3)]}, "u": part(5)},
        1: {"t": part(1)},
        2: {"t": part(2)},
    }
    assert opened(starts, by_cell, said) == {
        "t": {**part(2), "partitions": [{"partition": each, **part(each)} for each in (2, 0, 1, 3)]},
        "u": part(5),
    }


@pytest.mark.parametrize(
    ("query", "address"),
    [
        (b"", "t"),
        (b"partition=0", "t"),
        (b"partition=3", "t/3"),
        (b"limit=1&partition=12&x=1", "t/12"),
        (b"subpartition=3", "t"),
        (b"partition=x", "t"),
        (b"partition=", "t"),
        (b"partition=99999", "t"),
    ],
)
def test_the_partition_that_a_query_names(query: bytes, address: str) -> None:
    assert address_in("t", query) == address


def test_partitions_are_learned_by_themselves() -> None:
    owners = Owners(3)
    home = owners.cell("t")
    assert owners.cell("t/1") == home
    other = (home + 1) % 3
    assert owners.learn("t/1", other, home)
    assert (owners.cell("t/1"), owners.cell("t")) == (other, home)
    owners.forget("t/1")
    assert owners.cell("t/1") == home
