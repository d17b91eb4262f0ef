"""Counts the held bytes, in total and by owner, and queues waiters for room. Pure: no clock, no I/O.

    hold = budget.try_hold(owner, size)   before the bytes exist: None if there is no room
    hold.resize(actual)                   once their number is known
    hold.release()                        when the transport has written them, or the owner is gone

A hold of any size is allowed while no other bytes are held (in total, or by its owner). So answers larger than a limit
are possible, one at a time. Waiters are served in order; a waiter at the limit of its connection does not delay the
others. If waiters already hold bytes, they could wait for each other forever: `goes_over` lets the first of them
exceed the limit, one at a time.
"""

from __future__ import annotations

from collections.abc import Callable


class Hold:
    """Held bytes. A second release has no effect."""

    __slots__ = ("_budget", "owner", "size")

    def __init__(self, budget: Budget, owner: object, size: int) -> None:
        self._budget = budget
        self.owner = owner
        self.size = size

    def resize(self, size: int) -> None:
        """Set the number of bytes. Growing is not refused, because the bytes already exist."""
        self._budget.change(self, size)

    def release(self) -> None:
        """The bytes no longer exist."""
        self._budget.change(self, 0)


class Waiter:
    """A waiter for room."""

    __slots__ = ("granted", "owner", "size")

    def __init__(self, owner: object, size: int, granted: Callable[[Hold], None]) -> None:
        self.owner = owner
        self.size = size
        self.granted = granted


class Budget:
    """At most `total` bytes, and `per_owner` bytes for each owner; 0: no limit."""

    __slots__ = ("_owners", "goes_over", "held", "peak", "per_owner", "refused_total", "total", "waiters")

    def __init__(self, total: int, per_owner: int = 0, *, goes_over: bool = False) -> None:
        self.total = total
        self.per_owner = per_owner
        self.goes_over = goes_over
        self.held = 0
        #: The most bytes held since this was last reset.
        self.peak = 0
        #: The number of refusals; the caller that refuses counts.
        self.refused_total = 0
        self._owners: dict[object, int] = {}
        #: The waiters for room, the oldest first.
        self.waiters: dict[Waiter, None] = {}

    @property
    def waiting(self) -> int:
        """The number of waiters."""
        return len(self.waiters)

    @property
    def owners(self) -> int:
        """The number of owners that hold bytes."""
        return len(self._owners)

    @property
    def fill(self) -> float:
        """The fraction of `total` that is held."""
        return self.held / self.total if self.total else 0.0

    def held_by(self, owner: object) -> int:
        """Bytes that one owner holds."""
        return self._owners.get(owner, 0)

    @property
    def is_over(self) -> bool:
        """Whether more is held than allowed, because some bytes existed before they could be refused."""
        return bool(self.total) and self.held > self.total

    def has_room(self, owner: object, size: int) -> bool:
        """Whether `size` more bytes fit."""
        return self._fits_in_all(size) and self._fits_for(owner, size)

    def try_hold(self, owner: object, size: int) -> Hold | None:
        """Hold `size` bytes. None if there is no room, or if others wait for room."""
        if self.waiters or not self.has_room(owner, size):
            return None
        return self.hold(owner, size)

    def hold(self, owner: object, size: int) -> Hold:
        """Count bytes that already exist, even if there is no room."""
        made = Hold(self, owner, 0)
        self.change(made, size)
        return made

    def wait(self, owner: object, size: int, granted: Callable[[Hold], None]) -> Waiter:
        """Call `granted` once `size` bytes are held for this owner; maybe at once."""
        waiter = Waiter(owner, size, granted)
        self.waiters[waiter] = None
        self._serve()
        return waiter

    def give_up(self, waiter: Waiter) -> None:
        """Remove a waiter."""
        if self.waiters.pop(waiter, waiter) is None:
            self._serve()

    def change(self, hold: Hold, size: int) -> None:
        """Only `Hold` calls this."""
        more = size - hold.size
        if not more:
            return
        owner, hold.size = hold.owner, size
        self.held += more
        left = self._owners.get(owner, 0) + more
        if left:
            self._owners[owner] = left
        else:
            del self._owners[owner]
        if more > 0:
            self.peak = max(self.peak, self.held)
        elif self.waiters:
            self._serve()

    def _serve(self) -> None:
        for waiter in list(self.waiters):
            if not self._fits_in_all(waiter.size) and (self.is_over or not self.goes_over):
                return
            if self._fits_for(waiter.owner, waiter.size) and waiter in self.waiters:
                del self.waiters[waiter]
                waiter.granted(self.hold(waiter.owner, waiter.size))

    def _fits_in_all(self, size: int) -> bool:
        return not self.total or not self.held or self.held + size <= self.total

    def _fits_for(self, owner: object, size: int) -> bool:
        if not self.per_owner:
            return True
        held = self._owners.get(owner, 0)
        return not held or held + size <= self.per_owner
