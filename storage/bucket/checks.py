"""What an owner checks again and again: that the store keeps its promise, and that its own clock is right.

A store that creates an object twice shows it when the owner reads a slot that it created: another process's bytes are
there. No clock matters to the safety of writes. But a process whose wall clock is a year ahead would expire all records
with a ttl, for ever, so it must not own a cell.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from storage.bucket import keys
from storage.bucket.requests import Stat, Steps, get, now, patiently
from storage.bucket.slot import DamagedSlot, Seal, decode

#: How far the wall clock may be off the store's.
MOST_S: Final = 60.0
#: How long a question is repeated.
TRY_S: Final = 10.0


class StoreBroken(Exception):
    """A slot that this process created is missing or has other bytes. The store must not be used for a cell."""


class ClockWrong(Exception):
    """The wall clock of this process is too far off the store's."""


def check_slot(cell: str, number: int, seal: Seal) -> Steps[None]:
    """The slot was created by this process, and nobody has deleted it. Raises StoreBroken, Unanswered."""
    data = yield from get(keys.slot(cell, number))
    if data is None:
        raise StoreBroken(f"slot {number} of {cell} is gone")
    try:
        found = decode(number, data)
    except DamagedSlot as error:
        raise StoreBroken(f"slot {number} of {cell} has other bytes") from error
    if found.nonce != seal.nonce:
        raise StoreBroken(f"slot {number} of {cell} was created twice")


def check_clock(key: str, wall_s: Callable[[], float], stored_after_s: float = 0.0) -> Steps[float]:
    """This process has just put the object: at most `stored_after_s` ago. Returns how many seconds its clock is ahead
    of the store's, as far as that is certain. Raises ClockWrong, Unanswered."""
    stored_s = yield from patiently(Stat(key), (yield from now()) + TRY_S)
    if stored_s is None:
        return 0.0  # nothing to compare with
    off_s = wall_s() - stored_s
    if not -MOST_S < off_s < MOST_S + stored_after_s:
        raise ClockWrong(f"the clock is {off_s:.0f} s off the store's")
    return min(off_s, max(0.0, off_s - stored_after_s))
