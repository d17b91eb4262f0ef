"""From signals to a step. Pure: no clock, no I/O. Source: api.md §3 (pressure).

    CALM → COALESCE → WIDEN → DEFER → REFUSE      up at once, however far; down one step after `CALM_MS` below it

A signal counts as what it was in the last `SUSTAINED` samples at least: a pause (a large answer rendered, a disk that
hiccups) is no pressure. Pressure is the largest of the signals, each as a share of where it means refusing.
"""

from __future__ import annotations

import enum
from collections import deque
from typing import Final, NamedTuple

#: A signal counts only as far as it has been there for so many samples in a row.
SUSTAINED: Final = 3
#: How long pressure has to stay below a step before that is left.
CALM_MS: Final = 500
#: From which pressure on a step is taken; what is refused is refused at 1.
THRESHOLDS: Final = (0.25, 0.5, 0.75, 1.0)
#: Below a step's threshold by so much before it counts as below: no flutter at the border.
_HYSTERESIS: Final = 0.8
RETRY_MS: Final = (200, 5000)


class Step(enum.IntEnum):
    """Each does what those before it do, too."""

    CALM = 0
    COALESCE = 1
    """Records that are watched are sent in larger pieces."""
    WIDEN = 2
    """The log waits longer for company before it syncs."""
    DEFER = 3
    """Work that can wait does; watchers get a smaller share of the loop, low priorities the smallest."""
    REFUSE = 4
    """Writes are refused with 429 unless they ask not to be."""


class Signals(NamedTuple):
    """`queue` is the fuller of the log's two bounds, 0 to 1; times are ms. `memory`: which part answers hold of what
    they may."""

    loop_lag_ms: float = 0.0
    queue: float = 0.0
    commit_ms: float = 0.0
    memory: float = 0.0


class Limits(NamedTuple):
    """Where each signal alone means refusing; 0 = it is not looked at."""

    loop_lag_ms: float
    queue: float
    commit_ms: float
    memory: float = 0.0


class Governor:
    """Fed with samples, says which step it is time for."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.step = Step.CALM
        #: Of the last samples: 1 and more means refusing.
        self.pressure = 0.0
        self._recent: deque[Signals] = deque(maxlen=SUSTAINED)
        self._below_since_ms: float | None = None

    def take(self, signals: Signals, now_ms: float) -> Step:
        """One more sample."""
        self._recent.append(signals)
        self.pressure = self._sustained()
        wanted = Step(sum(self.pressure >= threshold for threshold in THRESHOLDS))
        if wanted >= self.step:
            self._below_since_ms = None
            self.step = wanted
        elif self.pressure >= THRESHOLDS[self.step - 1] * _HYSTERESIS:
            self._below_since_ms = None
        elif self._below_since_ms is None:
            self._below_since_ms = now_ms
        elif now_ms - self._below_since_ms >= CALM_MS:
            self._below_since_ms = now_ms
            self.step = Step(self.step - 1)
        return self.step

    def _sustained(self) -> float:
        if len(self._recent) < SUSTAINED:
            return 0.0
        shares = (
            min(column) / limit
            for column, limit in zip(zip(*self._recent, strict=True), self.limits, strict=True)
            if limit > 0
        )
        return max(shares, default=0.0)

    @property
    def retry_after_ms(self) -> int:
        """How long whoever is refused now should stay away: the longer, the more there is to catch up with."""
        least, most = RETRY_MS
        return min(most, max(least, round(1000 * self.pressure)))
