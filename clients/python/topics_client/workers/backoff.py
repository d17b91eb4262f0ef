"""How long a failed job waits before it is tried again."""

from __future__ import annotations

from dataclasses import dataclass

from topics_client.workers.durations import Duration, seconds

#: 2 ** 40 times a millisecond is above every limit.
_MAX_DOUBLINGS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """The first wait, multiplied by `factor` with each further delivery, up to `longest`. A random part of each wait,
    at most the share `jitter`, is left out, so that jobs that failed together are not retried together."""

    first: Duration = "1s"
    factor: float = 2.0
    longest: Duration = "1h"
    jitter: float = 0.2

    def delay_ms(self, deliveries: int, draw: float) -> int:
        """The wait after this many deliveries; `draw` is uniform in [0, 1)."""
        grown = seconds(self.first) * self.factor ** min(max(deliveries, 1) - 1, _MAX_DOUBLINGS)
        return round(min(grown, seconds(self.longest)) * (1 - self.jitter * draw) * 1000)
