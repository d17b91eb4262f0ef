"""REST v3: the cluster, topics, their settings, groups and their lag.

Source: docs/guides/rest-proxy.md.
"""

from __future__ import annotations

from typing import Any

import msgspec

from broker.api.request import Request
from broker.auth import ADMIN
from broker.content import CREATED, JSON, NO_CONTENT, Answer, in_slices, strict_json, yield_to_loop
from broker.kafka import (
    BROKER_ID,
    InvalidConfig,
    Setting,
    broker_settings,
    change,
    cluster_id,
    may_use_group,
    named_operations,
    settings,
    topic_operations,
    usable_groups,
)
from broker.proxy import (
    V3,
    BadRequest,
    ClusterMissing,
    ConfigMissing,
    ConsumerMissing,
    GroupMissing,
    GroupView,
    Lag,
    MemberView,
    TopicPartitionMissing,
    base_of,
    count_of,
    group_view,
    lags,
    topics,
    v3,
)
from broker.service import check_topic_name
from storage import TopicConfig, TopicNotFound


class _NewTopic(msgspec.Struct):
    topic_name: str
    partitions_count: int | None = None
    replication_factor: int | None = None
    configs: list[dict[str, Any]] = []
    validate_only: bool = False


class _Changes(msgspec.Struct):
    data: list[dict[str, Any]]
    validate_only: bool = False


class _Value(msgspec.Struct):
    value: str | None = None


class _Partitions(msgspec.Struct):
    partitions_count: int


_new_topic = msgspec.json.Decoder(_NewTopic)
_changes = msgspec.json.Decoder(_Changes)
_value = msgspec.json.Decoder(_Value)
_partitions = msgspec.json.Decoder(_Partitions)


def base_uri(request: Request) -> str:
    """The URL at which the caller reaches the proxy."""
    scheme = request.scope.get("scheme", "http")
    return base_of(request.headers, scheme, request.broker.settings.kafka_rest_prefix or "")


def cluster_of(request: Request) -> V3:
    """The cluster in the path. Raises ClusterMissing."""
    cluster = cluster_id(request.broker)
    if request.values and request.values[0] != cluster:
        raise ClusterMissing
    return V3(base_uri(request), cluster)


def _answer(value: Any, status: int = 200) -> Answer:
    return Answer(msgspec.json.encode(value), status=status)


async def _list(empty: dict[str, Any], found: list[bytes]) -> Answer:
    """The answer `empty` with the encoded items `found` in its `data`, of which there may be many."""
    head, data, tail = msgspec.json.encode(empty).rpartition(b'"data":[')
    await yield_to_loop()
    return Answer(b"".join((head, data, b",".join(found), tail)))


def _done() -> Answer:
    return Answer(b"", status=NO_CONTENT, content_type=JSON)


# -- the cluster -------------------------------------------------------------------------------------------------------


async def list_clusters(request: Request) -> Answer:
    return _answer(cluster_of(request).clusters())


async def get_cluster(request: Request) -> Answer:
    return _answer(cluster_of(request).this_cluster())


async def list_brokers(request: Request) -> Answer:
    cluster = cluster_of(request)
    return _answer(cluster.listed("Broker", "/brokers", [_broker(request, cluster)]))


async def get_broker(request: Request) -> Answer:
    cluster = cluster_of(request)
    _check_broker(request)
    return _answer(_broker(request, cluster))


async def list_broker_configs(request: Request) -> Answer:
    """List the settings of the only broker, or of all brokers."""
    cluster = cluster_of(request)
    if len(request.values) > 1:
        _check_broker(request)
    path = f"/brokers/{request.values[1] if len(request.values) > 1 else '-'}/configs"
    found = [cluster.setting(each) for each in broker_settings(request.broker, *_address(request))]
    return _answer(cluster.listed("BrokerConfig", path, found))


async def get_broker_config(request: Request) -> Answer:
    cluster = cluster_of(request)
    _check_broker(request)
    for each in broker_settings(request.broker, *_address(request)):
        if each.name == request.values[2]:
            return _answer(cluster.setting(each))
    raise ConfigMissing


async def list_cluster_configs(request: Request) -> Answer:
    """List the settings that were changed at run time for all brokers: there are none."""
    return _answer(cluster_of(request).listed("ClusterConfig", "/broker-configs", []))


async def list_broker_replicas(request: Request) -> Answer:
    """List all replicas of topics that the key is for: there is one broker."""
    cluster = cluster_of(request)
    _check_broker(request)
    engine = request.broker.engine
    found = [
        msgspec.json.encode(cluster.replica(name, number))
        async for name in in_slices(topics.names(engine, request.access.prefixes))
        async for number in in_slices(range(count_of(engine, name)))
    ]
    return await _list(cluster.listed("Replica", f"/brokers/{BROKER_ID}/partition-replicas", []), found)


def _check_broker(request: Request) -> None:
    if request.values[1] != str(BROKER_ID):
        raise BadRequest("No broker has that id.")


def _broker(request: Request, cluster: V3) -> dict[str, Any]:
    return cluster.broker(*_address(request))


def _address(request: Request) -> tuple[str, int]:
    """The address that clients are told to connect to."""
    advertised = request.broker.settings.kafka_advertised
    if advertised is not None:
        return advertised.host, advertised.port
    host, _, port = base_uri(request).removesuffix("/").partition("://")[2].partition("/")[0].partition(":")
    return host, int(port) if port.isdigit() else request.broker.settings.kafka_port or 0


# -- topics ------------------------------------------------------------------------------------------------------------


async def list_topics(request: Request) -> Answer:
    cluster, engine = cluster_of(request), request.broker.engine
    names = in_slices(topics.names(engine, request.access.prefixes))
    found = [msgspec.json.encode(cluster.topic(name, count_of(engine, name))) async for name in names]
    return await _list(cluster.listed("Topic", "/topics", []), found)


async def create_topic(request: Request) -> Answer:
    cluster, engine = cluster_of(request), request.broker.engine
    wanted = await strict_json.decode(await request.read_body(), _new_topic)
    request.access.require(ADMIN, [wanted.topic_name])
    check_topic_name(wanted.topic_name)
    if wanted.replication_factor not in (None, -1, 1):
        message = f"Replication factor: {wanted.replication_factor} larger than available brokers: 1."
        raise BadRequest(message)
    count = wanted.partitions_count
    count = request.broker.settings.kafka_auto_partitions if count in (None, -1) else count
    config = TopicConfig(partitions=count or 0)
    if config.partitions < 1:
        raise BadRequest("partitions_count: must be larger than 0.")
    given = [(str(each.get("name")), _text(each.get("value"))) for each in wanted.configs]
    config = _applied(lambda: settings.with_values(given, config))
    if count_of(engine, wanted.topic_name):
        raise BadRequest(f"Topic '{wanted.topic_name}' already exists.")
    if not wanted.validate_only:
        await engine.put_topic(wanted.topic_name, config)
    return _answer(cluster.topic(wanted.topic_name, config.partitions), CREATED)


async def get_topic(request: Request) -> Answer:
    cluster, (name, config) = cluster_of(request), _topic(request)
    asked = request.query.flag("include_authorized_operations", False)
    operations = named_operations(topic_operations(request.access, name)) if asked else ()
    return _answer(cluster.topic(name, config.partitions, operations))


async def delete_topic(request: Request) -> Answer:
    cluster_of(request)
    if await request.broker.engine.remove_topic(request.values[1]) is None:
        raise TopicPartitionMissing
    return _done()


async def add_partitions(request: Request) -> Answer:
    cluster, (name, now) = cluster_of(request), _topic(request)
    count = (await strict_json.decode(await request.read_body(), _partitions)).partitions_count
    if count <= now.partitions:
        raise BadRequest(f"Topic currently has {now.partitions} partitions, which is not fewer than {count}.")
    await change(request.broker.engine, name, lambda config: msgspec.structs.replace(config, partitions=count))
    return _answer(cluster.topic(name, count))


async def list_partitions(request: Request) -> Answer:
    cluster, (name, config) = cluster_of(request), _topic(request)
    found = [cluster.partition(name, number) for number in range(config.partitions)]
    return _answer(cluster.listed("Partition", f"/topics/{name}/partitions", found))


async def get_partition(request: Request) -> Answer:
    cluster, (name, number) = cluster_of(request), _partition(request)
    return _answer(cluster.partition(name, number))


async def get_partition_offsets(request: Request) -> Answer:
    """Get the first existing offset and the next one."""
    cluster, (name, number) = cluster_of(request), _partition(request)
    asked = request.query.text("offset_type")
    if asked not in (None, "earliest_and_latest"):
        raise BadRequest(f"offset_type is {asked!r}; expected earliest_and_latest.")
    sources = request.broker.proxy.sources
    await sources.look("", [name])
    return _answer(cluster.partition_offsets(name, number, *sources.bounds((name, number))))


async def list_reassignments(request: Request) -> Answer:
    """List the reassignments of a topic, or of all: none, because there is one broker."""
    cluster = cluster_of(request)
    name = _topic(request)[0] if len(request.values) > 1 else "-"
    return _answer(cluster.listed("Reassignment", f"/topics/{name}/partitions/-/reassignment", []))


async def get_replica(request: Request) -> Answer:
    cluster, (name, number) = cluster_of(request), _partition(request)
    if request.values[3] != str(BROKER_ID):
        raise TopicPartitionMissing
    return _answer(cluster.replica(name, number))


async def list_replicas(request: Request) -> Answer:
    cluster, (name, number) = cluster_of(request), _partition(request)
    path = f"/topics/{name}/partitions/{number}/replicas"
    return _answer(cluster.listed("Replica", path, [cluster.replica(name, number)]))


def _topic(request: Request) -> tuple[str, TopicConfig]:
    """The topic of the path, and its config. Raises TopicPartitionMissing."""
    name = request.values[1]
    try:
        return name, request.broker.engine.topic(name).config
    except TopicNotFound:
        raise TopicPartitionMissing from None


def _partition(request: Request) -> tuple[str, int]:
    (name, config), text = _topic(request), request.values[2]
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) < config.partitions):
        raise TopicPartitionMissing
    return name, int(text)


# -- settings ----------------------------------------------------------------------------------------------------------


async def list_configs(request: Request) -> Answer:
    cluster, (name, config) = cluster_of(request), _topic(request)
    largest = request.broker.engine.options.max_record_bytes
    found = [cluster.config(name, each, config, largest) for _, each in sorted(settings.SETTINGS.items())]
    return _answer(cluster.listed("TopicConfig", f"/topics/{name}/configs", found))


async def get_config(request: Request) -> Answer:
    cluster, (name, config), setting = cluster_of(request), _topic(request), _setting(request)
    return _answer(cluster.config(name, setting, config, request.broker.engine.options.max_record_bytes))


async def put_config(request: Request) -> Answer:
    cluster_of(request)
    name, _ = _topic(request)
    setting = _setting(request)
    value = (await strict_json.decode(await request.read_body(), _value)).value
    await _change(request, name, [(setting.name, settings.Operation.SET, value)])
    return _done()


async def reset_config(request: Request) -> Answer:
    cluster_of(request)
    name, _ = _topic(request)
    await _change(request, name, [(_setting(request).name, settings.Operation.DELETE, None)])
    return _done()


async def alter_configs(request: Request) -> Answer:
    cluster_of(request)
    name, config = _topic(request)
    wanted = await strict_json.decode(await request.read_body(), _changes)
    operations = v3.operations(wanted.data)
    if wanted.validate_only:
        _applied(lambda: settings.altered(operations, config))
    else:
        await _change(request, name, operations)
    return _done()


async def _change(request: Request, name: str, operations: list[tuple[str, int, str | None]]) -> None:
    await change(request.broker.engine, name, lambda config: _applied(lambda: settings.altered(operations, config)))


def _applied(make: Any) -> TopicConfig:
    """Raises BadRequest."""
    try:
        return make()
    except InvalidConfig as error:
        raise BadRequest(str(error)) from None


def _setting(request: Request) -> Setting:
    found = settings.SETTINGS.get(request.values[2])
    if found is None:
        raise BadRequest(f"Unknown topic config name: {request.values[2]}")
    return found


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


# -- groups ------------------------------------------------------------------------------------------------------------


async def list_groups(request: Request) -> Answer:
    cluster, broker = cluster_of(request), request.broker
    is_shown = usable_groups(broker, request.access)
    found: list[dict[str, Any]] = []
    for name in await lags.groups(broker, request.access.prefixes):
        view = group_view(broker, name) if is_shown(name) else None
        if view is not None:
            found.append(cluster.group(name, view))
    return _answer(cluster.listed("ConsumerGroup", "/consumer-groups", found))


async def get_group(request: Request) -> Answer:
    cluster, (group, view) = cluster_of(request), _group(request)
    return _answer(cluster.group(group, view))


async def list_members(request: Request) -> Answer:
    cluster, (group, view) = cluster_of(request), _group(request)
    found = [cluster.member(group, each) for each in sorted(view.members)]
    return _answer(cluster.listed("Consumer", f"/consumer-groups/{group}/consumers", found))


async def get_member(request: Request) -> Answer:
    cluster, (group, member) = cluster_of(request), _member(request)
    return _answer(cluster.member(group, member))


async def list_assignments(request: Request) -> Answer:
    cluster, (group, member) = cluster_of(request), _member(request)
    found = [cluster.assignment(group, member, topic, number) for topic, number in member.assignments]
    path = f"/consumer-groups/{group}/consumers/{member.id}/assignments"
    return _answer(cluster.listed("ConsumerAssignment", path, found))


async def get_assignment(request: Request) -> Answer:
    cluster, (group, member) = cluster_of(request), _member(request)
    for topic, number in member.assignments:
        if [topic, str(number)] == request.values[3:5]:
            return _answer(cluster.assignment(group, member, topic, number))
    raise TopicPartitionMissing


async def list_lags(request: Request) -> Answer:
    cluster, found = cluster_of(request), await _lags(request)
    group = request.values[1]
    shown = [cluster.lag(group, each) for each in found]
    return _answer(cluster.listed("ConsumerLag", f"/consumer-groups/{group}/lags", shown))


async def get_lag(request: Request) -> Answer:
    cluster, found = cluster_of(request), await _lags(request)
    _, group, topic, number = request.values
    for each in found:
        if each.topic == topic and str(each.partition) == number:
            return _answer(cluster.lag(group, each))
    raise TopicPartitionMissing


async def get_lag_summary(request: Request) -> Answer:
    cluster, found = cluster_of(request), await _lags(request)
    return _answer(cluster.lag_summary(request.values[1], found))


def _group(request: Request) -> tuple[str, GroupView]:
    """The group of the path. Raises GroupMissing for a missing group, and for one that the key may not use."""
    group = request.values[1]
    view = group_view(request.broker, group) if may_use_group(request.broker, request.access, group) else None
    if view is None:
        raise GroupMissing
    return group, view


def _member(request: Request) -> tuple[str, MemberView]:
    """The group member of the path. Raises GroupMissing, ConsumerMissing."""
    group, view = _group(request)
    found = view.member(request.values[2])
    if found is None:
        raise ConsumerMissing
    return group, found


async def _lags(request: Request) -> list[Lag]:
    """The lags of the group in the path. Raises GroupMissing if nothing is committed."""
    group, _ = _group(request)
    found = await lags.lags(request.broker, group, request.access.prefixes)
    if not found:
        raise GroupMissing
    return found
