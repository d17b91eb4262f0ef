"""Distributes jobs to claims that are served at the same time. Pure.

Source: docs/reference/api.md#queues.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def distribute(jobs: Sequence[T], wanted: Sequence[int]) -> list[list[T]]:
    """One list for each number in `wanted`, with at most that many jobs: assigned round-robin, in the order of the
    jobs."""
    shares: list[list[T]] = [[] for _ in wanted]
    open_shares = [index for index, count in enumerate(wanted) if count > 0]
    at = 0
    while open_shares and at < len(jobs):
        for index in list(open_shares):
            if at == len(jobs):
                break
            shares[index].append(jobs[at])
            at += 1
            if len(shares[index]) == wanted[index]:
                open_shares.remove(index)
    return shares
