"""CreateTopics, DeleteTopics, CreatePartitions, DescribeLogDirs.

Source: docs/guides/kafka.md#protocol-versions.
"""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from typing import TYPE_CHECKING, Final

import msgspec

from broker.auth import ADMIN, DELETE, READ
from broker.content import in_slices
from broker.kafka import cluster, settings
from broker.kafka.apis import ApiKey
from broker.kafka.call import LIST_ITEMS, Call, Handler, decoded
from broker.kafka.changes import change, check
from broker.kafka.cluster import NO_UUID, node_id
from broker.kafka.errors import ErrorCode
from broker.kafka.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsCreatableTopic,
    CreateTopicsCreatableTopicConfigs,
    CreateTopicsCreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsDeletableTopicResult,
    DeleteTopicsDeleteTopicState,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from broker.kafka.refusals import Refused, refusal
from broker.kafka.spread import spread
from schemas import is_topic_name
from storage import TopicConfig
from storage.records import address

if TYPE_CHECKING:
    from broker.kafka.node import Cells
    from storage.state import Catalog, Topic

MAX_PARTITIONS: Final = 1024
#: From this version on, DeleteTopics may name topics by id.
_DELETED_BY_ID_SINCE: Final = 6
#: The broker's default, for partitions and replicas.
_DEFAULT: Final = -1
_DYNAMIC, _DEFAULT_SOURCE = 1, 5


async def create_topics(call: Call, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """Create topics, each by itself: some may be created and others refused."""
    times = Counter(topic.name for topic in request.topics)
    results: list[CreateTopicsCreatableTopicResult] = []
    for topic in request.topics:
        result = CreateTopicsCreatableTopicResult(name=topic.name)
        try:
            if times[topic.name] > 1:
                raise Refused(ErrorCode.INVALID_REQUEST, f"{topic.name} occurs twice in the request.")
            config = await _create(call, topic, dry=request.validate_only)
            made = call.broker.engine.catalog.topics.get(topic.name)
            if made is not None and not request.validate_only:
                result.topic_id = cluster.uuid_of(made)
            result.num_partitions, result.replication_factor = config.partitions, 1
            result.configs = _shown(config, call.broker.engine.options.max_record_bytes)
        except Exception as error:
            refused = refusal(error)
            result.error_code, result.error_message = refused.code, refused.message
        results.append(result)
    return CreateTopicsResponse(topics=results)


async def _create(call: Call, wanted: CreateTopicsCreatableTopic, *, dry: bool) -> TopicConfig:
    engine = call.broker.engine
    if not is_topic_name(wanted.name):
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, "The name of the topic is not valid.")
    if not cluster.may(call.access, ADMIN, wanted.name):
        raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    config = TopicConfig(partitions=_partitions_of(call, wanted))
    config = settings.with_values(((each.name, each.value) for each in wanted.configs), config)
    cluster.require_mine(call.broker, wanted.name)
    # No await between this check and the creation: the engine would change a topic that exists.
    if wanted.name in engine.catalog.topics:
        raise Refused(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic {wanted.name} already exists.")
    check(engine, wanted.name, config)
    if not dry:
        await engine.put_topic(wanted.name, config)
    return config


def _partitions_of(call: Call, wanted: CreateTopicsCreatableTopic) -> int:
    if wanted.assignments:
        numbers = sorted(each.partition_index for each in wanted.assignments)
        if numbers != list(range(len(numbers))):
            raise Refused(ErrorCode.INVALID_REPLICATION_ASSIGNMENT, "Partitions must be numbered from 0.")
        for each in wanted.assignments:
            _check_brokers(call, each.broker_ids)
        count = len(numbers)
    else:
        if wanted.replication_factor not in (_DEFAULT, 1):
            raise Refused(
                ErrorCode.INVALID_REPLICATION_FACTOR, "The replication factor must be 1: a partition is on one broker."
            )
        default = call.broker.settings.kafka_auto_partitions
        count = default if wanted.num_partitions == _DEFAULT else wanted.num_partitions
    _check_count(count)
    return count


def _check_brokers(call: Call, ids: list[int]) -> None:
    """Check the requested brokers: a topic is in the cell that its name determines, which carries this out."""
    here = node_id(call.broker)
    if ids != [here]:
        only = ", the only one" if call.broker.cells is None else ", which has topics of this name"
        raise Refused(ErrorCode.INVALID_REPLICATION_ASSIGNMENT, f"Replicas must be on broker {here}{only}.")


def _check_count(count: int) -> None:
    if not 1 <= count <= MAX_PARTITIONS:
        raise Refused(ErrorCode.INVALID_PARTITIONS, f"A topic has 1 to {MAX_PARTITIONS} partitions.")


def _shown(config: TopicConfig, largest_record: int) -> list[CreateTopicsCreatableTopicConfigs]:
    return [
        CreateTopicsCreatableTopicConfigs(
            name=setting.name,
            value=settings.value_of(setting, config, largest_record),
            config_source=_DEFAULT_SOURCE if settings.is_default(setting, config) else _DYNAMIC,
        )
        for setting in settings.SETTINGS.values()
    ]


async def delete_topics(call: Call, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """Delete topics with their records. From version 6 on, topics may be named by id."""
    wanted = request.topics
    if call.version < _DELETED_BY_ID_SINCE:
        wanted = [DeleteTopicsDeleteTopicState(name=name) for name in request.topic_names]
    responses: list[DeleteTopicsDeletableTopicResult] = []
    for each in wanted:
        response = DeleteTopicsDeletableTopicResult(name=each.name, topic_id=each.topic_id)
        try:
            await _delete(call, each, response)
        except Exception as error:
            refused = refusal(error)
            response.error_code, response.error_message = refused.code, refused.message
        responses.append(response)
    return DeleteTopicsResponse(responses=responses)


async def _delete(call: Call, wanted: DeleteTopicsDeleteTopicState, response: DeleteTopicsDeletableTopicResult) -> None:
    """Raises Refused, StorageError. The answer gets the name and the id of the topic, if the key covers it."""
    by_id = wanted.topic_id != NO_UUID
    if by_id is (wanted.name is not None):
        raise Refused(ErrorCode.INVALID_REQUEST, "Name a topic either by its name or by its id.")
    if by_id:
        found = cluster.known_by_id(call, wanted.topic_id)
        if found is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_ID, "No topic has this id.")
        name = response.name = found.name
    else:
        name = wanted.name or ""
    if not cluster.may(call.access, DELETE, name):
        raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    response.topic_id = cluster.uuid_of(cluster.topic(call, name))
    if not await call.broker.engine.delete_topic(name):
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


async def create_partitions(call: Call, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    """Add partitions to topics; they cannot be removed."""
    results: list[CreatePartitionsTopicResult] = []
    for wanted in request.topics:
        result = CreatePartitionsTopicResult(name=wanted.name)
        try:
            await _grow(call, wanted, dry=request.validate_only)
        except Exception as error:
            refused = refusal(error)
            result.error_code, result.error_message = refused.code, refused.message
        results.append(result)
    return CreatePartitionsResponse(results=results)


async def _grow(call: Call, wanted: CreatePartitionsTopic, *, dry: bool) -> None:
    if not cluster.may(call.access, ADMIN, wanted.name):
        raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    def grown(config: TopicConfig) -> TopicConfig:
        if wanted.count <= config.partitions:
            raise Refused(ErrorCode.INVALID_PARTITIONS, f"The topic already has {config.partitions} partitions.")
        # kafka-python 3.0 sends an empty list instead of null.
        if wanted.assignments and len(wanted.assignments) != wanted.count - config.partitions:
            raise Refused(ErrorCode.INVALID_REPLICATION_ASSIGNMENT, "Each new partition needs one assignment.")
        return msgspec.structs.replace(config, partitions=wanted.count)

    _check_count(wanted.count)
    for each in wanted.assignments or ():
        _check_brokers(call, each.broker_ids)
    topic = cluster.topic(call, wanted.name)
    if dry:
        check(call.broker.engine, wanted.name, grown(topic.config))
    else:
        await change(call.broker.engine, wanted.name, grown)


async def describe_log_dirs(call: Call, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    """One directory, and the live bytes of each partition in it: those of this cell, as clients ask each node."""
    if not cluster.may(call.access, READ):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    catalog = call.broker.engine.catalog
    foreign = {parts[0].title: parts async for parts in in_slices(catalog.foreign_parts())}
    found: list[DescribeLogDirsTopic] = []
    if request.topics is None:
        for page in cluster.pages(call.broker.engine, call.access):
            found += [_sizes(topic.name, _partitions(catalog, topic), None) async for topic in in_slices(page)]
        async for title in in_slices(sorted(foreign)):
            if cluster.may(call.access, READ, title):
                found.append(_sizes(title, foreign[title], None))
    else:
        async for wanted in in_slices(request.topics):
            topic = catalog.topics.get(wanted.topic) if is_topic_name(wanted.topic) else None
            if topic is not None and topic.provisional:
                continue
            parts = _partitions(catalog, topic) if topic is not None else foreign.get(wanted.topic)
            if parts is not None and cluster.may(call.access, READ, wanted.topic):
                found.append(_sizes(wanted.topic, parts, wanted.partitions))
    directory = call.broker.settings.data_dir.absolute()
    disk = await asyncio.to_thread(shutil.disk_usage, directory)
    result = DescribeLogDirsResult(log_dir=str(directory), topics=found, total_bytes=disk.total, usable_bytes=disk.free)
    return DescribeLogDirsResponse(results=[result])


def _partitions(catalog: Catalog, topic: Topic) -> list[Topic]:
    """Those in this cell of a topic of this cell."""
    found = (catalog.topics.get(address(topic.name, number)) for number in range(topic.config.partitions))
    return [part for part in found if part is not None]


def _sizes(name: str, parts: list[Topic], wanted: list[int] | None) -> DescribeLogDirsTopic:
    return DescribeLogDirsTopic(
        name=name,
        partitions=[
            DescribeLogDirsPartition(partition_index=part.partition, partition_size=part.log.bytes)
            for part in parts
            if not wanted or part.partition in wanted
        ],
    )


def _cell_of_deleted(cells: Cells, wanted: str | DeleteTopicsDeleteTopicState) -> int:
    if isinstance(wanted, str):
        return cells.owner(wanted)
    return cells.owner(wanted.name) if wanted.name is not None else cluster.cell_of_uuid(cells, wanted.topic_id)


def _not_deleted(
    wanted: str | DeleteTopicsDeleteTopicState, code: ErrorCode, message: str | None
) -> DeleteTopicsDeletableTopicResult:
    if isinstance(wanted, str):
        return DeleteTopicsDeletableTopicResult(name=wanted, error_code=code, error_message=message)
    return DeleteTopicsDeletableTopicResult(
        name=wanted.name, topic_id=wanted.topic_id, error_code=code, error_message=message
    )


_create_topics = spread(
    ApiKey.CREATE_TOPICS,
    CreateTopicsRequest,
    CreateTopicsResponse,
    create_topics,
    owner=lambda cells, topic: cells.owner(topic.name),
    refused=lambda topic, code, message: CreateTopicsCreatableTopicResult(
        name=topic.name, error_code=code, error_message=message
    ),
    into=[("topics", "topics")],
)
_delete_topics = spread(
    ApiKey.DELETE_TOPICS,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    delete_topics,
    owner=_cell_of_deleted,
    refused=_not_deleted,
    into=[("topics", "responses"), ("topic_names", "responses")],
)
_create_partitions = spread(
    ApiKey.CREATE_PARTITIONS,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    create_partitions,
    owner=lambda cells, topic: cells.owner(topic.name),
    refused=lambda topic, code, message: CreatePartitionsTopicResult(
        name=topic.name, error_code=code, error_message=message
    ),
    into=[("topics", "results")],
)

HANDLERS: Final[dict[int, Handler]] = {
    ApiKey.CREATE_TOPICS: decoded(CreateTopicsRequest, _create_topics),
    ApiKey.DELETE_TOPICS: decoded(DeleteTopicsRequest, _delete_topics),
    ApiKey.CREATE_PARTITIONS: decoded(CreatePartitionsRequest, _create_partitions),
    ApiKey.DESCRIBE_LOG_DIRS: decoded(
        DescribeLogDirsRequest,
        describe_log_dirs,
        lists=lambda request: request.topics is None or len(request.topics) > LIST_ITEMS,
    ),
}
