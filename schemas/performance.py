"""What an answer says about the time it took."""

from __future__ import annotations

from pydantic import Field

from schemas.fields import AnswerModel


class Performance(AnswerModel):
    """Milliseconds, fractions included."""

    server_total_ms: float = Field(description="From the arrival of the request to its answer.")


class WritePerformance(Performance):
    wal_append_ms: float = Field(description="Waiting for the write-ahead log.")
    fsync_ms: float = Field(description="Waiting for its sync; 0 unless the topic is of class fsync.")
    throttle_wait_ms: float | None = Field(
        default=None, description="Held back while the log's queue was full; left out when it was not."
    )


class RoutedPerformance(Performance):
    router_wait_ms: float | None = Field(
        default=None, description="Waiting for routers into the topic; left out when there are none."
    )


class ReadPerformance(RoutedPerformance):
    records_scanned: int
    cold_segments_read: int
