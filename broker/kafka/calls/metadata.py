"""Metadata, DescribeCluster, DescribeTopicPartitions, FindCoordinator.

Metadata creates the named topics if the client requests that and may write.

Source: docs/guides/kafka.md#protocol-versions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from broker.auth import READ, WRITE
from broker.content import in_slices
from broker.kafka import cluster, no_transactions
from broker.kafka.apis import ApiKey
from broker.kafka.call import LIST_ITEMS, Call, Handler, decoded
from broker.kafka.cluster import LEADER_EPOCH, NO_LEADER
from broker.kafka.codec import PADDED_VERSION, TOPIC_PADDING
from broker.kafka.described import Shape, newest, recalled
from broker.kafka.errors import ErrorCode, code_of
from broker.kafka.messages.metadata import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
    FindCoordinatorCoordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from broker.kafka.spread import AWAY_AFTER_S, all_there, from_all, spread
from schemas import is_topic_name
from storage import TopicConfig

if TYPE_CHECKING:
    from broker.kafka.node import Cells
    from storage.state import Topic

#: Key types: groups, and transactions, which do not exist here.
_COORDINATED: Final = (0, 1)
#: From this version on, FindCoordinator takes several keys.
_BATCHED_SINCE: Final = 4
#: An endpoint type.
_BROKERS: Final = 1
#: From this version on, a request says whether to create topics.
_ASKS_SINCE: Final = 4
#: From this version on, an answer may omit a topic's name.
_NAMELESS_SINCE: Final = 12
#: From this version on, an answer has the ids of topics.
_IDS_SINCE: Final = 10
#: Between cells: that of the topic could not be asked. No client gets this code.
_AWAY: Final = ErrorCode.REQUEST_TIMED_OUT


async def metadata(call: Call, request: MetadataRequest) -> MetadataResponse:
    """The nodes, and the requested topics; without any (in version 0: an empty list), all that the key covers."""
    if _wants_all(call, request):
        found = await from_all(call, request, MetadataResponse, _topics)
        topics = found[0].topics
        if len(found) > 1:
            listed = [each for one in found for each in one.topics]
            topics = await asyncio.to_thread(sorted, listed, key=lambda each: each.name or "")
    else:
        topics = (await _topics_of_cells(call, request)).topics
        if (cells := call.broker.cells) is not None:
            away = [topic.name async for topic in in_slices(topics) if topic.error_code == _AWAY and topic.name]
            others = await recalled(cells, away) if away else {}
            topics = [_completed(call, cells, topic, request, others) async for topic in in_slices(topics)]
    operations = MetadataResponse().cluster_authorized_operations
    if request.include_cluster_authorized_operations:
        operations = cluster.cluster_operations(call.access)
    members = cluster.members(call)
    if call.broker.cells is not None:
        await _leave_out_unknown_leaders(topics, {each.node_id for each in members})
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=each.node_id, host=each.host, port=each.port) for each in members],
        cluster_id=cluster.cluster_id(call.broker),
        controller_id=cluster.controller(call, members),
        topics=topics,
        cluster_authorized_operations=operations,
    )


async def _leave_out_unknown_leaders(topics: Iterable[MetadataResponseTopic], nodes: Collection[int]) -> None:
    """Name no leader that is not among these nodes. The cell that described a topic may not know yet, or not any more,
    who owns another cell."""
    async for topic in in_slices(topics):
        for each in topic.partitions:
            if each.leader_id not in nodes and each.leader_id != NO_LEADER:
                each.error_code, each.leader_id = ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER
                each.offline_replicas = each.replica_nodes


def _remembered(call: Call, shape: Shape | None) -> Shape | None:
    """The shape, if it says all that this version of the answer has."""
    lacks_id = shape is not None and call.version >= _IDS_SINCE and shape.topic_id == cluster.NO_UUID
    return None if lacks_id else shape


def _completed(
    call: Call, cells: Cells, topic: MetadataResponseTopic, request: MetadataRequest, others: Mapping[str, Shape]
) -> MetadataResponseTopic:
    """The topic, or what its cell has last said of it if that is away. `others`: what other cells remember."""
    name, memory = topic.name, call.broker.kafka_described
    if topic.error_code != _AWAY:
        if name and cells.owner(name) != cells.me:
            memory.note(topic, cells)
        return topic
    # Another cell may have been told of it later, after it was made anew, or got more partitions.
    remembered = (memory.of(name), others.get(name)) if name else ()
    known = [each for each in remembered if each is not None and _remembered(call, each)]
    shape = newest(known)
    if name is None or shape is None:
        return MetadataResponseTopic(error_code=ErrorCode.LEADER_NOT_AVAILABLE, name=name, topic_id=topic.topic_id)
    if not cluster.may(call.access, READ, name) and not cluster.may(call.access, WRITE, name):
        return MetadataResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name)
    nodes = cluster.nodes(call)
    leaders = [cluster.leader_in(cell, nodes) for cell in shape.cells]
    return _shown(call, name, shape.topic_id, leaders, request)


async def _wait(call: Call, request: MetadataRequest) -> None:
    if _wants_all(call, request):
        await all_there(call)


def _wants_all(call: Call, request: MetadataRequest) -> bool:
    return request.topics is None or (call.version == 0 and not request.topics)


async def _topics(call: Call, request: MetadataRequest) -> MetadataResponse:
    """The requested topics of this cell, and nothing else."""
    if _wants_all(call, request):
        return MetadataResponse(topics=await _all(call, request))
    makes = call.version < _ASKS_SINCE or request.allow_auto_topic_creation
    topics = request.topics or ()
    return MetadataResponse(
        topics=[await _asked_for(call, topic, request, makes=makes) async for topic in in_slices(topics)]
    )


def _cell_of(cells: Cells, asked: MetadataRequestTopic) -> int:
    if asked.name is not None and asked.topic_id == cluster.NO_UUID:
        return cells.owner(asked.name)
    return cluster.cell_of_uuid(cells, asked.topic_id)


_topics_of_cells = spread(
    ApiKey.METADATA,
    MetadataRequest,
    MetadataResponse,
    _topics,
    owner=_cell_of,
    refused=lambda asked, code, _: MetadataResponseTopic(
        error_code=code, name=asked.name or "", topic_id=asked.topic_id
    ),
    into=[("topics", "topics")],
    unavailable=_AWAY,
    timeout_s=AWAY_AFTER_S,
    patience_s=0,  # later requests of the connection wait for this answer, and clients repeat the request
)


async def _all(call: Call, request: MetadataRequest) -> list[MetadataResponseTopic]:
    found: list[MetadataResponseTopic] = []
    if cluster.may(call.access, READ):
        for page in cluster.pages(call.broker.engine, call.access):
            found += [_described(call, topic, request) async for topic in in_slices(page)]
    return found


async def _asked_for(
    call: Call, asked: MetadataRequestTopic, request: MetadataRequest, *, makes: bool
) -> MetadataResponseTopic:
    """The requested topics, by id if there is one (Java's client sends an empty name with it), or by name."""
    if asked.name is not None and asked.topic_id == cluster.NO_UUID:
        return await _named(call, asked.name, request, makes=makes)
    topic = cluster.with_uuid(call.broker.engine, asked.topic_id)
    if topic is not None and (
        cluster.may(call.access, READ, topic.name) or cluster.may(call.access, WRITE, topic.name)
    ):
        return _described(call, topic, request)
    # A topic that the key does not cover must not be visible by id.
    nameless = None if call.version >= _NAMELESS_SINCE else ""
    return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=nameless, topic_id=asked.topic_id)


async def _named(call: Call, name: str, request: MetadataRequest, *, makes: bool) -> MetadataResponseTopic:
    def refused(code: ErrorCode) -> MetadataResponseTopic:
        return MetadataResponseTopic(error_code=code, name=name)

    if not is_topic_name(name):
        return refused(ErrorCode.INVALID_TOPIC_EXCEPTION)
    topic = call.broker.engine.catalog.topics.get(name)
    reads = cluster.may(call.access, READ, name)
    if topic is None and makes:
        if not cluster.may(call.access, WRITE, name):
            return refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        try:
            await call.broker.engine.put_topic(name, auto_created(call))
        except Exception as error:
            return refused(code_of(error))
        topic = call.broker.engine.catalog.topics.get(name)
    elif not reads and not cluster.may(call.access, WRITE, name):
        return refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if topic is None:
        return refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if topic.provisional:  # its creator still waits for the commit
        return refused(ErrorCode.LEADER_NOT_AVAILABLE)
    return _described(call, topic, request)


def auto_created(call: Call) -> TopicConfig:
    """The settings of a topic that a client creates by naming it."""
    return TopicConfig(partitions=call.broker.settings.kafka_auto_partitions)


def _described(call: Call, topic: Topic, request: MetadataRequest) -> MetadataResponseTopic:
    nodes = cluster.nodes(call)
    leaders = [cluster.leader(topic, number, nodes) for number in range(topic.config.partitions)]
    return _shown(call, topic.name, cluster.uuid_of(topic), leaders, request)


def _shown(
    call: Call, name: str, topic_id: bytes, leaders: Iterable[cluster.Leader], request: MetadataRequest
) -> MetadataResponseTopic:
    """A topic with these leaders of its partitions."""
    shown = MetadataResponseTopic(
        name=name,
        topic_id=topic_id,
        partitions=[
            MetadataResponsePartition(
                error_code=leader.error_code,
                partition_index=number,
                leader_id=leader.node_id,
                leader_epoch=LEADER_EPOCH,
                replica_nodes=[leader.replica],
                isr_nodes=[leader.replica],
                offline_replicas=leader.offline,
            )
            for number, leader in enumerate(leaders)
        ],
    )
    if request.include_topic_authorized_operations:
        shown.topic_authorized_operations = cluster.topic_operations(call.access, name)
    return shown


def _room(answer: MetadataResponse, version: int) -> int:
    return len(answer.topics) * TOPIC_PADDING if version == PADDED_VERSION else 0


async def describe_cluster(call: Call, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """The nodes. There are no separate controllers, which newer versions may request."""
    if request.endpoint_type != _BROKERS:
        return DescribeClusterResponse(error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, endpoint_type=_BROKERS)
    members = cluster.members(call)
    answer = DescribeClusterResponse(
        cluster_id=cluster.cluster_id(call.broker),
        controller_id=cluster.controller(call, members),
        brokers=[DescribeClusterBroker(broker_id=each.node_id, host=each.host, port=each.port) for each in members],
    )
    if request.include_cluster_authorized_operations:
        answer.cluster_authorized_operations = cluster.cluster_operations(call.access)
    return answer


async def find_coordinator(call: Call, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """The node of each group, and an error for transactions. From version 4 on, for several keys."""
    found = [_coordinator(call, key, request.key_type) for key in request.coordinator_keys]
    if call.version >= _BATCHED_SINCE:
        return FindCoordinatorResponse(coordinators=found)
    one = _coordinator(call, request.key, request.key_type)
    return FindCoordinatorResponse(
        error_code=one.error_code, error_message=one.error_message, node_id=one.node_id, host=one.host, port=one.port
    )


def _coordinator(call: Call, key: str, key_type: int) -> FindCoordinatorCoordinator:
    if key_type not in _COORDINATED:
        return FindCoordinatorCoordinator(
            key=key, error_code=ErrorCode.INVALID_REQUEST, error_message=f"Key type {key_type} does not exist."
        )
    if key_type == no_transactions.TRANSACTION:
        code = no_transactions.refusal(call)
        return FindCoordinatorCoordinator(key=key, error_code=code, error_message=no_transactions.MESSAGE)
    found = cluster.coordinator(call, key)
    if found is None:
        return FindCoordinatorCoordinator(
            key=key, error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, error_message="The coordinator is being moved."
        )
    return FindCoordinatorCoordinator(key=key, node_id=found.node_id, host=found.host, port=found.port)


HANDLERS: Final[dict[int, Handler]] = {
    ApiKey.METADATA: decoded(
        MetadataRequest,
        metadata,
        lists=lambda request: not request.topics or len(request.topics) > LIST_ITEMS,
        before=_wait,
        room=_room,
    ),
    ApiKey.DESCRIBE_CLUSTER: decoded(DescribeClusterRequest, describe_cluster),
    ApiKey.FIND_COORDINATOR: decoded(FindCoordinatorRequest, find_coordinator),
}
