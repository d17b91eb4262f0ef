"""Share groups as the calls about groups show them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.kafka.apis import APIS, ApiKey
from broker.kafka.errors import ErrorCode
from broker.kafka.messages import groups as m
from tests.kafka.groups.test_calls import codes, commit, committing, known, stable
from tests.kafka.server import KafkaServer, Wire
from tests.kafka.test_share_wire import Member, put

HELD = ("held", "share", "Stable")
FREE = ("free", "share", "Empty")
EMPTY = ("g", "", "Empty")
BUSY = ("busy", "consumer", "Stable")


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[KafkaServer]:
    """A broker with two consumer groups (one with a member, one with offsets only) and two share groups like these."""
    async with KafkaServer(tmp_path, kafka_rebalance_delay_ms=0) as server:
        await server.engine.put_topic("a")
        wire = await server.connect()
        for name, group in (("q", "held"), ("r", "free")):
            await put(server, name)
            assert await Member(server, wire, group=group).take(name) == []
        assert (await Member(server, wire, group="held").heartbeat(0, "q")).error_code == 0
        await stable(wire, "busy")
        assert codes(await commit(wire, committing(("a", 0, 0)))) == [("a", 0, 0)]
        yield server


async def listed(wire: Wire, version: int = 4, **filters: list[str]) -> list[tuple[str, ...]]:
    told = await wire.ask(ApiKey.LIST_GROUPS, version, m.ListGroupsRequest(**filters), m.ListGroupsResponse)
    assert told.error_code == 0
    return [(each.group_id, each.protocol_type, each.group_state) for each in told.groups]


@pytest.mark.parametrize("version", range(APIS[ApiKey.LIST_GROUPS].first, APIS[ApiKey.LIST_GROUPS].last + 1))
async def test_every_version_lists_share_groups_with_the_fields_of_that_version(
    server: KafkaServer, version: int
) -> None:
    wanted = [each if version >= 4 else (*each[:2], "") for each in (BUSY, EMPTY, FREE, HELD)]
    assert await listed(await server.connect(), version) == wanted


async def test_share_groups_are_filtered_by_state(server: KafkaServer) -> None:
    wire = await server.connect()
    assert await listed(wire, states_filter=["stable"]) == [BUSY, HELD]
    assert await listed(wire, states_filter=["Empty"]) == [EMPTY, FREE]
    assert await listed(wire, states_filter=["Dead"]) == []


async def test_share_groups_are_filtered_by_type(server: KafkaServer) -> None:
    wire = await server.connect()
    assert await listed(wire, 5, types_filter=["Share"]) == [FREE, HELD]
    assert await listed(wire, 5, types_filter=["classic", "Consumer"]) == [BUSY, EMPTY]
    assert await listed(wire, 5, types_filter=["share"], states_filter=["Empty"]) == [FREE]
    assert await listed(wire, 5, types_filter=["streams"]) == []
    told = await wire.ask(ApiKey.LIST_GROUPS, 5, m.ListGroupsRequest(), m.ListGroupsResponse)
    assert [each.group_type for each in told.groups] == ["classic", "classic", "share", "share"]


async def test_deleted_share_groups_are_not_listed(server: KafkaServer) -> None:
    wire = await server.connect()
    delete = m.DeleteGroupsRequest(groups_names=["free"])
    told = await wire.ask(ApiKey.DELETE_GROUPS, 2, delete, m.DeleteGroupsResponse)
    assert told.results[0].error_code == 0
    assert await listed(wire) == [BUSY, EMPTY, HELD]
    await server.engine.delete_topic("q")
    assert await listed(wire) == [BUSY, EMPTY, HELD]  # its member is there
    assert (await Member(server, wire, group="held").heartbeat(-1)).error_code == 0
    assert await listed(wire) == [BUSY, EMPTY]


@pytest.mark.parametrize("version", range(APIS[ApiKey.DESCRIBE_GROUPS].last + 1))
async def test_describe_groups_does_not_find_share_groups(server: KafkaServer, version: int) -> None:
    wire = await server.connect()
    request = m.DescribeGroupsRequest(groups=["held", "free", "none"])
    told = await wire.ask(ApiKey.DESCRIBE_GROUPS, version, request, m.DescribeGroupsResponse)
    assert [(each.group_id, each.group_state, each.members) for each in told.groups] == [
        ("held", "Dead", []), ("free", "Dead", []), ("none", "Dead", []),
    ]  # fmt: skip
    not_found = ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE
    assert [each.error_code for each in told.groups] == [not_found] * 3


async def test_a_key_lists_only_share_groups_of_queues_within_its_prefixes(tmp_path: Path) -> None:
    async with KafkaServer(tmp_path, api_keys="all,mine:rw:mine.,none:rw:none.") as server:
        for name in ("mine.q", "other.q"):
            await put(server, name)
        wires = {key: await known(server, key) for key in ("all", "mine", "none")}
        for name, group in (("mine.q", "m"), ("other.q", "o")):
            assert await Member(server, wires["all"], group=group).take(name) == []
        seen = {key: [each[0] for each in await listed(wire)] for key, wire in wires.items()}
        assert seen == {"all": ["m", "o"], "mine": ["m"], "none": []}
