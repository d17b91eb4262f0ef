"""Bounds on what requests may hold while they stay."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from storage import LimitReached


class Slots(Protocol):
    """Where a request may stay."""

    def hold(self) -> AbstractContextManager[None]:
        """Hold one place. Raises LimitReached when all are taken."""
        ...


class Parking:
    """Counts requests that stay: they wait for something to happen, or stream it. `max` 0 = no bound.

    `limit` names the bound in refusals, which say that so many `are_there` already.
    """

    __slots__ = ("are_there", "limit", "max", "parked", "refused_total")

    def __init__(self, max: int, *, limit: str = "max_parked", are_there: str = "requests are waiting") -> None:
        self.max = max
        self.limit = limit
        self.are_there = are_there
        self.parked = 0
        self.refused_total = 0

    @contextmanager
    def hold(self) -> Generator[None]:
        """Hold one place. Raises LimitReached when all are taken."""
        if self.max and self.parked >= self.max:
            self.refused_total += 1
            raise LimitReached(f"{self.max} {self.are_there} already.", limit=self.limit, max=self.max)
        self.parked += 1
        try:
            yield
        finally:
            self.parked -= 1
