"""Columns of numbers: an operation on all of them gives the same results as on each."""

from __future__ import annotations

from array import array

import pytest

from kernel import all_equal, largest, total

COLUMNS = [[7], [7] * 8, [7] * 9, [7] * 1000, [7] * 999 + [8], [9] + [7] * 999, [7] * 500 + [6] + [7] * 499, [0] * 20]


@pytest.mark.parametrize("numbers", COLUMNS, ids=lambda numbers: f"{len(numbers)} of {sorted({*numbers})}")
def test_columns_are_summed_and_compared_as_numbers_are(numbers: list[int]) -> None:
    column = array("I", numbers)
    assert total(column) == sum(numbers)
    assert largest(column) == max(numbers)
    assert all_equal(column) == (len({*numbers}) == 1)


def test_a_column_without_numbers_has_no_largest() -> None:
    assert total(array("I")) == 0
    with pytest.raises(ValueError, match="empty"):
        largest(array("I"))
