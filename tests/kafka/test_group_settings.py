"""Settings of groups: described, set and kept, or refused with a message."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.kafka.apis import ApiKey
from broker.kafka.errors import ErrorCode
from broker.kafka.messages import configs as c
from tests.kafka.groups.test_calls import known
from tests.kafka.server import KafkaServer, Wire
from tests.kafka.test_share_wire import Member, add, put

GROUP = 32
SAME = {
    "share.auto.offset.reset": "earliest",
    "share.heartbeat.interval.ms": "5000",
    "share.isolation.level": "read_uncommitted",
    "share.record.lock.duration.ms": "30000",
    "share.session.timeout.ms": "45000",
}


async def described(wire: Wire, name: str, *wanted: str) -> tuple[int, dict[str, str | None]]:
    resource = c.DescribeConfigsResource(
        resource_type=GROUP, resource_name=name, configuration_keys=list(wanted) or None
    )
    request = c.DescribeConfigsRequest(resources=[resource], include_documentation=True, include_synonyms=True)
    [told] = (await wire.ask(ApiKey.DESCRIBE_CONFIGS, 4, request, c.DescribeConfigsResponse)).results
    assert (told.resource_type, told.resource_name) == (GROUP, name)
    assert all(each.documentation for each in told.configs)
    return told.error_code, {each.name: each.value for each in told.configs}


async def altered(wire: Wire, name: str, setting: str, value: str | None, operation: int = 0) -> tuple[int, str | None]:
    change = c.IncrementalAlterConfigsAlterableConfig(name=setting, config_operation=operation, value=value)
    resource = c.IncrementalAlterConfigsAlterConfigsResource(resource_type=GROUP, resource_name=name, configs=[change])
    request = c.IncrementalAlterConfigsRequest(resources=[resource])
    [told] = (await wire.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request, c.IncrementalAlterConfigsResponse)).responses
    return told.error_code, told.error_message


async def test_settings_of_a_group_are_described(server: KafkaServer) -> None:
    wire = await server.connect()
    assert await described(wire, "g") == (0, SAME)
    assert await described(wire, "g", "share.auto.offset.reset", "colour") == (
        0,
        {"share.auto.offset.reset": "earliest"},
    )
    assert await described(wire, "") == (ErrorCode.INVALID_REQUEST, {})


SETTINGS = {
    "share.auto.offset.reset": "latest",
    "share.heartbeat.interval.ms": "1000",
    "share.isolation.level": "read_committed",
    "share.record.lock.duration.ms": "1500",
    "share.session.timeout.ms": "10000",
}


@pytest.mark.parametrize(("name", "value"), [*SETTINGS.items(), ("share.auto.offset.reset", "by_duration:P1DT2H3.5S")])
async def test_group_settings_survive_a_restart(tmp_path: Path, name: str, value: str) -> None:
    async with KafkaServer(tmp_path) as server:
        wire = await server.connect()
        assert await altered(wire, "g", name, value) == (0, None)
        assert await described(wire, "g") == (0, SAME | {name: value.lower()})
        assert await described(wire, "other") == (0, SAME)
    async with KafkaServer(tmp_path) as server:
        wire = await server.connect()
        assert await described(wire, "g", name) == (0, {name: value.lower()})
        assert await altered(wire, "g", name, None, operation=1) == (0, None)
        assert await described(wire, "g") == (0, SAME)
        assert server.broker.kafka_shares.configs.groups() == []


async def test_alter_configs_replaces_all_settings_and_validate_only_changes_no_setting(server: KafkaServer) -> None:
    wire = await server.connect()
    assert await altered(wire, "g", "share.auto.offset.reset", "latest") == (0, None)
    for dry, wanted in (
        (True, {"share.auto.offset.reset": "latest"}),
        (False, {"share.isolation.level": "read_committed"}),
    ):
        legacy = c.AlterConfigsRequest(
            resources=[
                c.AlterConfigsResource(
                    resource_type=GROUP,
                    resource_name="g",
                    configs=[c.AlterConfigsAlterableConfig(name="share.isolation.level", value="read_committed")],
                )
            ],
            validate_only=dry,
        )
        [told] = (await wire.ask(ApiKey.ALTER_CONFIGS, 1, legacy, c.AlterConfigsResponse)).responses
        assert told.error_code == 0
        assert (await described(wire, "g"))[1] == SAME | wanted


async def test_groups_with_settings_are_listed(server: KafkaServer) -> None:
    wire = await server.connect()
    assert await altered(wire, "g", "share.auto.offset.reset", "latest") == (0, None)
    request = c.ListConfigResourcesRequest(resource_types=[GROUP])
    told = await wire.ask(ApiKey.LIST_CONFIG_RESOURCES, 1, request, c.ListConfigResourcesResponse)
    assert [(each.resource_type, each.resource_name) for each in told.config_resources] == [(GROUP, "g")]


@pytest.mark.parametrize(
    ("name", "value", "operation"),
    [
        ("share.auto.offset.reset", "newest", 0),
        ("share.auto.offset.reset", "by_duration:PT", 0),
        ("share.auto.offset.reset", "by_duration:-PT1S", 0),
        ("share.auto.offset.reset", "earliest", 2),
        ("share.heartbeat.interval.ms", "45000", 0),
        ("share.heartbeat.interval.ms", "0", 0),
        ("share.isolation.level", "serializable", 0),
        ("share.record.lock.duration.ms", "99", 0),
        ("share.record.lock.duration.ms", "soon", 0),
        ("share.session.timeout.ms", "5000", 0),
        ("share.session.timeout.ms", None, 0),
        ("share.delivery.count.limit", "3", 0),
        ("consumer.session.timeout.ms", "50000", 0),
        ("colour", "red", 0),
        ("colour", None, 1),
    ],
)
async def test_invalid_settings_are_refused_with_a_message(
    server: KafkaServer, name: str, value: str | None, operation: int
) -> None:
    wire = await server.connect()
    error, sentence = await altered(wire, "g", name, value, operation)
    assert error == ErrorCode.INVALID_CONFIG
    assert name in (sentence or "")
    assert await described(wire, "g") == (0, SAME)


async def test_settings_of_a_group_need_a_key_for_that_group(tmp_path: Path) -> None:
    async with KafkaServer(tmp_path, api_keys="all,mine:r+a:mine.,reader:r") as server:
        await server.engine.put_topic("their.a")
        await server.engine.append("their.a", b"1")
        await server.broker.kafka_offsets.commit("theirs", "their.a", 0, 1, "")
        for key, described_as, altered_as in (("all", 0, 0), ("reader", 0, 30), ("mine", 30, 30)):
            wire = await known(server, key)
            assert (await described(wire, "theirs"))[0] == described_as
            assert (await altered(wire, "theirs", "share.auto.offset.reset", "earliest"))[0] == altered_as
        assert (await altered(await known(server, "mine"), "free", "share.auto.offset.reset", "earliest"))[0] == 0


async def test_config_of_a_key_with_prefixes_applies_only_to_its_topics(tmp_path: Path) -> None:
    reset, lock = "share.auto.offset.reset", "share.record.lock.duration.ms"
    async with KafkaServer(tmp_path, api_keys="all,mine::mine.,theirs::theirs.") as server:
        for name in ("mine.q", "theirs.q"):
            await put(server, name)
            await add(server, 1, name)
        everybody, mine, theirs = [await known(server, key) for key in ("all", "mine", "theirs")]
        assert await altered(mine, "g", reset, "latest") == (0, None)
        assert await altered(mine, "g", lock, "600000") == (0, None)
        assert (
            (await described(mine, "g", reset))[1] == (await described(everybody, "g", reset))[1] == {reset: "latest"}
        )
        assert (await described(theirs, "g", reset))[1] == {reset: "earliest"}
        assert (await altered(theirs, "g", reset, "latest"))[0] == ErrorCode.GROUP_AUTHORIZATION_FAILED
        # Their group of that name begins as if nothing had been set.
        their_worker = Member(server, theirs)
        assert (await their_worker.heartbeat(0, "theirs.q")).heartbeat_interval_ms == 5000
        answer = await their_worker.fetch("theirs.q")
        assert answer.acquisition_lock_timeout_ms == 30_000
        assert answer.responses[0].partitions[0].acquired_records
        my_answer = await Member(server, mine, "n", "mine-too").fetch("mine.q")
        assert my_answer.responses[0].partitions[0].acquired_records


async def test_config_for_all_topics_cannot_be_changed_by_a_key_with_prefixes(tmp_path: Path) -> None:
    reset = "share.auto.offset.reset"
    async with KafkaServer(tmp_path, api_keys="all,mine::mine.") as server:
        everybody, mine = [await known(server, key) for key in ("all", "mine")]
        assert await altered(everybody, "g", reset, "latest") == (0, None)
        assert (await described(mine, "g", reset))[1] == {reset: "latest"}
        assert (await altered(mine, "g", reset, "earliest"))[0] == ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert await altered(mine, "h", reset, "latest") == (0, None)
        assert await altered(everybody, "h", reset, None, operation=1) == (0, None)
        assert server.broker.kafka_shares.configs.groups() == [("g", server.broker.kafka_shares.configs.config_of("g"))]
