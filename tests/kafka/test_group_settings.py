"""Settings of groups: described, taken where they say what is so, refused with a sentence otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.kafka.apis import ApiKey
from broker.kafka.errors import ErrorCode
from broker.kafka.messages import configs as c
from tests.kafka.groups.test_calls import known
from tests.kafka.server import KafkaServer, Wire

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


@pytest.mark.parametrize(("name", "value"), [*SAME.items(), ("share.isolation.level", "read_committed")])
async def test_what_is_so_already_is_taken(server: KafkaServer, name: str, value: str) -> None:
    wire = await server.connect()
    assert await altered(wire, "g", name, value) == (0, None)
    assert await altered(wire, "g", name, None, operation=1) == (0, None)
    legacy = c.AlterConfigsRequest(
        resources=[
            c.AlterConfigsResource(
                resource_type=GROUP,
                resource_name="g",
                configs=[c.AlterConfigsAlterableConfig(name=name, value=value)],
            )
        ]
    )
    [told] = (await wire.ask(ApiKey.ALTER_CONFIGS, 1, legacy, c.AlterConfigsResponse)).responses
    assert told.error_code == 0


@pytest.mark.parametrize(
    ("name", "value", "operation"),
    [
        ("share.auto.offset.reset", "latest", 0),
        ("share.record.lock.duration.ms", "1000", 0),
        ("share.session.timeout.ms", None, 0),
        ("share.auto.offset.reset", "earliest", 2),
        ("colour", "red", 0),
        ("colour", None, 1),
    ],
)
async def test_a_change_is_refused_with_a_sentence(
    server: KafkaServer, name: str, value: str | None, operation: int
) -> None:
    error, sentence = await altered(await server.connect(), "g", name, value, operation)
    assert error == ErrorCode.INVALID_CONFIG
    assert name in (sentence or "")


async def test_settings_of_a_group_are_for_keys_that_it_is_for(tmp_path: Path) -> None:
    async with KafkaServer(tmp_path, api_keys="all,mine:r+a:mine.,reader:r") as server:
        await server.engine.put_topic("their.a")
        await server.engine.append("their.a", b"1")
        await server.broker.kafka_offsets.commit("theirs", "their.a", 0, 1, "")
        for key, described_as, altered_as in (("all", 0, 0), ("reader", 0, 30), ("mine", 30, 30)):
            wire = await known(server, key)
            assert (await described(wire, "theirs"))[0] == described_as
            assert (await altered(wire, "theirs", "share.auto.offset.reset", "earliest"))[0] == altered_as
        assert (await altered(await known(server, "mine"), "free", "share.auto.offset.reset", "earliest"))[0] == 0
