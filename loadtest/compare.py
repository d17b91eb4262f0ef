"""Compares two versions of the code: alternating, in one run, as ratios.

On a shared machine, figures taken minutes apart say little, and absolute ones less. The median of the ratios of
neighbouring runs shows whether a change made a difference.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

import msgspec

from loadtest.measure import Measured


class Ratio(msgspec.Struct, kw_only=True):
    """Medians of both sides, and the median of new / old over neighbouring runs."""

    metric: str
    old: float
    new: float
    ratio: float
    lowest: float
    highest: float


METRICS: dict[str, Callable[[Measured], float]] = {
    "records/s": lambda each: each.records_per_s,
    "cpu µs/record": lambda each: each.cpu_us_per_record,
    "loop µs/record": lambda each: each.loop_us_per_record,
    "p50 ms": lambda each: each.latency_ms.get("p50", 0.0),
    "p99 ms": lambda each: each.latency_ms.get("p99", 0.0),
}


def alternate(old: Callable[[], Measured], new: Callable[[], Measured], rounds: int) -> list[Ratio]:
    """Run both `rounds` times, turning the order each time, so that a drift favours neither."""
    pairs: list[tuple[Measured, Measured]] = []
    for index in range(rounds):
        if index % 2:
            second = new()
            pairs.append((old(), second))
        else:
            pairs.append((old(), new()))
    return [ratio_of(name, [(pick(a), pick(b)) for a, b in pairs]) for name, pick in METRICS.items()]


def ratio_of(metric: str, pairs: list[tuple[float, float]]) -> Ratio:
    ratios = [b / a for a, b in pairs if a] or [0.0]
    return Ratio(
        metric=metric,
        old=median(a for a, _ in pairs),
        new=median(b for _, b in pairs),
        ratio=median(ratios),
        lowest=min(ratios),
        highest=max(ratios),
    )


def lines(name: str, ratios: list[Ratio]) -> list[str]:
    """One line a metric."""
    return [
        f"{name:24} {each.metric:16} {each.old:12,.2f} → {each.new:12,.2f}   x {each.ratio:.3f}"
        f"   (from {each.lowest:.3f} to {each.highest:.3f})"
        for each in ratios
    ]
