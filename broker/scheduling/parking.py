"""Limits on the number of requests that stay open, because they wait or stream."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from storage import LimitReached


class Slots(Protocol):
    """A limited number of slots for requests that stay open."""

    def hold(self) -> AbstractContextManager[None]:
        """Hold one slot. Raises LimitReached when all are taken."""
        ...


class Parking:
    """Counts requests that stay open: they wait for an event, or stream events. `max` 0 = no limit.

    `limit` names the limit in refusals; `are_there` is the text that says how many there are already.
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
        """Hold one slot. Raises LimitReached when all are taken."""
        if self.max and self.parked >= self.max:
            self.refused_total += 1
            raise LimitReached(f"{self.max} {self.are_there} already.", limit=self.limit, max=self.max)
        self.parked += 1
        try:
            yield
        finally:
            self.parked -= 1
