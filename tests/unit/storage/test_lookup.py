"""Seqs that a lookup found for a Delete are cut to a range, in order and without duplicates."""

from __future__ import annotations

import pytest

from storage.state.lookup import FoundRecords

CASES: dict[str, tuple[list[int], tuple[int, int], list[int]]] = {
    "all of a run": ([4, 5, 6], (4, 6), [4, 5, 6]),
    "a run that ends behind": ([4, 5, 6, 7], (4, 6), [4, 5, 6]),
    "a run that begins in front": ([3, 4, 5, 6], (4, 6), [4, 5, 6]),
    "out of order, ends like a run": ([4, 6, 5, 7], (1, 9), [4, 5, 6, 7]),
    "twice, ends like a run": ([4, 5, 5, 7], (1, 9), [4, 5, 7]),
    "with holes": ([4, 9, 12], (1, 99), [4, 9, 12]),
    "too far apart for a list of all between them": ([1, 1 << 50], (0, 1 << 60), [1, 1 << 50]),
    "descending": ([6, 5, 4], (1, 9), [4, 5, 6]),
    "none in reach": ([4, 5], (6, 9), []),
    "nothing is in reach": ([4, 5], (6, 3), []),
    "none": ([], (1, 9), []),
}


@pytest.mark.parametrize("case", list(CASES))
def test_found_seqs_are_cut_to_a_range_in_order_and_without_duplicates(case: str) -> None:
    seqs, reach, expected = CASES[case]
    assert FoundRecords(0, seqs, [seq * 10 for seq in seqs]).between(*reach) == (
        expected,
        [seq * 10 for seq in expected],
    )
