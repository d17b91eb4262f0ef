"""Consumers: their control plane."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path, Query, Response

from broker.api.control import ControlOperations, Current, PartitionNumber, TopicName, performance
from broker.api.operation import Owner
from broker.api.refusals import refusals
from broker.api.render_consumers import entry
from broker.auth import READ, READ_WRITE, Rule
from broker.content import CREATED
from broker.kafka import require_consumer
from broker.service import consumers, partitions
from schemas import (
    CONSUMER_NAME_PATTERN,
    AllConsumersAnswer,
    ConsumerAnswer,
    ConsumerChange,
    ConsumerDeleteAnswer,
    ConsumerListAnswer,
    ConsumerPutAnswer,
    ConsumerRequest,
    QueryU64,
    SeekRequest,
)

operations = ControlOperations("/v0/topics/{topic}/consumers", tag="consumers")

everywhere = ControlOperations("/v0/consumers", tag="consumers", owner=Owner.ALL)

ConsumerName = Annotated[
    str,
    Path(
        description="The consumer's name.",
        examples=["billing"],
        json_schema_extra={"pattern": CONSUMER_NAME_PATTERN},
    ),
]
_WRITES = ("wal_saturated", "storage_failed", "storage_full")


def _address(current: Current, topic: str, partition: int | None) -> str:
    return partitions.at(current.broker.engine, topic, partition)


@operations.put(
    "/{consumer}",
    Rule(READ_WRITE),
    summary="Create a consumer, or replace its settings",
    response_model_exclude_unset=True,
    description="Omitted fields return to their defaults. The cursor of an existing consumer stays. 201: the "
    "consumer was created.",
    responses={CREATED: {"model": ConsumerPutAnswer, "description": "The consumer was created."}}
    | refusals("invalid_request", "topic_not_found", "topic_exists_incompatible", "throttled", *_WRITES),
)
async def put_consumer(
    current: Current,
    response: Response,
    topic: TopicName,
    consumer: ConsumerName,
    body: ConsumerRequest,
    partition: PartitionNumber = None,
) -> ConsumerPutAnswer:
    await require_consumer(current.broker, current.access, consumer)
    state, created = await consumers.put(current.broker.engine, _address(current, topic, partition), consumer, body)
    if created:
        response.status_code = CREATED
    return ConsumerPutAnswer.model_validate({**entry(state), "created": created, "performance": performance(current)})


@operations.patch(
    "/{consumer}",
    Rule(READ_WRITE),
    summary="Change settings of a consumer",
    response_model_exclude_unset=True,
    description="Omitted settings stay, and so does the cursor.",
    responses=refusals(
        "invalid_request", "topic_not_found", "topic_exists_incompatible", "consumer_not_found", *_WRITES
    ),
)
async def change_consumer(
    current: Current, topic: TopicName, consumer: ConsumerName, body: ConsumerChange, partition: PartitionNumber = None
) -> ConsumerPutAnswer:
    state = await consumers.change(current.broker.engine, _address(current, topic, partition), consumer, body)
    return ConsumerPutAnswer.model_validate({**entry(state), "created": False, "performance": performance(current)})


@operations.get(
    "/{consumer}",
    Rule(READ),
    summary="Describe a consumer",
    response_model_exclude_unset=True,
    responses=refusals("invalid_request", "topic_not_found", "topic_exists_incompatible", "consumer_not_found"),
)
async def get_consumer(
    current: Current, topic: TopicName, consumer: ConsumerName, partition: PartitionNumber = None
) -> ConsumerAnswer:
    state = await consumers.describe(current.broker.engine, _address(current, topic, partition), consumer)
    return ConsumerAnswer.model_validate({**entry(state), "performance": performance(current)})


@operations.get(
    "",
    Rule(READ),
    summary="List the consumers of a topic",
    description="Ordered by the bytes of the name.",
    response_model_exclude_unset=True,
    responses=refusals("invalid_request", "topic_not_found", "topic_exists_incompatible"),
)
async def list_consumers(
    current: Current,
    topic: TopicName,
    prefix: Annotated[str, Query(description="Only names with this prefix.")] = "",
    page_size: Annotated[QueryU64 | None, Query(description="At most 1000; the default is 100.")] = None,
    cursor: Annotated[str | None, Query(description="The next_cursor of the previous page.")] = None,
    partition: PartitionNumber = None,
) -> ConsumerListAnswer:
    states, next_cursor = await consumers.page(
        current.broker.engine, _address(current, topic, partition), prefix=prefix, page_size=page_size, cursor=cursor
    )
    fields: dict[str, Any] = {
        "topic": topic,
        "consumers": [entry(state) for state in states],
        "performance": performance(current),
    }
    return ConsumerListAnswer.model_validate(fields if next_cursor is None else {**fields, "next_cursor": next_cursor})


@everywhere.get(
    "",
    Rule(READ),
    summary="List the consumers of all topics",
    description="By topic, partition and name.",
    response_model_exclude_unset=True,
    responses=refusals("invalid_request"),
)
async def list_all_consumers(
    current: Current,
    page_size: Annotated[QueryU64 | None, Query(description="At most 1000; the default is 100.")] = None,
    cursor: Annotated[str | None, Query(description="The next_cursor of the previous page.")] = None,
) -> AllConsumersAnswer:
    states, next_cursor = await consumers.page_of_all(
        current.broker.engine, page_size=page_size, cursor=cursor, only=current.access.prefixes
    )
    fields: dict[str, Any] = {"consumers": [entry(state) for state in states], "performance": performance(current)}
    return AllConsumersAnswer.model_validate(fields if next_cursor is None else {**fields, "next_cursor": next_cursor})


operations.extend(everywhere)


@operations.delete(
    "/{consumer}",
    Rule(READ_WRITE),
    summary="Delete a consumer",
    description="Deletes the cursor. No record is deleted.",
    responses=refusals("invalid_request", "topic_not_found", "topic_exists_incompatible", *_WRITES),
)
async def delete_consumer(
    current: Current, topic: TopicName, consumer: ConsumerName, partition: PartitionNumber = None
) -> ConsumerDeleteAnswer:
    deleted = await consumers.delete(current.broker.engine, _address(current, topic, partition), consumer)
    return ConsumerDeleteAnswer(topic=topic, consumer=consumer, deleted=deleted, performance=performance(current))


@operations.post(
    "/{consumer}/seek",
    Rule(READ_WRITE),
    summary="Move a cursor",
    response_model_exclude_unset=True,
    description="Forward or back: after a seq, to the first record of a time or later, to the oldest record, or "
    "to the head.",
    responses=refusals(
        "invalid_request", "topic_not_found", "topic_exists_incompatible", "consumer_not_found", *_WRITES
    ),
)
async def seek_consumer(
    current: Current, topic: TopicName, consumer: ConsumerName, body: SeekRequest, partition: PartitionNumber = None
) -> ConsumerAnswer:
    state = await consumers.seek(current.broker.engine, _address(current, topic, partition), consumer, body)
    return ConsumerAnswer.model_validate({**entry(state), "performance": performance(current)})
