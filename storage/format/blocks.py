"""Sums and comparisons of columns whose numbers are usually all equal."""

from __future__ import annotations

from array import array

#: Up to this many numbers are added one by one as quickly as they are compared.
_FEW = 8


def all_equal(numbers: array[int]) -> bool:
    """Whether all numbers are equal, as sizes usually are. Creates no Python number for each."""
    return numbers[:1] * len(numbers) == numbers


def total(numbers: array[int]) -> int:
    """The sum. If all numbers are equal, creates no Python number for each."""
    count = len(numbers)
    return numbers[0] * count if count > _FEW and numbers[:1] * count == numbers else sum(numbers)


def largest(numbers: array[int]) -> int:
    """The largest number. If all are equal, creates no Python number for each. Raises ValueError for no numbers."""
    return numbers[0] if len(numbers) > _FEW and all_equal(numbers) else max(numbers)
