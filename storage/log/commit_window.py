"""How long a writer waits for more writes before it syncs. Pure.

A lone write is never made to wait. Clients that are answered come back, and those that came while the disk was busy are
there already: they are the clients it waits for. The writer waits for all of it, for at most a window that doubles
while the wait pays (more writes a ns than a sync at once would have had) and halves when it does not, down to none;
then it is tried again now and then.

While the disk syncs for all of them nobody has anything to do, and while they come the disk is idle. Where they take
longer to come than the disk to sync, the writer takes turns: it goes with half of the clients, and the other half comes
while it syncs. How many they are in all cannot be seen then, so now and then it goes with all of them again, to count.

Source: docs/reference/guarantees.md#crash-points-of-a-write.
"""

from __future__ import annotations

from typing import Final

#: Groups that are looked at before it is decided again whether to take turns.
GROUPS_A_LOOK: Final = 16
#: Fewer than so many are not split.
MIN_EXPECTED: Final = 4
#: A wait is tried again after so many groups that did not wait.
GROUPS_A_TRIAL: Final = 64
#: Of so many groups by turns the first few are of all who are expected.
GROUPS_A_COUNT: Final = 256
GROUPS_TO_COUNT: Final = 4


class CommitWindow:
    """gc_min and gc_max in ns bound the wait."""

    __slots__ = (
        "_alternating",
        "_alternations",
        "_expected",
        "_gathering_ns",
        "_groups",
        "_max_ns",
        "_min_ns",
        "_sync_ns",
        "_syncing_ns",
        "_unwaited",
        "_window_ns",
        "pressure_factor",
    )

    def __init__(self, min_us: int, max_us: int) -> None:
        self._min_ns = min_us * 1000
        self._max_ns = max(max_us, min_us) * 1000
        self._window_ns = self._min_ns
        #: As many writes are on their way at a time, as it seems.
        self._expected = 1
        self._sync_ns = 0
        #: Groups since the window closed.
        self._unwaited = 0
        self._alternating = False
        #: Groups since it takes turns.
        self._alternations = 0
        self._look_anew()
        #: Under pressure: it waits for this many times the writes, and as many times as long.
        self.pressure_factor = 1

    def _look_anew(self) -> None:
        self._groups = self._gathering_ns = self._syncing_ns = 0

    @property
    def alternating(self) -> bool:
        """Whether it goes with half of the clients, but for counting it."""
        return self._alternating and self.pressure_factor == 1 and self._expected >= MIN_EXPECTED

    @property
    def _half(self) -> int:
        """How many it goes with now, if with half of the clients; else 0."""
        counting = self._alternations % GROUPS_A_COUNT < GROUPS_TO_COUNT
        return (self._expected + 1) // 2 if self.alternating and not counting else 0

    def wait_for(self, waiting: int) -> tuple[int, int]:
        """(how many to wait for, at most how many ns) when `waiting` are there; (0, 0) = go now."""
        if self._expected <= 1:
            return 0, 0
        wanted = self._half or self._expected * self.pressure_factor
        window_ns = max(self._window_ns, self._min_ns if self.pressure_factor > 1 else 0) * self.pressure_factor
        if waiting >= wanted or not window_ns:
            return 0, 0
        return wanted, window_ns

    def waited(self, before: int, came: int, for_ns: int) -> None:
        """After a wait of so many ns: how many were there before, and are there now."""
        # A sync at once would have had `before` writes; as many again in each such time gain nothing.
        gains = (came - before) * self._sync_ns > 2 * before * for_ns
        half = self._half
        paid = came >= half if half else gains
        if paid:
            self._window_ns = min(self._max_ns, max(self._min_ns, self._window_ns * 2))
        elif self._window_ns > self._min_ns:
            self._window_ns = max(self._min_ns, self._window_ns // 2)
        elif not self.alternating:
            self._window_ns = self._unwaited = 0

    def committed(self, group: int, waiting: int = 0, *, gathering_ns: int = 0, syncing_ns: int = 0) -> None:
        """A group of this size was synced, and so many wait already for the next.

        It had come in so many ns behind the sync before, and was written and synced in so many.
        """
        half = 0
        if self._alternating:
            half = self._half
            if self.alternating and not half and group < self._expected:
                self._alternations += (
                    GROUPS_TO_COUNT - self._alternations % GROUPS_A_COUNT - 1
                )  # counted: nobody else is coming
        arrivals = group + waiting
        if arrivals > self._expected:
            self._expected = (self._expected + arrivals + 1) // 2
        elif group < half or not half:  # a half that is there does not tell how many the others are
            self._expected = max(1, arrivals)
        self._alternations += 1
        self._sync_ns = syncing_ns
        self._unwaited += 1
        if self._window_ns == 0 and self._unwaited >= GROUPS_A_TRIAL:
            self._window_ns = self._min_ns
        self._groups += 1
        self._gathering_ns += min(
            gathering_ns, self._max_ns
        )  # whoever takes longer is not waited for: nobody was there
        self._syncing_ns += syncing_ns
        if self._groups >= GROUPS_A_LOOK:
            self._look()

    def _look(self) -> None:
        """To take turns pays while the disk has to wait for more writes; a disk that never does is better asked
        seldom."""
        if self._alternating:
            self._alternating = self._gathering_ns > self._syncing_ns // 8
        elif self._gathering_ns > self._syncing_ns * 3 // 2:
            self._alternating = True
            self._alternations = GROUPS_TO_COUNT  # all of them were there just now
        if self._alternating:
            self._window_ns = max(self._window_ns, self._min_ns)
        self._look_anew()
