"""Jobs: claiming, settling, and looking after queues.

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

Node = Annotated[str, Field(min_length=1, description="Who works: at most 128 bytes.")]
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
    """What a queue holds."""

    ready: int
    in_flight: int = Field(description="Leased.")
    delayed: int
    dead_lettered: int = Field(description="Jobs moved to the dead letter topic, ever.")
    dead_pending: int = Field(description="Jobs that cannot be moved there at the moment.")
    lost: int = Field(description="Jobs that a cap or ttl took before they were acked, ever.")
    paused: bool
    oldest_ready_age_ms: int | None
    waiting_claims: int


class ClaimRequest(RequestModel):
    """Who wants jobs, and how many."""

    node: Node
    max: U64 = Field(1, description="At most 1000; 0 means 1.")
    lease_ms: U64 | None = Field(None, description="Left out: as the queue has it. Clamped to 100 … 86 400 000.")
    wait_ms: U64 = Field(0, description="Wait so long for a job when there is none; at most 30000.")
    attempt_key: AttemptKey | None = Field(
        None, description="At most 128 bytes. The same key again gives the jobs of the first answer, and no others."
    )

    model_config = _example({"node": "worker-1", "max": 10})


class ClaimedJob(AnswerModel):
    seq: int = Field(alias="$seq")
    lease_id: str
    deadline: int = Field(description="The lease is over when this time has passed.")
    ts: int = Field(alias="$ts")
    node: str | None = Field(None, alias="$node", description="Left out when the job has none.")
    tag: str | None = Field(None, alias="$tag", description="Left out when the job has none.")
    deliveries: int = Field(description="How often it was handed out, this time included.")
    data: JsonValue = Field(None)
    meta: JsonValue = Field(None)


class ClaimAnswer(AnswerModel):
    topic: str
    claimed: list[ClaimedJob]
    count: int
    ready: int = Field(description="Jobs that are still to be had.")
    router_blocked: RouterBlocked = None
    performance: RoutedPerformance

    model_config = _example(
        {"topic": "mails", "claimed": [EXAMPLE_JOB], "count": 1, "ready": 4, "performance": EXAMPLE_PERFORMANCE},
        extra="forbid",
    )


class AckRequest(RequestModel):
    """Jobs, and by which lease."""

    node: Node
    seqs: Seqs
    lease_ids: list[LeaseId] | None = Field(
        None, description='As they were given out, one for each seq; "" = any lease of the node.'
    )

    model_config = _example({"node": "worker-1", "seqs": [1], "lease_ids": ["lease_00c0ffee00c0ffee"]})


class NackRequest(AckRequest):
    delay_ms: DelayMs | None = Field(None, description="Not before so many ms; left out: as the queue's backoff says.")
    penalty: Flag = Field(True, description="false: this delivery counts neither for backoff nor for dead letter.")
    reason: str | None = Field(None, description="At most 1024 bytes; goes with the job to the dead letter topic.")

    model_config = _example({"node": "worker-1", "seqs": [1], "delay_ms": 5_000, "reason": "mail server is down"})


class ExtendRequest(AckRequest):
    lease_ms: U64 = Field(description="The lease ends so long from now.")

    model_config = _example({"node": "worker-1", "seqs": [1], "lease_ms": 60_000})


class Settled(AnswerModel):
    """What became of the jobs of a call."""

    topic: str
    skipped: list[int] = Field(description="Seqs whose lease is not, or no longer, the caller's.")
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
    """Which jobs to delete for good."""

    states: Annotated[list[Literal["ready", "delayed"]], Field(min_length=1)] = Field(
        default_factory=lambda: ["ready", "delayed"]
    )

    model_config = _example({"states": ["ready", "delayed"]})


class PurgeAnswer(AnswerModel):
    topic: str
    purged: int
    performance: Performance

    model_config = _example({"topic": "mails", "purged": 4, "performance": EXAMPLE_PERFORMANCE}, extra="forbid")


class RedriveRequest(RequestModel):
    """Which of the queue's jobs to bring back from a dead letter topic, and how fast."""

    source: NameOfTopic | None = Field(None, alias="from", description="Left out: the queue's dead_letter.")
    max: Annotated[int, Field(strict=True, ge=1, le=10_000)] = 1000
    rate_per_s: Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)] | None = Field(
        None, description="Jobs a second; left out: as fast as it goes."
    )
    dry_run: Flag = Field(False, description="Only count.")

    model_config = _example({"from": "mails-dead", "max": 100, "dry_run": True})


class RedriveAnswer(AnswerModel):
    topic: str
    moved: int = Field(description="Jobs moved; with dry_run, that would be.")
    remaining: int = Field(description="Jobs of this queue that are left there.")
    performance: Performance

    model_config = _example(
        {"topic": "mails", "moved": 3, "remaining": 0, "performance": EXAMPLE_PERFORMANCE}, extra="forbid"
    )


class Job(AnswerModel):
    """A job as it stands; never its lease_id, which only the holder knows."""

    seq: int = Field(alias="$seq")
    state: Literal["ready", "leased", "delayed", "dead"]
    node: str | None = Field(None, description="Who holds it.")
    deadline: int | None = Field(None, description="Of the lease.")
    ready_at: int | None = Field(None, description="When a delayed one can be had.")
    deliveries: int


class LeasesAnswer(AnswerModel):
    topic: str
    jobs: list[Job]
    next_cursor: str | None = Field(None, description="Left out on the last page.")
    performance: Performance

    model_config = _example(
        {
            "topic": "mails",
            "jobs": [{"$seq": 1, "state": "leased", "node": "worker-1", "deadline": _NOW + 30_000, "deliveries": 1}],
            "performance": EXAMPLE_PERFORMANCE,
        },
        extra="forbid",
    )
