"""Decides the step of load shedding from signals. Pure: no clock, no I/O.

    NORMAL → COALESCE → WIDEN → DEFER → REFUSE    up: at once, over several steps; down: one step after `RECOVERY_MS`

The value of a signal is the lowest of its last `SUSTAINED` samples, so that a short pause (rendering a large answer, a
slow sync) does not count. Pressure is the largest signal, as a share of the value at which writes are refused.

Source: docs/guides/operate.md#pressure.
"""

from __future__ import annotations

import enum
from collections import deque
from typing import Final, NamedTuple

#: A signal counts only if it is present in this many consecutive samples.
SUSTAINED: Final = 3
#: How long pressure must stay below a step before the step is left.
RECOVERY_MS: Final = 500
#: The pressure at which each step is taken; writes are refused at 1.
THRESHOLDS: Final = (0.25, 0.5, 0.75, 1.0)
#: Pressure counts as below a step only at this share of its threshold, so that steps do not alternate.
_HYSTERESIS: Final = 0.8
RETRY_MS: Final = (200, 5000)


class Step(enum.IntEnum):
    """The steps. Each includes the measures of the steps before it."""

    NORMAL = 0
    COALESCE = 1
    """Watched records are sent in larger pieces."""
    WIDEN = 2
    """The log waits longer for more writes before it syncs."""
    DEFER = 3
    """Deferrable work waits. Watchers get a smaller share of the loop, low priorities the smallest."""
    REFUSE = 4
    """Writes are refused with 429, except those that are exempt."""


class Signals(NamedTuple):
    """One sample. `queue`: how full the log's queue is, by frames or bytes, 0 to 1. `memory`: the used share of the
    memory for answers. Times are in ms."""

    loop_lag_ms: float = 0.0
    queue: float = 0.0
    commit_ms: float = 0.0
    memory: float = 0.0


class Limits(NamedTuple):
    """The value of each signal at which writes are refused; 0 = the signal is ignored."""

    loop_lag_ms: float
    queue: float
    commit_ms: float
    memory: float = 0.0


class Governor:
    """Takes samples and decides which step applies."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.step = Step.NORMAL
        #: The current pressure. Writes are refused at 1 and above.
        self.pressure = 0.0
        self._recent: deque[Signals] = deque(maxlen=SUSTAINED)
        self._below_since_ms: float | None = None

    def take(self, signals: Signals, now_ms: float) -> Step:
        """Add a sample. Returns the step."""
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
        elif now_ms - self._below_since_ms >= RECOVERY_MS:
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
        """How long a refused client should wait: longer if the backlog is larger."""
        least, most = RETRY_MS
        return min(most, max(least, round(1000 * self.pressure)))
