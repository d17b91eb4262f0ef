"""Groups of a set of cells: the home cell of the name coordinates, and the offsets are in the cells of the topics."""

from __future__ import annotations

from pathlib import Path

from broker.kafka.apis import ApiKey
from broker.kafka.errors import ErrorCode
from broker.kafka.groups.cell_offsets import COMMIT
from broker.kafka.groups.record import KIND, GroupRecord
from broker.kafka.messages.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from broker.kafka.messages.metadata import FindCoordinatorRequest, FindCoordinatorResponse
from broker.kafka.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from broker.kafka.names import consumer_name
from tests.kafka.cells.several import CELLS, Several, log_in, name_of, several
from tests.kafka.cells.topics import NAMES, create

HOME = 1
GROUP = name_of(HOME, "group")


async def commit(cells: Several, offset: int, names: list[str] = NAMES, group: str = GROUP) -> list[int]:
    topics = [
        OffsetCommitRequestTopic(
            name=name, partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)]
        )
        for name in names
    ]
    request = OffsetCommitRequest(group_id=group, topics=topics)
    answer = await cells.ask(HOME, ApiKey.OFFSET_COMMIT, 8, request, OffsetCommitResponse)
    return [topic.partitions[0].error_code for topic in answer.topics]


async def committed(cells: Several, *, named: bool = True, group: str = GROUP) -> dict[str, int] | int:
    """The offsets of partition 0 of all topics, or the error of the whole group."""
    topics = [OffsetFetchRequestTopics(name=name, partition_indexes=[0]) for name in NAMES] if named else None
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)])
    answer = (await cells.ask(HOME, ApiKey.OFFSET_FETCH, 8, request, OffsetFetchResponse)).groups[0]
    return answer.error_code or {topic.name: topic.partitions[0].committed_offset for topic in answer.topics}


async def listed(cells: Several, at: int) -> list[str]:
    answer = await cells.ask(at, ApiKey.LIST_GROUPS, 4, ListGroupsRequest(), ListGroupsResponse)
    return [each.group_id for each in answer.groups]


def holders(cells: Several, group: str = GROUP) -> list[bool]:
    """Which cells have offsets of the group."""
    return [cells.servers[cell].broker.kafka_offsets.all(group) != [] for cell in range(CELLS)]


async def test_every_node_names_the_coordinator_and_the_others_refuse_members(cells: Several) -> None:
    for at in range(CELLS):
        request = FindCoordinatorRequest(coordinator_keys=[GROUP])
        found = await cells.ask(at, ApiKey.FIND_COORDINATOR, 4, request, FindCoordinatorResponse)
        assert (found.coordinators[0].node_id, found.coordinators[0].port) == (HOME + 1, cells.ports[HOME])
        join = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        joined = await cells.ask(at, ApiKey.JOIN_GROUP, 5, join, JoinGroupResponse)
        expected = ErrorCode.MEMBER_ID_REQUIRED if at == HOME else ErrorCode.NOT_COORDINATOR
        assert joined.error_code == expected


async def test_offsets_are_committed_in_the_cells_of_the_topics(cells: Several) -> None:
    await create(cells, NAMES)
    assert await commit(cells, 7) == [0] * CELLS
    assert holders(cells) == [True] * CELLS
    expected = dict.fromkeys(NAMES, 7)
    assert await committed(cells) == await committed(cells, named=False) == expected
    for cell in range(CELLS):  # neither the coordinator nor the other cells forget them
        await cells.stop(cell)
        await cells.start(cell)
        assert await committed(cells) == await committed(cells, named=False) == expected
    assert [await listed(cells, at) for at in range(CELLS)] == [[], [GROUP], []]
    asked = OffsetDeleteRequest(
        group_id=GROUP,
        topics=[OffsetDeleteRequestTopic(name=NAMES[0], partitions=[OffsetDeleteRequestPartition(partition_index=0)])],
    )
    deleted = await cells.ask(HOME, ApiKey.OFFSET_DELETE, 0, asked, OffsetDeleteResponse)
    assert deleted.topics[0].partitions[0].error_code == 0
    assert await committed(cells) == {**expected, NAMES[0]: -1}
    assert await commit(cells, 3, [name_of(0, "nothing"), NAMES[2]]) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]


async def test_a_commit_of_an_earlier_generation_is_refused_by_the_cell_of_the_partition(cells: Several) -> None:
    await create(cells, NAMES)
    coordinator = cells.servers[HOME].broker.cells
    assert coordinator is not None

    async def late(generation: int, offset: int) -> int:
        return await coordinator.peers.call(0, COMMIT, [GROUP, generation, NAMES[0], 0, offset, "", -1])

    assert [await late(5, 50), await late(6, 60), await late(5, 51), await late(6, 61)] == [
        0, 0, ErrorCode.ILLEGAL_GENERATION, 0
    ]  # fmt: skip
    assert await committed(cells) == {NAMES[0]: 61, NAMES[1]: -1, NAMES[2]: -1}


async def test_a_group_is_deleted_in_all_cells_or_stays(cells: Several) -> None:
    await create(cells, NAMES)
    await commit(cells, 7)
    request = DeleteGroupsRequest(groups_names=[GROUP])
    await cells.stop(0)
    assert await committed(cells) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # nothing is committed
    assert await commit(cells, 8) == [ErrorCode.COORDINATOR_NOT_AVAILABLE, 0, 0]
    refused = await cells.ask(HOME, ApiKey.DELETE_GROUPS, 2, request, DeleteGroupsResponse)
    assert refused.results[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    await cells.start(0)
    assert await committed(cells) != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    deleted = await cells.ask(HOME, ApiKey.DELETE_GROUPS, 2, request, DeleteGroupsResponse)
    assert deleted.results[0].error_code == 0
    assert holders(cells) == [False] * CELLS
    assert await listed(cells, HOME) == []
    assert await commit(cells, 1) == [0] * CELLS  # in the first generation again


async def test_a_group_that_has_only_a_cursor_in_another_cell_is_known_at_its_home(cells: Several) -> None:
    await create(cells, NAMES)
    name = consumer_name(GROUP)
    assert name is not None
    await cells.servers[0].engine.consumers.commit_offset(NAMES[0], name, 4, None)
    assert [await listed(cells, at) for at in range(CELLS)] == [[], [GROUP], []]
    request = DescribeGroupsRequest(groups=[GROUP])
    answer = await cells.ask(HOME, ApiKey.DESCRIBE_GROUPS, 5, request, DescribeGroupsResponse)
    assert (answer.groups[0].error_code, answer.groups[0].group_state) == (0, "Empty")
    assert await committed(cells) == {NAMES[0]: 4, NAMES[1]: -1, NAMES[2]: -1}


async def test_only_the_coordinator_deletes_a_group(tmp_path: Path) -> None:
    async with several(tmp_path, kafka_group_retention_s=1) as cells:
        await create(cells, NAMES)
        await commit(cells, 7)
        # A directory that became cell 0 has groups with other homes. It hands them over, whatever their age.
        other = name_of(2, "theirs")
        states = [cells.servers[cell].engine.states for cell in range(CELLS)]
        await states[0].put(KIND, other, GroupRecord(generation=9, empty_ms=1).encode())
        long_ago = GroupRecord(generation=3, empty_ms=1).encode()
        await states[HOME].put(KIND, GROUP, long_ago)
        cells.servers[HOME].broker.kafka_groups._used_ms.clear()  # pyright: ignore[reportPrivateUsage]
        await cells.servers[0].broker.kafka_groups.sweep()
        assert states[0].get(KIND, other) is None
        assert GroupRecord.decode(states[2].get(KIND, other) or b"").generation == 9
        await cells.servers[2].broker.kafka_groups.sweep()
        assert holders(cells) == [True] * CELLS
        await cells.servers[HOME].broker.kafka_groups.sweep()
        assert holders(cells) == [False] * CELLS
        assert states[HOME].get(KIND, GROUP) is None


async def test_a_key_needs_the_topics_of_the_group_in_all_cells(tmp_path: Path) -> None:
    async with several(tmp_path, api_keys="all,orders:read+write+admin+delete:orders") as cells:
        await log_in(cells, HOME, "all")
        theirs = name_of(0, "audit")
        await create(cells, [*NAMES, theirs], at=HOME)
        await commit(cells, 7, group=name_of(HOME, "mine"))
        await commit(cells, 7, [theirs])
        await cells.forget(HOME)
        await log_in(cells, HOME, "orders")
        assert await commit(cells, 8, group=name_of(HOME, "mine")) == [0] * CELLS
        assert await commit(cells, 8) == [ErrorCode.GROUP_AUTHORIZATION_FAILED] * CELLS
        assert await committed(cells) == ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert await listed(cells, HOME) == [name_of(HOME, "mine")]
        request = DeleteGroupsRequest(groups_names=[GROUP])
        refused = await cells.ask(HOME, ApiKey.DELETE_GROUPS, 2, request, DeleteGroupsResponse)
        assert refused.results[0].error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
