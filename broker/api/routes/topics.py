"""Topics themselves, and the deletion of records: the control plane."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import Query, Response

from broker.api.control import ControlOperations, Current, PartitionNumber, TopicName, performance
from broker.api.operation import Owner
from broker.api.refusals import refusals
from broker.api.request import Request
from broker.auth import ADMIN, DELETE, READ, Rule
from broker.content import CREATED
from broker.service import partitions, routers, topics
from schemas import (
    ConsumerFigures,
    DeleteRecordsAnswer,
    DeleteRecordsRequest,
    OfflinePartition,
    PartitionEntry,
    QueryFlag,
    QueryU64,
    QueueEntry,
    QueueState,
    RoutedPerformance,
    TopicAnswer,
    TopicChange,
    TopicConfig,
    TopicDeleteAnswer,
    TopicEntry,
    TopicListAnswer,
    TopicPutAnswer,
    TopicSettings,
)
from storage.records import TopicState

operations = ControlOperations("/v0/topics", tag="topics")


@operations.put(
    "/{topic}",
    Rule(ADMIN),
    summary="Create a topic, or replace its settings",
    description="Omitted fields return to their defaults, except partitions. 201: the topic was created.",
    responses={CREATED: {"model": TopicPutAnswer, "description": "The topic was created."}}
    | refusals("invalid_request", "topic_exists_incompatible", "throttled", "storage_full"),
)
async def put_topic(current: Current, response: Response, topic: TopicName, settings: TopicSettings) -> TopicPutAnswer:
    current.access.require(ADMIN, topics.names_in(topic, settings))
    state, created = await topics.put(current.broker.engine, topic, settings)
    if created:
        response.status_code = CREATED
    return TopicPutAnswer(topic=topic, created=created, config=_config(state), performance=performance(current))


@operations.patch(
    "/{topic}", Rule(ADMIN),
    summary="Change settings of a topic",
    description="Omitted settings stay. null is a value for priority and dead_letter. type cannot be changed.",
    responses=refusals(
        "invalid_request", "topic_not_found", "topic_exists_incompatible", "throttled", "wal_saturated",
        "storage_failed", "storage_full",
    ),
)  # fmt: skip
async def change_topic(current: Current, topic: TopicName, settings: TopicChange) -> TopicPutAnswer:
    current.access.require(ADMIN, topics.names_in_change(topic, settings))
    state = await topics.change(current.broker.engine, topic, settings)
    return TopicPutAnswer(topic=topic, created=False, config=_config(state), performance=performance(current))


@operations.get(
    "/{topic}",
    Rule(READ),
    summary="Describe a topic",
    # Leave out fields that are not set: those of queues, for logs.
    response_model_exclude_unset=True,
    responses=refusals("invalid_request", "topic_not_found"),
)
async def get_topic(
    current: Current,
    topic: TopicName,
    touch: Annotated[QueryFlag, Query(description="Count this request as a read.")] = True,
    complete: Annotated[
        QueryFlag, Query(description="Refuse to answer without the partitions of a cell that is away.")
    ] = False,
) -> TopicAnswer:
    waited = await routers.caught_up(current.broker.engine, topic)
    state, found = await topics.describe(current.broker.engine, topic, touch=touch, complete=complete)
    answer = TopicAnswer(
        topic=state.topic,
        type=state.config.type.value,
        epoch=state.epoch,
        head_seq=state.head_seq,
        earliest_seq=state.earliest_seq,
        next_seq=state.next_seq,
        count=state.count,
        bytes=state.bytes,
        config=_config(state),
        effective_priority=topics.effective_priority(current.broker.engine, state),
        last_write_ts=state.last_write_ts,
        last_read_ts=state.last_read_ts,
        performance=RoutedPerformance.model_validate(performance(current).model_dump()),
    )
    if waited is not None:
        answer.performance.router_wait_ms = round(waited.wait_ms, 3)
    if waited is not None and waited.blocked:
        answer.router_blocked = waited.blocked
    if state.config.partitions > 1:
        figures = partitions.figures(found)
        answer.partitions = [PartitionEntry.model_validate(msgspec.to_builtins(each)) for each in figures]
    if found.offline:
        answer.offline_partitions = _offline(partitions.offline(found))
    if state.queue is not None:
        answer.queue = QueueState.model_validate(msgspec.to_builtins(state.queue))
    if state.consumers is not None and state.consumers.count:
        answer.consumers = ConsumerFigures(count=state.consumers.count, lag=state.consumers.lag)
    return answer


@operations.get(
    "",
    Rule(READ),
    owner=Owner.ALL,
    summary="List topics",
    description="Ordered by the bytes of the name.",
    response_model_exclude_none=True,
    responses=refusals("invalid_request"),
)
async def list_topics(
    current: Current,
    prefix: Annotated[str, Query(description="Only names with this prefix.")] = "",
    page_size: Annotated[QueryU64 | None, Query(description="At most 1000; the default is 100.")] = None,
    cursor: Annotated[str | None, Query(description="The next_cursor of the previous page.")] = None,
) -> TopicListAnswer:
    found, next_cursor = await topics.page(
        current.broker.engine, prefix=prefix, page_size=page_size, cursor=cursor, only=current.access.prefixes
    )
    return TopicListAnswer(
        topics=[_entry(current, each) for each in found], next_cursor=next_cursor, performance=performance(current)
    )


@operations.delete(
    "/{topic}",
    Rule(DELETE),
    summary="Delete a topic and all of its records",
    description="A new topic of this name starts at seq 1 with another epoch.",
    responses=refusals("invalid_request", "topic_not_empty"),
)
async def delete_topic(
    current: Current,
    topic: TopicName,
    if_empty: Annotated[QueryFlag, Query(description="Refuse if the topic has records.")] = False,
) -> TopicDeleteAnswer:
    routers_removed = await topics.delete(current.broker.engine, topic, if_empty=if_empty)
    return TopicDeleteAnswer(
        topic=topic,
        deleted=routers_removed is not None,
        routers_removed=routers_removed or [],
        performance=performance(current),
    )


@operations.post(
    "/{topic}/delete",
    Rule(DELETE),
    summary="Delete records",
    description="Deletes records before before_seq, or those that match; with both, records that meet both "
    "conditions. Readers get no tombstone.",
    response_model_exclude_unset=True,
    responses=refusals("invalid_request", "topic_not_found"),
)
async def delete_records(
    current: Current, topic: TopicName, body: DeleteRecordsRequest, partition: PartitionNumber = None
) -> DeleteRecordsAnswer:
    engine = current.broker.engine
    address_ = partitions.at(engine, topic, partition)
    done = await topics.delete_records(engine, address_, before_seq=body.before_seq, match=body.match)
    answer = DeleteRecordsAnswer(
        topic=topic,
        deleted=done.deleted,
        earliest_seq=done.earliest_seq,
        head_seq=done.head_seq,
        count=done.count,
        bytes=done.bytes,
        performance=performance(current),
    )
    if partition:
        answer.partition = partition
    return answer


def _config(state: TopicState) -> TopicConfig:
    fields: dict[str, Any] = topics.echoed_config(state.config)
    return TopicConfig(**fields)


def _offline(found: list[partitions.OfflinePartition]) -> list[OfflinePartition]:
    return [OfflinePartition(partition=each.partition, cell=each.cell) for each in found]


def _entry(current: Request, found: topics.Listed) -> TopicEntry:
    state = found.state
    queue = state.queue
    return TopicEntry(
        topic=state.topic,
        type=state.config.type.value,
        head_seq=state.head_seq,
        earliest_seq=state.earliest_seq,
        count=state.count,
        bytes=state.bytes,
        durable=state.config.durable,
        effective_priority=topics.effective_priority(current.broker.engine, state),
        partitions=state.config.partitions if state.config.partitions > 1 else None,
        offline_partitions=_offline(found.offline) or None,
        queue=None
        if queue is None
        else QueueEntry(
            ready=queue.ready,
            in_flight=queue.in_flight,
            delayed=queue.delayed,
            paused=queue.paused,
            oldest_ready_age_ms=queue.oldest_ready_age_ms,
        ),
    )
