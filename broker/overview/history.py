"""The figures of the last hour, in memory. A restart begins with none.

Bounds: `POINTS` values of 8 bytes for each of `SERIES` (45 kB), and for each of at most `MAX_TOPICS` topics two rings
of `TOPIC_POINTS` values (about 1.2 kB each: 1.2 MB in all). Topics beyond that have no history.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Final, NamedTuple

from broker.overview.figures import Figures

#: A point every 10 seconds, for one hour.
INTERVAL_S: Final = 10
POINTS: Final = 360
#: Of one topic: a point every minute, for one hour.
TOPIC_INTERVAL_S: Final = 60
TOPIC_POINTS: Final = 60
MAX_TOPICS: Final = 1000

#: Values per second, by the counter that they come from.
RATES: Final = {
    "appended_per_s": "appended_records",
    "read_per_s": "read_records",
    "wal_bytes_per_s": "wal_bytes",
    "claimed_per_s": "claimed_jobs",
    "acked_per_s": "acked_jobs",
    "nacked_per_s": "nacked_jobs",
    "requests_per_s": "http_requests",
    "cpu_share": "cpu_seconds",
}
#: Values as they are.
GAUGES: Final = (
    "ready_jobs", "leased_jobs", "delayed_jobs", "oldest_job_ms", "consumer_lag", "router_lag", "pressure",
    "live_bytes", "resident_bytes", "disk_free_bytes",
)  # fmt: skip
SERIES: Final = (*RATES, *GAUGES)


class Ring:
    """The last values of one series."""

    __slots__ = ("_at", "_count", "_values")

    def __init__(self, points: int) -> None:
        self._values = array("d", bytes(8 * points))
        self._at = self._count = 0

    def add(self, value: float) -> None:
        self._values[self._at] = value
        self._at = (self._at + 1) % len(self._values)
        self._count = min(self._count + 1, len(self._values))

    def values(self) -> list[float]:
        """The oldest first."""
        ordered = self._values[self._at :] + self._values[: self._at]
        return ordered[len(ordered) - self._count :].tolist()


class History:
    """The series of one broker."""

    def __init__(self) -> None:
        self._rings = {name: Ring(POINTS) for name in SERIES}
        self._last: Figures | None = None

    def add(self, figures: Figures) -> None:
        """Add the next sample. The first one only begins the rates."""
        last, self._last = self._last, figures
        if last is None or figures.ts <= last.ts:
            return
        elapsed_s = (figures.ts - last.ts) / 1000
        for name, counter in RATES.items():
            value = (getattr(figures, counter) - getattr(last, counter)) / elapsed_s
            self._rings[name].add(round(max(0.0, value), 3))
        for name in GAUGES:
            value = getattr(figures, name)
            self._rings[name].add(float(getattr(value, "value", value) or 0))

    @property
    def until_ts(self) -> int:
        """The time of the last point; 0: there is none."""
        return 0 if self._last is None else self._last.ts

    def series(self) -> dict[str, list[float]]:
        return {name: ring.values() for name, ring in self._rings.items()}


class TopicPoint(NamedTuple):
    """What is remembered of a topic, summed over its partitions. `ready`: of a queue, 0 for others."""

    name: str
    epoch: int
    head: int
    ready: int


class _TopicRings:
    __slots__ = ("epoch", "head", "heads", "ready")

    def __init__(self, point: TopicPoint) -> None:
        self.epoch, self.head = point.epoch, point.head
        self.heads, self.ready = Ring(TOPIC_POINTS), Ring(TOPIC_POINTS)


class TopicHistory:
    """Appended records per minute, and ready jobs, of the topics that came first."""

    def __init__(self) -> None:
        self._topics: dict[str, _TopicRings] = {}
        self.until_ts = 0

    def add(self, ts: int, points: Iterable[TopicPoint]) -> None:
        """Add a point of every topic. Topics that are not among them are forgotten."""
        found: dict[str, _TopicRings] = {}
        for point in points:
            if len(found) >= MAX_TOPICS:
                break
            rings = self._topics.get(point.name)
            if rings is None or rings.epoch != point.epoch:
                rings = _TopicRings(point)
            else:
                rings.heads.add(max(0, point.head - rings.head))
                rings.ready.add(point.ready)
                rings.head = point.head
            found[point.name] = rings
        self._topics, self.until_ts = found, ts

    def of(self, name: str) -> tuple[list[int], list[int]]:
        """(appended records, ready jobs) of each minute, the oldest first."""
        rings = self._topics.get(name)
        if rings is None:
            return [], []
        return [*map(int, rings.heads.values())], [*map(int, rings.ready.values())]
