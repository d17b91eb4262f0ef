"""How the broker is doing: its figures now, in the last hour, and as a stream; and the keys that it knows.

Source: docs/reference/api.md#operations.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, RootModel

from schemas.events import ErrorEvent
from schemas.fields import AnswerModel
from schemas.performance import Performance
from schemas.records import EXAMPLE_PERFORMANCE

_NOW = 1_767_225_600_000
_SINCE = "Since the start."


class Named(AnswerModel):
    """The largest value, and what has it. Names that the caller's key does not cover are null."""

    value: int
    topic: str | None
    consumer: str | None
    router: str | None


class BusyTopic(AnswerModel):
    topic: str
    appended_per_s: float = Field(description="Records that were appended a second, in all partitions.")


class Overview(AnswerModel):
    """The figures at one moment. Those of a set of cells are sums; `pressure` and `loop_lag_ms` are the highest."""

    ts: int
    ready: bool
    appended_records: int = Field(description=_SINCE)
    read_records: int = Field(description=_SINCE)
    wal_bytes: int = Field(description=f"{_SINCE} Bytes written to the log.")
    claimed_jobs: int = Field(description=_SINCE)
    acked_jobs: int = Field(description=_SINCE)
    nacked_jobs: int = Field(description=_SINCE)
    expired_leases: int = Field(description=_SINCE)
    http_requests: int = Field(description=_SINCE)
    pressure_refused: int = Field(description=f"{_SINCE} Writes refused under pressure.")
    evicted_records: int = Field(description=f"{_SINCE} Live records lost to a cap, a ttl or a crash.")
    corrupt_reads: int = Field(description=f"{_SINCE} Records whose checksum failed.")
    cpu_seconds: float = Field(description=_SINCE)
    uptime_ms: int
    resident_bytes: int | None
    connections: int
    streams: int
    pressure: float = Field(description="Load, as a share of the load at which writes are refused.")
    pressure_step: int = Field(description="0 normal, 1 to 3 deferring work, 4 refusing writes.")
    loop_lag_ms: float
    disk_free_bytes: int | None
    disk_bytes: int | None = Field(description="The size of the disk with the data directory.")
    shards: int
    failed_shards: int = Field(description="Shards of the log that stopped after an error of the disk.")
    full_shards: int = Field(description="Shards of the log for which the disk is full.")
    topics: int
    live_bytes: int
    queues: int
    queues_paused: int
    ready_jobs: int
    leased_jobs: int
    delayed_jobs: int
    dead_pending_jobs: int = Field(description="Jobs that are still to be moved to a dead letter topic.")
    lost_jobs: int = Field(description="Jobs that a cap or ttl deleted before an ack.")
    oldest_job_ms: Named = Field(description="The age of the oldest ready job.")
    consumers: int
    consumer_lag: Named = Field(description="Seqs after the cursor of the slowest consumer.")
    routers: int
    routers_blocked: int
    router_lag: Named
    busiest: list[BusyTopic] = Field(
        description="The topics with the most appended records a second, at most 10. Of those that the key covers."
    )
    partial: bool = Field(description="There are more topics or routers than one sample looks at.")


EXAMPLE: dict[str, Any] = {
    "ts": _NOW,
    "ready": True,
    "appended_records": 120_000,
    "read_records": 240_000,
    "wal_bytes": 18_000_000,
    "claimed_jobs": 900,
    "acked_jobs": 890,
    "nacked_jobs": 4,
    "expired_leases": 0,
    "http_requests": 5_000,
    "pressure_refused": 0,
    "evicted_records": 0,
    "corrupt_reads": 0,
    "cpu_seconds": 12.5,
    "uptime_ms": 3_600_000,
    "resident_bytes": 90_000_000,
    "connections": 4,
    "streams": 1,
    "pressure": 0.02,
    "pressure_step": 0,
    "loop_lag_ms": 0.3,
    "disk_free_bytes": 50_000_000_000,
    "disk_bytes": 100_000_000_000,
    "shards": 1,
    "failed_shards": 0,
    "full_shards": 0,
    "topics": 12,
    "live_bytes": 30_000_000,
    "queues": 2,
    "queues_paused": 0,
    "ready_jobs": 6,
    "leased_jobs": 2,
    "delayed_jobs": 0,
    "dead_pending_jobs": 0,
    "lost_jobs": 0,
    "oldest_job_ms": {"value": 1_500, "topic": "mails", "consumer": None, "router": None},
    "consumers": 3,
    "consumer_lag": {"value": 40, "topic": "orders", "consumer": "billing", "router": None},
    "routers": 1,
    "routers_blocked": 0,
    "router_lag": {"value": 0, "topic": None, "consumer": None, "router": None},
    "busiest": [{"topic": "orders", "appended_per_s": 118.5}],
    "partial": False,
}


class OverviewAnswer(Overview):
    performance: Performance

    model_config = ConfigDict(
        json_schema_extra={"examples": [EXAMPLE | {"performance": EXAMPLE_PERFORMANCE}]}, extra="forbid"
    )


class HistoryAnswer(AnswerModel):
    """The last hour. `series`: values by name, the oldest first; the last one is of `until_ts`."""

    interval_ms: int = Field(description="The time between two points.")
    until_ts: int = Field(description="0: there is no point yet.")
    series: dict[str, list[float]]
    performance: Performance

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "interval_ms": 10_000,
                    "until_ts": _NOW,
                    "series": {"appended_per_s": [120.0, 118.5], "ready_jobs": [6.0, 4.0]},
                    "performance": EXAMPLE_PERFORMANCE,
                }
            ]
        },
        extra="forbid",
    )


class TopicHistoryAnswer(AnswerModel):
    """The last hour of one topic, by the minute, the oldest first. Empty lists: nothing is known yet."""

    topic: str
    interval_ms: int
    until_ts: int
    appended: list[int] = Field(description="Records that were appended in each minute.")
    ready: list[int] = Field(description="Jobs that could be claimed at its end; 0 for logs.")
    performance: Performance

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "topic": "orders",
                    "interval_ms": 60_000,
                    "until_ts": _NOW,
                    "appended": [240, 251],
                    "ready": [0, 0],
                    "performance": EXAMPLE_PERFORMANCE,
                }
            ]
        },
        extra="forbid",
    )


class SampleEvent(AnswerModel):
    event: Literal["overview"]
    data: Overview


class OverviewEvent(RootModel[Annotated[SampleEvent | ErrorEvent, Field(discriminator="event")]]):
    """An event of GET /v0/overview/stream."""


class KeyEntry(AnswerModel):
    """What one key may do. The key itself is nowhere: the broker has only a digest of it."""

    key: int = Field(description="Its position in the settings, from 1. Logs and metrics name it so, too.")
    scopes: list[Literal["admin", "delete", "read", "write"]]
    prefixes: list[str] = Field(description="Beginnings of the names of topics and routers; empty = any name.")


class KeysAnswer(AnswerModel):
    required: bool = Field(description="false: the broker has no keys, and everybody may do everything.")
    current: int | None = Field(description="The caller's key.")
    keys: list[KeyEntry] = Field(description="All keys, for a key with the scope admin; otherwise the caller's alone.")
    rest_prefix: str = Field(description="The path of the REST Proxy; empty: beside /v0.")
    performance: Performance

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "required": True,
                    "current": 1,
                    "keys": [{"key": 1, "scopes": ["read", "write"], "prefixes": ["orders"]}],
                    "rest_prefix": "",
                    "performance": EXAMPLE_PERFORMANCE,
                }
            ]
        },
        extra="forbid",
    )
