"""Bounds on what requests may hold while they wait."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from storage.errors import LimitReached


class Parking:
    """Counts requests that wait for something to happen. `max` 0 = no bound."""

    __slots__ = ("max", "parked", "refused_total")

    def __init__(self, max: int) -> None:
        self.max = max
        self.parked = 0
        self.refused_total = 0

    @contextmanager
    def place(self) -> Generator[None]:
        """Hold one place. Raises LimitReached when all are taken."""
        if self.max and self.parked >= self.max:
            self.refused_total += 1
            raise LimitReached(f"{self.max} requests are waiting already.", limit="max_parked", max=self.max)
        self.parked += 1
        try:
            yield
        finally:
            self.parked -= 1
