"""Administration of queues: the control plane of jobs."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from broker.api.control import ControlOperations, Current, TopicName, performance
from broker.api.refusals import refusals
from broker.auth import ADMIN, DELETE, READ, Rule
from broker.service import queues
from schemas import (
    Job,
    LeasesAnswer,
    PauseAnswer,
    PurgeAnswer,
    PurgeRequest,
    QueryU64,
    RedriveAnswer,
    RedriveRequest,
    StateOfJobs,
)

operations = ControlOperations("/v0/topics", tag="queues")

_REFUSALS = ("invalid_request", "topic_not_found", "not_a_queue")
_WRITES = refusals(*_REFUSALS, "wal_saturated", "storage_failed", "storage_full")


@operations.post(
    "/{topic}/pause",
    Rule(ADMIN),
    summary="Pause a queue",
    description="Durable. The queue delivers no jobs: claims wait. Ack, nack and extend work.",
    responses=_WRITES,
)
async def pause_queue(current: Current, topic: TopicName) -> PauseAnswer:
    paused = await queues.pause(current.broker.engine, topic)
    return PauseAnswer(topic=topic, paused=paused, performance=performance(current))


@operations.post("/{topic}/resume", Rule(ADMIN), summary="Resume a queue", description="Durable.", responses=_WRITES)
async def resume_queue(current: Current, topic: TopicName) -> PauseAnswer:
    paused = await queues.resume(current.broker.engine, topic)
    return PauseAnswer(topic=topic, paused=paused, performance=performance(current))


@operations.post(
    "/{topic}/purge",
    Rule(DELETE),
    summary="Delete jobs that are not leased",
    description="Readers get no tombstone. Jobs that are appended after the call stay.",
    responses=_WRITES,
)
async def purge_queue(current: Current, topic: TopicName, body: PurgeRequest) -> PurgeAnswer:
    purged = await queues.purge(current.broker.engine, topic, body.states, max=body.max, through_seq=body.through_seq)
    return PurgeAnswer(topic=topic, purged=purged, performance=performance(current))


@operations.post(
    "/{topic}/redrive",
    Rule(ADMIN),
    summary="Move jobs back from the dead letter topic",
    description="Moves only jobs that came from this queue. Their deliveries start at 0 again. Each job is moved "
    "exactly once, even over crashes. If the client disconnects, no more jobs are moved.",
    responses=_WRITES,
)
async def redrive_queue(current: Current, topic: TopicName, body: RedriveRequest) -> RedriveAnswer:
    current.access.require(ADMIN, queues.sources(topic, body.source))
    done = await current.unless_gone(
        queues.redrive(
            current.broker.engine,
            topic,
            source=body.source,
            max=body.max,
            rate_per_s=body.rate_per_s,
            dry_run=body.dry_run,
            seqs=body.seqs,
        )
    )
    return RedriveAnswer(topic=topic, moved=done.moved, remaining=done.remaining, performance=performance(current))


@operations.get(
    "/{topic}/leases",
    Rule(READ),
    summary="List jobs and their leases",
    description="By seq.",
    response_model_exclude_none=True,
    responses=refusals(*_REFUSALS),
)
async def list_jobs(
    current: Current,
    topic: TopicName,
    state: Annotated[StateOfJobs | None, Query(description="Only jobs in this state.")] = None,
    page_size: Annotated[QueryU64 | None, Query(description="At most 1000; the default is 100.")] = None,
    cursor: Annotated[str | None, Query(description="The next_cursor of the previous page.")] = None,
) -> LeasesAnswer:
    found, next_cursor = await queues.leases(
        current.broker.engine, topic, state=state, page_size=page_size, cursor=cursor
    )
    jobs = [
        Job.model_validate(
            {
                "$seq": job.seq,
                "state": job.state.value,
                "node": job.node,
                "deadline": job.deadline,
                "ready_at": job.ready_at,
                "deliveries": job.deliveries,
            }
        )
        for job in found
    ]
    return LeasesAnswer(topic=topic, jobs=jobs, next_cursor=next_cursor, performance=performance(current))
