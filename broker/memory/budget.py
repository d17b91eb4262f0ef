"""How many bytes are held, in all and by each owner, and who waits for room. Pure: no clock, no I/O.

    hold = budget.try_hold(owner, size)   before the bytes are there: None when there is no room
    hold.resize(actual)                   once it is known how many they are
    hold.release()                        when the transport has taken them, or the owner is gone

One hold is always granted, however large, while nothing else is held (by anybody, or by its owner): what is larger than
a bound can be answered, one at a time. Those who wait are served in the order in which they came; one who waits for its
own connection alone does not hold up the others. Where those who wait hold something already, they could wait for each
other: `goes_over` lets the first of them have its bytes beyond the bound, one at a time.
"""

from __future__ import annotations

from collections.abc import Callable


class Hold:
    """Bytes that are held. It is released once, and may be released again without effect."""

    __slots__ = ("_budget", "owner", "size")

    def __init__(self, budget: Budget, owner: object, size: int) -> None:
        self._budget = budget
        self.owner = owner
        self.size = size

    def resize(self, size: int) -> None:
        """It is so many bytes now. Growing is not refused: the bytes are there."""
        self._budget.change(self, size)

    def release(self) -> None:
        """The bytes are gone."""
        self._budget.change(self, 0)


class Waiter:
    """One who waits for room."""

    __slots__ = ("granted", "owner", "size")

    def __init__(self, owner: object, size: int, granted: Callable[[Hold], None]) -> None:
        self.owner = owner
        self.size = size
        self.granted = granted


class Budget:
    """At most `total` bytes in all and `per_owner` of each owner; 0 = no bound."""

    __slots__ = ("_owners", "goes_over", "held", "peak", "per_owner", "refused_total", "total", "waiters")

    def __init__(self, total: int, per_owner: int = 0, *, goes_over: bool = False) -> None:
        self.total = total
        self.per_owner = per_owner
        self.goes_over = goes_over
        self.held = 0
        #: The most that was held since somebody set it back.
        self.peak = 0
        #: Counted by those who refuse.
        self.refused_total = 0
        self._owners: dict[object, int] = {}
        #: Those who wait for room, in the order in which they came.
        self.waiters: dict[Waiter, None] = {}

    @property
    def waiting(self) -> int:
        """How many wait for room."""
        return len(self.waiters)

    @property
    def owners(self) -> int:
        """How many hold something."""
        return len(self._owners)

    @property
    def fill(self) -> float:
        """Which part of all that may be held is."""
        return self.held / self.total if self.total else 0.0

    def held_by(self, owner: object) -> int:
        """Bytes that one owner holds."""
        return self._owners.get(owner, 0)

    @property
    def is_over(self) -> bool:
        """Whether more is held than may be, because it was there before it could be refused."""
        return bool(self.total) and self.held > self.total

    def is_over_for(self, owner: object) -> bool:
        """The same, or this owner holds more than it may."""
        return self.is_over or (bool(self.per_owner) and self.held_by(owner) > self.per_owner)

    def has_room(self, owner: object, size: int) -> bool:
        """Whether so much more fits."""
        return self._fits_in_all(size) and self._fits_for(owner, size)

    def try_hold(self, owner: object, size: int) -> Hold | None:
        """Hold so many bytes. None: there is no room, or others wait for it."""
        if self.waiters or not self.has_room(owner, size):
            return None
        return self.hold(owner, size)

    def hold(self, owner: object, size: int) -> Hold:
        """Count bytes that are there already, whether there is room or not."""
        made = Hold(self, owner, 0)
        self.change(made, size)
        return made

    def wait(self, owner: object, size: int, granted: Callable[[Hold], None]) -> Waiter:
        """Be told when so many bytes are held for this owner; maybe at once."""
        waiter = Waiter(owner, size, granted)
        self.waiters[waiter] = None
        self._serve()
        return waiter

    def give_up(self, waiter: Waiter) -> None:
        """It does not wait any more."""
        if self.waiters.pop(waiter, waiter) is None:
            self._serve()

    def change(self, hold: Hold, size: int) -> None:
        """For `Hold` alone."""
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
