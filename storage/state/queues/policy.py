"""What happens to a job when its lease ends. Pure: time and chance are arguments.

Source: docs/reference/api.md#topics, docs/reference/api.md#queues.
"""

from __future__ import annotations

from typing import NamedTuple

from storage.records import TopicConfig

#: The jitter leaves at least this share of a wait; it spreads jobs that fell due together.
_LEAST = 0.5


class Limits(NamedTuple):
    """A queue's settings for deliveries."""

    max_deliveries: int = 0
    dead_letter: str | None = None

    def exhausted(self, deliveries: int, forgiven: int) -> bool:
        """Whether a job that is not leased goes to the dead letter topic instead of being delivered again."""
        return bool(self.dead_letter) and 0 < self.max_deliveries <= deliveries - forgiven


def limits_of(config: TopicConfig) -> Limits:
    return Limits(config.max_deliveries, config.dead_letter)


def backoff_ms(config: TopicConfig, counted: int, chance: float) -> int:
    """How long a job waits after `counted` deliveries (not counting forgiven ones). `chance` in [0, 1) is the
    jitter: the wait is between half of min(max, base * 2^(counted - 1)) and all of it."""
    if not config.retry_backoff_ms or counted < 1:
        return 0
    # 2^63 ms exceeds every maximum; the exponent is bounded before the power is computed.
    wait = min(config.retry_backoff_max_ms, config.retry_backoff_ms << min(counted - 1, 63))
    return int(wait * (1 - (1 - _LEAST) * chance))
