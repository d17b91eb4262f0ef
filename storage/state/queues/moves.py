"""Moves of single records from one log to another, exactly once even across crashes. Pure state.

1. Lease{dead, dest_id}, synced, at the source: from here the move is open (`Moves.out`).
2. The copy at dest, in a Batch with move: [source topic_id, seq], or with a Moved frame after many copies, synced:
   remembered there (`Moves.came`).
3. Delete at the source, synced: the move is no longer open, and dest may forget it.

After a crash, an open move continues with step 2 or 3, depending on whether the copy is there.

Source: docs/reference/api.md#queues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from storage.format import Lease


class Move(NamedTuple):
    """An open move. `deliveries` 0: a redrive; else how often the job was delivered before it was given up."""

    dest_id: int
    deliveries: int
    reason: str | None = None


class Moves:
    """Open moves out of one log, and copies in it whose source may still exist."""

    __slots__ = ("came", "out")

    def __init__(self) -> None:
        #: Open moves by seq.
        self.out: dict[int, Move] = {}
        #: Copies, as (source topic_id, seq).
        self.came: set[tuple[int, int]] = set()

    def __bool__(self) -> bool:
        return bool(self.out or self.came)

    def take(self, value: Lease) -> None:
        """Apply a Lease frame about moves out of this log."""
        if value.event == "dead" and value.dest_id is not None:
            for seq, _, _, deliveries, _, _ in value.jobs:
                self.out[seq] = Move(value.dest_id, deliveries, value.reason)
        elif value.event == "released":
            self.end([entry[0] for entry in value.jobs])

    def end(self, seqs: Iterable[int]) -> None:
        """Close the moves of these records."""
        for seq in seqs if self.out else ():
            self.out.pop(seq, None)

    def forget_finished(self, is_open: Callable[[int, int], bool]) -> bool:
        """Forget copies whose source is gone for good; returns whether there were any."""
        remaining = {key for key in self.came if is_open(*key)}
        changed = len(remaining) != len(self.came)
        self.came = remaining
        return changed
