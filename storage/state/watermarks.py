"""The losses of a log, and how readers learn of them. Pure.

For each cause there is a floor: the lowest seq not lost to it, 1 at first. Losses inside the log are ranges until
everything before them is gone too. Deletions and consumed records are silent; every other loss is announced.

Source: docs/reference/format.md#evictwatermark.
"""

from __future__ import annotations

from typing import TypeAlias

from storage.records import LossCause, Tombstone

LossRange: TypeAlias = tuple[int, int, str]

ANNOUNCED = (LossCause.CAP, LossCause.TTL, LossCause.CRASH, LossCause.SOURCE_TRIM, LossCause.SALVAGE)


class Watermarks:
    """Floors by cause and loss ranges of one log. Floors only rise; ranges only grow or turn into floors."""

    __slots__ = ("evict_floor", "floors", "live_floor", "loss")

    def __init__(self, floors: dict[str, int] | None = None, loss: list[LossRange] | None = None) -> None:
        self.floors: dict[str, int] = {}
        self.loss: list[LossRange] = []
        #: Lowest seq not lost to a cause that is announced.
        self.evict_floor = 1
        #: Lowest seq not lost to any cause.
        self.live_floor = 1
        self.merge(floors, loss)

    def merge(self, floors: dict[str, int] | None = None, loss: list[LossRange] | None = None) -> None:
        """Apply an EvictWatermark frame, a delete or the result of recovery: maximum of floors, union of ranges."""
        for cause, floor in (floors or {}).items():
            if floor > self.floors.get(cause, 1):
                self.floors[cause] = floor
                self.live_floor = max(self.live_floor, floor)
                if cause in ANNOUNCED:
                    self.evict_floor = max(self.evict_floor, floor)
        if not loss and not self.loss:
            return  # the fast path of a cap that evicts with every write
        if loss:
            merged: list[LossRange] = []
            for start, end, cause in sorted({(int(a), int(b), str(c)) for a, b, c in [*self.loss, *loss]}):
                if merged and merged[-1][2] == cause and start <= merged[-1][1] + 1:
                    merged[-1] = (merged[-1][0], max(merged[-1][1], end), cause)
                else:
                    merged.append((start, end, cause))
            self.loss = merged
        self._merge_evicted()

    def live_floor_with(self, floors: dict[str, int] | None, loss: list[LossRange] | None) -> int:
        """What `live_floor` would be after `merge`."""
        if not loss and not self.loss:
            return max(self.live_floor, *floors.values()) if floors else self.live_floor
        after = Watermarks(self.floors, self.loss)
        after.merge(floors, loss)
        return after.live_floor

    def _merge_evicted(self) -> None:
        floors = self.floors
        while True:
            self.evict_floor = max((floors.get(cause, 1) for cause in ANNOUNCED), default=1)
            evicted = [each for each in self.loss if each[0] <= self.evict_floor]
            if not evicted:
                break
            self.loss = [each for each in self.loss if each[0] > self.evict_floor]
            for _, end, cause in evicted:
                floors[cause] = max(floors.get(cause, 1), end + 1)
        self.live_floor = max(floors.values(), default=1)

    @property
    def trim_floor(self) -> int:
        """Lowest seq that only a deletion can have removed: for callers that must report unreadable records."""
        return max(self.evict_floor, self.floors.get(LossCause.CONSUMED, 1))

    def covering(self, seq: int) -> LossRange | None:
        """The loss range that holds `seq`."""
        for each in self.loss:
            if each[0] <= seq <= each[1]:
                return each
        return None

    def next_loss(self, seq: int) -> int | None:
        """The first lost seq in a range after `seq`: a read that continues from there must stop before it."""
        for start, end, _ in self.loss:
            if end > seq:
                return max(start, seq + 1)  # ranges of two causes may overlap: then `seq` is still inside one
        return None

    def reason(self, seq: int) -> str:
        """The one cause whose floor is above `seq`, or 'mixed'."""
        causes = [str(cause) for cause in ANNOUNCED if self.floors.get(cause, 1) > seq]
        return causes[0] if len(causes) == 1 else "mixed"

    def lost_to(self, seq: int) -> str | None:
        """Why `seq` is gone, according to floors and ranges: expired, evicted, lost or deleted; else None."""
        if seq < self.evict_floor:
            return "expired" if self.reason(seq) == LossCause.TTL else "evicted"
        if self.covering(seq):
            return "lost"
        return "deleted" if seq < self.live_floor else None

    def tombstone(self, from_seq: int, *, earliest_seq: int, head_seq: int) -> Tombstone | None:
        """The tombstone for a reader whose last seq is `from_seq`, before it gets anything else."""
        wanted = from_seq + 1
        if wanted < self.evict_floor:
            gap_to, reason = self.evict_floor - 1, self.reason(wanted)
        elif (lost := self.covering(wanted)) is not None:
            gap_to, reason = lost[1], lost[2]
        else:
            return None
        return Tombstone(
            gap_from=wanted,
            gap_to=gap_to,
            reason=reason,
            missed_estimate=gap_to - from_seq,
            earliest_seq=earliest_seq,
            head_seq=head_seq,
        )
