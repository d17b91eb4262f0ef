"""Counters of one shard's writer. Written by its writer only, read by anyone; plain numbers."""

from __future__ import annotations

FSYNC_BUCKETS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
GROUP_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096)


class Histogram:
    """Counts by upper bound, as Prometheus has them (not cumulative here), and their sum."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.sum += value
        for index, bound in enumerate(self.bounds):
            if value <= bound:
                self.counts[index] += 1
                return
        self.counts[-1] += 1


class WalStats:
    """What one shard has done since the start."""

    __slots__ = (
        "bytes",
        "frames",
        "fsync_seconds",
        "fsyncs",
        "group_size",
        "groups",
        "rotations",
        "storage_full",
        "sync_points",
    )

    def __init__(self) -> None:
        self.frames = 0
        self.groups = 0
        self.bytes = 0
        self.fsyncs = 0
        self.rotations = 0
        self.sync_points = 0
        self.storage_full = 0
        self.fsync_seconds = Histogram(FSYNC_BUCKETS_S)
        self.group_size = Histogram(GROUP_BUCKETS)
