"""Metrics of a cell in a bucket."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from math import inf
from typing import TYPE_CHECKING

from storage.bucket import SECONDS, RequestTimes
from storage.telemetry import METRICS, Family, HistogramSample, Sample

if TYPE_CHECKING:
    from storage.cells.owner import CellOwner


def collect(owner: CellOwner) -> Iterator[Family]:
    """All families, also before the process owns the cell."""
    yield from _requests(owner.times)
    slots, slot_bytes = owner.behind
    yield METRICS.whole("topics_bucket_generation", owner.generation)
    yield METRICS.whole("topics_bucket_slots", owner.slots)
    yield METRICS.whole("topics_bucket_slot_bytes", owner.slot_bytes)
    yield METRICS.whole("topics_bucket_slots_behind", slots)
    yield METRICS.whole("topics_bucket_slot_bytes_behind", slot_bytes)
    yield METRICS.whole("topics_bucket_bases", owner.bases)
    yield METRICS.whole("topics_bucket_base_age_seconds", owner.base_age_s)
    yield METRICS.family(
        "topics_bucket_objects_deleted",
        [Sample((("why", "superseded"),), owner.deleted), Sample((("why", "rubbish"),), owner.swept)],
    )
    yield METRICS.whole("topics_bucket_time_left_seconds", owner.time_left_s)
    yield METRICS.whole("topics_bucket_clock_off_seconds", owner.clock_off_s)


def _requests(times: RequestTimes) -> Iterator[Family]:
    yield METRICS.family(
        "topics_bucket_request_seconds",
        [
            HistogramSample(
                (("request", kind),), tuple(zip((*SECONDS, inf), accumulate(counts), strict=True)), times.sums[kind]
            )
            for kind, counts in times.counts.items()
        ],
    )
    yield METRICS.family(
        "topics_bucket_requests_unanswered",
        [Sample((("request", kind),), count) for kind, count in times.unanswered.items()],
    )
