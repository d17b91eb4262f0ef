"""Deals jobs to claims that are served together. Pure. Source: api.md §6 (claim_jitter_ms)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def deal(jobs: Sequence[T], wanted: Sequence[int]) -> list[list[T]]:
    """One hand for each number in `wanted`, with at most so many jobs: dealt round-robin, in the order of the jobs."""
    hands: list[list[T]] = [[] for _ in wanted]
    open_hands = [index for index, count in enumerate(wanted) if count > 0]
    at = 0
    while open_hands and at < len(jobs):
        for index in list(open_hands):
            if at == len(jobs):
                break
            hands[index].append(jobs[at])
            at += 1
            if len(hands[index]) == wanted[index]:
                open_hands.remove(index)
    return hands
