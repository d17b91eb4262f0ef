"""Sums and comparisons of columns of numbers that are mostly all the same."""

from __future__ import annotations

from array import array

#: So many numbers are added one by one as quickly as they are compared.
_FEW = 8


def all_equal(numbers: array[int]) -> bool:
    """Whether all are the same, as sizes mostly are: asked with no Python number for each."""
    return numbers[:1] * len(numbers) == numbers


def total(numbers: array[int]) -> int:
    """Their sum; where all are the same with no Python number for each."""
    count = len(numbers)
    return numbers[0] * count if count > _FEW and all_equal(numbers) else sum(numbers)


def largest(numbers: array[int]) -> int:
    """The largest; where all are the same with no Python number for each. Raises ValueError where there is none."""
    return numbers[0] if len(numbers) > _FEW and all_equal(numbers) else max(numbers)
