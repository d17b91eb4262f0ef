"""Topics and their settings with several admin clients."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AioNewTopic
from aiokafka.admin.config_resource import ConfigResource as AioResource
from aiokafka.admin.config_resource import ConfigResourceType as AioType
from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource as PyResource
from kafka.admin import ConfigResourceType as PyType
from kafka.admin import NewTopic as PyNewTopic

from broker.kafka.apis import ApiKey
from broker.kafka.cluster import PAGE
from broker.kafka.messages.metadata import (
    DescribeTopicPartitionsCursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)
from broker.kafka.messages.topics import (
    CreateTopicsCreatableReplicaAssignment,
    CreateTopicsCreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from storage import CleanupPolicy, TopicConfig
from tests.kafka.server import KafkaServer

PATIENCE_S = 10


def outcomes(futures: dict[Any, Any]) -> dict[str, Any]:
    """By name: None for a success, otherwise the name of the error code."""
    found: dict[str, Any] = {}
    for name, future in futures.items():
        try:
            found[getattr(name, "name", name)] = future.result(PATIENCE_S)
        except KafkaException as error:
            found[getattr(name, "name", name)] = error.args[0].code()
    return found


async def confluent(server: KafkaServer, **settings: Any) -> AdminClient:
    return await asyncio.to_thread(AdminClient, {"bootstrap.servers": server.address, "log_level": 0, **settings})


async def ask(function: Any, *arguments: Any, **more: Any) -> dict[str, Any]:
    """A call of confluent's admin client, off the loop."""
    return await asyncio.to_thread(lambda: outcomes(function(*arguments, **more)))


async def test_confluent_creates_topics_and_gets_error_messages(server: KafkaServer) -> None:
    admin = await confluent(server)
    wanted = [
        NewTopic("one", 1, 1, config={"retention.ms": "3600000"}),
        NewTopic("three", 3, 1),
        NewTopic("kept", 1, 1, config={"cleanup.policy": "compact"}),
        NewTopic("replicas", 1, 3),
        NewTopic("no name", 1, 1),
        NewTopic("colour", 1, 1, config={"colour": "red"}),
        NewTopic("drops", 1, 1, config={"cleanup.policy": "compact", "retention.ms": "1"}),
        NewTopic("many", 100_000, 1),
    ]
    assert await ask(admin.create_topics, wanted) == {
        "one": None, "three": None, "kept": None,
        "replicas": 38, "no name": 17, "colour": 40, "drops": 40, "many": 37,
    }  # fmt: skip
    assert await ask(admin.create_topics, [NewTopic("one", 1, 1)]) == {"one": 36}
    assert await ask(admin.create_topics, [NewTopic("dry", 1, 1)], validate_only=True) == {"dry": None}
    topics = (await asyncio.to_thread(admin.list_topics, timeout=PATIENCE_S)).topics
    assert {name: len(topic.partitions) for name, topic in topics.items()} == {
        "one": 1, "three": 3, "kept": 1,
    }  # fmt: skip
    assert server.engine.state("one").config.ttl_ms == 3_600_000
    assert server.engine.state("kept").config.cleanup_policy is CleanupPolicy.COMPACT


async def test_confluent_deletes_and_grows_topics(server: KafkaServer) -> None:
    admin = await confluent(server)
    await ask(admin.create_topics, [NewTopic("grows", 1, 1), NewTopic("goes", 2, 1)])
    assert await ask(admin.create_partitions, [NewPartitions("grows", 3)], validate_only=True) == {"grows": None}
    assert server.engine.partitions("grows") == 1
    assert await ask(admin.create_partitions, [NewPartitions("grows", 3)]) == {"grows": None}
    assert await ask(admin.create_partitions, [NewPartitions("grows", 2), NewPartitions("none", 2)]) == {
        "grows": 37, "none": 3,
    }  # fmt: skip
    assert await ask(admin.delete_topics, ["goes", "none"]) == {"goes": None, "none": 3}
    topics = (await asyncio.to_thread(admin.list_topics, timeout=PATIENCE_S)).topics
    assert {name: len(topic.partitions) for name, topic in topics.items()} == {"grows": 3}


async def test_confluent_reads_and_changes_settings(server: KafkaServer) -> None:
    admin = await confluent(server)
    await ask(admin.create_topics, [NewTopic("t", 1, 1)])
    resource = ConfigResource(ConfigResource.Type.TOPIC, "t")

    async def settings() -> dict[str, tuple[str, bool]]:
        described = (await ask(admin.describe_configs, [resource]))["t"]
        return {name: (entry.value, entry.is_default) for name, entry in described.items()}

    assert (await settings())["retention.ms"] == ("-1", True)
    changes = [
        ConfigEntry("retention.ms", "5000", incremental_operation=AlterConfigOpType.SET),
        ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND),
    ]
    change = ConfigResource(ConfigResource.Type.TOPIC, "t", incremental_configs=changes)
    assert await ask(admin.incremental_alter_configs, [change]) == {"t": None}
    assert (await settings())["retention.ms"] == ("5000", False)
    assert (await settings())["cleanup.policy"] == ("compact,delete", False)
    wrong = [ConfigEntry("retention.ms", "soon", incremental_operation=AlterConfigOpType.SET)]
    change = ConfigResource(ConfigResource.Type.TOPIC, "t", incremental_configs=wrong)
    assert await ask(admin.incremental_alter_configs, [change]) == {"t": 40}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        replaced = ConfigResource(ConfigResource.Type.TOPIC, "t", set_config={"retention.bytes": "777"})
        assert await ask(admin.alter_configs, [replaced]) == {"t": None}
    assert (await settings())["retention.ms"] == ("-1", True)
    assert (await settings())["retention.bytes"] == ("777", False)
    broker = (await ask(admin.describe_configs, [ConfigResource(ConfigResource.Type.BROKER, "1")]))["1"]
    assert broker["auto.create.topics.enable"].value == "true"


async def test_confluent_describes_cluster_and_topics(server: KafkaServer) -> None:
    admin = await confluent(server)
    await ask(admin.create_topics, [NewTopic("t", 2, 1)])
    future = await asyncio.to_thread(admin.describe_cluster, include_authorized_operations=True)
    cluster = await asyncio.to_thread(future.result, PATIENCE_S)
    assert cluster.cluster_id == server.engine.cluster_id
    assert [(node.id, node.port) for node in cluster.nodes] == [(1, server.port.number)]
    described = await ask(admin.describe_topics, TopicCollection(["t", "none"]))
    assert described["none"] == 3
    assert [partition.id for partition in described["t"].partitions] == [0, 1]


async def test_authorized_operations_are_reported_as_in_kafka(server: KafkaServer) -> None:
    admin = await confluent(server)
    await ask(admin.create_topics, [NewTopic("t", 1, 1)])
    await server.broker.kafka_groups.admit_commit("g", "", -1, None)
    future = await asyncio.to_thread(admin.describe_cluster, include_authorized_operations=True)
    cluster = await asyncio.to_thread(future.result, PATIENCE_S)
    topics = await asyncio.to_thread(admin.describe_topics, TopicCollection(["t"]), include_authorized_operations=True)
    topic = await asyncio.to_thread(topics["t"].result, PATIENCE_S)
    groups = await asyncio.to_thread(admin.describe_consumer_groups, ["g"], include_authorized_operations=True)
    group = await asyncio.to_thread(groups["g"].result, PATIENCE_S)

    def named(described: Any) -> set[str]:
        return {each.name for each in described.authorized_operations}

    common = {"ALTER_CONFIGS", "DESCRIBE", "DESCRIBE_CONFIGS"}
    assert named(cluster) == common | {"ALTER", "CLUSTER_ACTION", "CREATE", "IDEMPOTENT_WRITE"}
    assert named(topic) == common | {"ALTER", "CREATE", "DELETE", "READ", "WRITE"}
    assert named(group) == common | {"DELETE", "READ"}


async def test_metadata_creates_a_topic_only_if_allowed(tmp_path: Path) -> None:
    async with KafkaServer(tmp_path, kafka_auto_partitions=2) as server:
        admin = await confluent(server, **{"allow.auto.create.topics": True})
        made = await asyncio.to_thread(admin.list_topics, "named", timeout=PATIENCE_S)
        assert len(made.topics["named"].partitions) == 2
        assert server.engine.partitions("named") == 2


@asynccontextmanager
async def aiokafka(server: KafkaServer) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=server.address)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def test_aiokafka_administers(server: KafkaServer) -> None:
    async with aiokafka(server) as admin:
        made = await admin.create_topics([AioNewTopic("a", 2, 1)])
        assert [error[1] for error in made.topic_errors] == [0]
        assert await admin.list_topics() == ["a"]
        await admin.alter_configs([AioResource(AioType.TOPIC, "a", configs={"retention.ms": "77"})])
        assert server.engine.state("a").config.ttl_ms == 77
        described = await admin.describe_configs([AioResource(AioType.TOPIC, "a")])
        assert "retention.ms" in str(described[0])
        assert len((await admin.describe_topics(["a"]))[0]["partitions"]) == 2
        assert (await admin.describe_cluster())["controller_id"] == 1
        await admin.delete_topics(["a"])
        assert await admin.list_topics() == []


async def test_kafka_python_administers(server: KafkaServer) -> None:
    def administer() -> None:
        admin = KafkaAdminClient(bootstrap_servers=server.address)
        try:
            assert [each["error_code"] for each in admin.create_topics([PyNewTopic("k", 2, 1)])["topics"]] == [0]
            assert admin.list_topics() == ["k"]
            assert admin.describe_cluster()["cluster_id"] == server.engine.cluster_id
            assert len(admin.describe_topics(["k"])[0]["partitions"]) == 2
            configs = admin.describe_configs([PyResource(PyType.TOPIC, "k")], config_filter="all")
            assert configs["topic"]["k"]["retention.ms"]["value"] == "-1"
            assert admin.describe_log_dirs()[0]["log_dirs"][0]["topics"][0]["name"] == "k"
            assert [each["error_code"] for each in admin.delete_topics(["k"])["topics"]] == [0]
        finally:
            admin.close()

    await asyncio.to_thread(administer)


async def test_kcat_lists(server: KafkaServer, kcat: str) -> None:
    await server.engine.put_topic("orders")
    listing = await asyncio.create_subprocess_exec(
        kcat, "-L", "-b", server.address, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    out, _ = await asyncio.wait_for(listing.communicate(), PATIENCE_S)
    assert b'topic "orders" with 1 partitions' in out


@pytest.mark.parametrize(
    ("assigned", "code"), [([(0, [1]), (1, [1])], 0), ([(0, [2])], 39), ([(0, [1, 1])], 39), ([(1, [1])], 39)]
)
async def test_partitions_can_be_assigned_only_to_the_broker(
    server: KafkaServer, assigned: list[tuple[int, list[int]]], code: int
) -> None:
    wire = await server.connect()
    wanted = CreateTopicsCreatableTopic(
        name="t",
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            CreateTopicsCreatableReplicaAssignment(partition_index=number, broker_ids=brokers)
            for number, brokers in assigned
        ],
    )
    answer = await wire.ask(ApiKey.CREATE_TOPICS, 5, CreateTopicsRequest(topics=[wanted]), CreateTopicsResponse)
    assert answer.topics[0].error_code == code
    if not code:
        assert answer.topics[0].num_partitions == server.engine.partitions("t") == len(assigned)


async def test_a_topic_named_twice_is_not_made(server: KafkaServer) -> None:
    wire = await server.connect()
    wanted = CreateTopicsCreatableTopic(name="t", num_partitions=1, replication_factor=1)
    request = CreateTopicsRequest(topics=[wanted, wanted])
    answer = await wire.ask(ApiKey.CREATE_TOPICS, 3, request, CreateTopicsResponse)
    assert [topic.error_code for topic in answer.topics] == [42, 42]
    assert server.engine.topics() == []


async def test_a_limited_number_of_partitions_is_described_at_a_time(server: KafkaServer) -> None:
    for name, partitions in (("a", 3), ("b", 1), ("c", 2)):
        await server.engine.put_topic(name, TopicConfig(partitions=partitions))
    wire = await server.connect()
    found: list[tuple[str | None, list[int]]] = []
    cursor: DescribeTopicPartitionsCursor | None = None
    for _ in range(10):
        answer = await wire.ask(
            ApiKey.DESCRIBE_TOPIC_PARTITIONS,
            0,
            DescribeTopicPartitionsRequest(response_partition_limit=2, cursor=cursor),
            DescribeTopicPartitionsResponse,
        )
        found += [(topic.name, [each.partition_index for each in topic.partitions]) for topic in answer.topics]
        if answer.next_cursor is None:
            break
        position = answer.next_cursor
        cursor = DescribeTopicPartitionsCursor(topic_name=position.topic_name, partition_index=position.partition_index)
    assert found == [("a", [0, 1]), ("a", [2]), ("b", [0]), ("c", [0, 1])]


async def test_advertised_address_is_the_configured_one(tmp_path: Path) -> None:
    async with KafkaServer(tmp_path, kafka_advertised="broker.example:9093") as server:
        wire = await server.connect()
        answer = await wire.ask(ApiKey.METADATA, 9, MetadataRequest(topics=None), MetadataResponse)
        assert [(broker.host, broker.port) for broker in answer.brokers] == [("broker.example", 9093)]
        request = FindCoordinatorRequest(key="group", key_type=0)
        found = await wire.ask(ApiKey.FIND_COORDINATOR, 3, request, FindCoordinatorResponse)
        assert (found.host, found.port, found.node_id) == ("broker.example", 9093, 1)


async def test_a_long_list_of_topics_is_whole(server: KafkaServer) -> None:
    names = [f"t{number:04}" for number in range(2 * PAGE + 1)]
    await asyncio.gather(*(server.engine.put_topic(name) for name in names))
    wire = await server.connect()
    listed = await wire.ask(ApiKey.METADATA, 9, MetadataRequest(topics=None), MetadataResponse)
    assert [topic.name for topic in listed.topics] == names
    sizes = await wire.ask(ApiKey.DESCRIBE_LOG_DIRS, 4, DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
    assert [topic.name for topic in sizes.results[0].topics] == names
