"""Queues: claiming and completing jobs, and administration.

Source: docs/reference/api.md#queues.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, WithJsonSchema

from schemas.fields import (
    U64,
    AnswerModel,
    AttemptKey,
    DelayMs,
    Flag,
    JsonValue,
    NameOfTopic,
    RequestModel,
    RouterBlocked,
)
from schemas.performance import Performance, RoutedPerformance
from schemas.records import EXAMPLE_PERFORMANCE

Node = Annotated[str, Field(min_length=1, description="Name of the worker; at most 128 bytes.")]
Seqs = Annotated[list[U64], Field(max_length=1000)]
LeaseId = Annotated[str, WithJsonSchema({"type": "string", "pattern": "^(lease_[0-9a-f]{16})?$"})]

_NOW = 1_767_225_600_000
EXAMPLE_JOB: dict[str, Any] = {
    "$seq": 1,
    "lease_id": "lease_00c0ffee00c0ffee",
    "deadline": _NOW + 30_000,
    "$ts": _NOW,
    "deliveries": 1,
    "data": {"mail": 7},
}


def _example(value: dict[str, Any], **settings: Any) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [value]}, **settings)


class QueueState(AnswerModel):
    """The state of a queue."""

    ready: int
    in_flight: int = Field(description="Leased jobs.")
    delayed: int
    dead_lettered: int = Field(description="Jobs that were moved to the dead letter topic, in total.")
    dead_pending: int = Field(description="Jobs that are still to be moved there.")
    lost: int = Field(description="Jobs that a cap or ttl deleted before an ack, in total.")
    paused: bool
    oldest_ready_age_ms: int | None
    waiting_claims: int


class ClaimRequest(RequestModel):
    """A claim for jobs."""

    node: Node
    max: U64 = Field(1, description="At most 1000; 0 means 1.")
    lease_ms: U64 | None = Field(None, description="The default is the queue's. Clamped to 100 … 86 400 000.")
    wait_ms: U64 = Field(0, description="How long to wait if there is no job; at most 30000.")
    attempt_key: AttemptKey | None = Field(
        None, description="At most 128 bytes. A repetition with the same key returns the jobs of the first answer."
    )

    model_config = _example({"node": "worker-1", "max": 10})


class ClaimedJob(AnswerModel):
    seq: int = Field(alias="$seq")
    lease_id: str
    deadline: int = Field(description="When the lease ends.")
    ts: int = Field(alias="$ts")
    node: str | None = Field(None, alias="$node", description="Omitted if the job has none.")
    tag: str | None = Field(None, alias="$tag", description="Omitted if the job has none.")
    deliveries: int = Field(description="How often the job was delivered, including this time.")
    data: JsonValue = Field(None)
    meta: JsonValue = Field(None)


class ClaimAnswer(AnswerModel):
    topic: str
    claimed: list[ClaimedJob]
    count: int
    ready: int = Field(description="Jobs that can still be claimed.")
    router_blocked: RouterBlocked = None
    performance: RoutedPerformance

    model_config = _example(
        {"topic": "mails", "claimed": [EXAMPLE_JOB], "count": 1, "ready": 4, "performance": EXAMPLE_PERFORMANCE},
        extra="forbid",
    )


class AckRequest(RequestModel):
    """Jobs, and their leases."""

    node: Node
    seqs: Seqs
    lease_ids: list[LeaseId] | None = Field(
        None, description='From the claim, one for each seq; "" = any lease of the node.'
    )

    model_config = _example({"node": "worker-1", "seqs": [1], "lease_ids": ["lease_00c0ffee00c0ffee"]})


class NackRequest(AckRequest):
    delay_ms: DelayMs | None = Field(
        None, description="When the job can be claimed again; the default is the queue's backoff."
    )
    penalty: Flag = Field(
        True, description="false: this delivery counts neither for the backoff nor for max_deliveries."
    )
    reason: str | None = Field(None, description="At most 1024 bytes. The dead letter of the job contains it.")

    model_config = _example({"node": "worker-1", "seqs": [1], "delay_ms": 5_000, "reason": "mail server is down"})


class ExtendRequest(AckRequest):
    lease_ms: U64 = Field(description="The time from now until the lease ends.")

    model_config = _example({"node": "worker-1", "seqs": [1], "lease_ms": 60_000})


class Settled(AnswerModel):
    """The result for the jobs of a call."""

    topic: str
    skipped: list[int] = Field(description="Seqs whose lease the caller does not hold, or no longer.")
    ready: int
    in_flight: int
    performance: Performance


_SETTLED: dict[str, Any] = {"skipped": [], "ready": 4, "in_flight": 0, "performance": EXAMPLE_PERFORMANCE}


class AckAnswer(Settled):
    acked: int

    model_config = _example({"topic": "mails", "acked": 1, **_SETTLED}, extra="forbid")


class NackAnswer(Settled):
    nacked: int

    model_config = _example({"topic": "mails", "nacked": 1, **_SETTLED}, extra="forbid")


class ExtendAnswer(Settled):
    extended: int
    deadlines: dict[str, int] = Field(description="The new deadline of each job, by seq.")

    model_config = _example(
        {"topic": "mails", "extended": 1, **_SETTLED, "in_flight": 1, "deadlines": {"1": _NOW + 60_000}},
        extra="forbid",
    )


class PauseAnswer(AnswerModel):
    topic: str
    paused: bool
    performance: Performance

    model_config = _example({"topic": "mails", "paused": True, "performance": EXAMPLE_PERFORMANCE}, extra="forbid")


class PurgeRequest(RequestModel):
    """The jobs to delete."""

    states: Annotated[list[Literal["ready", "delayed"]], Field(min_length=1)] = Field(
        default_factory=lambda: ["ready", "delayed"]
    )
    max: Annotated[int, Field(strict=True, ge=1, le=10_000)] | None = Field(
        None, description="The most jobs; the default is all."
    )
    through_seq: U64 | None = Field(
        None, description="Only jobs up to this seq; the default is the head at the call. For calls with max."
    )

    model_config = _example({"states": ["ready", "delayed"], "max": 1000, "through_seq": 52_000})


class PurgeAnswer(AnswerModel):
    topic: str
    purged: int
    performance: Performance

    model_config = _example({"topic": "mails", "purged": 4, "performance": EXAMPLE_PERFORMANCE}, extra="forbid")


class RedriveRequest(RequestModel):
    """Which of the queue's jobs to move back from a dead letter topic, and how fast."""

    source: NameOfTopic | None = Field(None, alias="from", description="The default is the queue's dead_letter.")
    max: Annotated[int, Field(strict=True, ge=1, le=10_000)] = 1000
    rate_per_s: Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)] | None = Field(
        None, description="Jobs per second; the default is as fast as possible."
    )
    dry_run: Flag = Field(False, description="Only count.")
    seqs: Seqs | None = Field(
        None, description="Only these records of that topic. Those that were no jobs of this queue stay where they are."
    )

    model_config = _example({"from": "mails-dead", "max": 100, "dry_run": True})


class RedriveAnswer(AnswerModel):
    topic: str
    moved: int = Field(description="Jobs that were moved, or with dry_run would be moved.")
    remaining: int = Field(description="Jobs of this queue that remain there.")
    performance: Performance

    model_config = _example(
        {"topic": "mails", "moved": 3, "remaining": 0, "performance": EXAMPLE_PERFORMANCE}, extra="forbid"
    )


class Job(AnswerModel):
    """The state of a job, without its lease_id, which only the holder may know."""

    seq: int = Field(alias="$seq")
    state: Literal["ready", "leased", "delayed", "dead"]
    node: str | None = Field(None, description="The worker that holds the lease.")
    deadline: int | None = Field(None, description="When the lease ends.")
    ready_at: int | None = Field(None, description="When a delayed job can be claimed.")
    deliveries: int


class LeasesAnswer(AnswerModel):
    topic: str
    jobs: list[Job]
    next_cursor: str | None = Field(None, description="Omitted on the last page.")
    performance: Performance

    model_config = _example(
        {
            "topic": "mails",
            "jobs": [{"$seq": 1, "state": "leased", "node": "worker-1", "deadline": _NOW + 30_000, "deliveries": 1}],
            "performance": EXAMPLE_PERFORMANCE,
        },
        extra="forbid",
    )
