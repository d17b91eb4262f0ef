"""Times in answers."""

from __future__ import annotations

from pydantic import Field

from schemas.fields import AnswerModel


class Performance(AnswerModel):
    """Times in milliseconds, with fractions."""

    server_total_ms: float = Field(description="Time from the arrival of the request to its answer.")


class WritePerformance(Performance):
    wal_append_ms: float = Field(description="Time that the write waited for the write-ahead log.")
    fsync_ms: float = Field(
        description="Time that it waited for the sync of the log; 0 unless the topic has class fsync."
    )
    throttle_wait_ms: float | None = Field(
        default=None,
        description="Time that it waited for room in the log's queue, or for a router that is far behind; "
        "otherwise omitted.",
    )


class RoutedPerformance(Performance):
    router_wait_ms: float | None = Field(
        default=None, description="Time that it waited for routers to the topic; omitted if there are none."
    )


class ReadPerformance(RoutedPerformance):
    records_scanned: int
    cold_segments_read: int
