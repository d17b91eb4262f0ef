"""What clients get while a cell is away or hangs: nothing of it concerns the topics and groups of the others."""

from __future__ import annotations

import asyncio
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from broker.kafka.apis import ApiKey
from broker.kafka.codec.schema import decode, encode
from broker.kafka.errors import ErrorCode
from broker.kafka.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from broker.kafka.messages.metadata import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsTopicRequest,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from broker.kafka.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from broker.kafka.messages.topics import CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopic
from storage import NotReady
from tests.kafka.asking import a_batch, produce_body
from tests.kafka.cells.several import CELLS, Several, log_in, name_of, several
from tests.kafka.cells.topics import NAMES, create

HOME = 1
GROUP = name_of(HOME, "group")


async def join(cells: Several, session_ms: int = 6000) -> tuple[str, int]:
    wanted = b"\0\0" + len([NAMES[HOME]]).to_bytes(4, "big") + len(NAMES[HOME]).to_bytes(2, "big")
    wanted += NAMES[HOME].encode() + b"\xff\xff\xff\xff"
    request = JoinGroupRequest(
        group_id=GROUP, session_timeout_ms=session_ms, rebalance_timeout_ms=session_ms, protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=wanted)],
    )  # fmt: skip
    joined = await cells.ask(HOME, ApiKey.JOIN_GROUP, 3, request, JoinGroupResponse)
    assert joined.error_code == 0
    sync = SyncGroupRequest(
        group_id=GROUP, generation_id=joined.generation_id, member_id=joined.member_id,
        assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"")],
    )  # fmt: skip
    assert (await cells.ask(HOME, ApiKey.SYNC_GROUP, 3, sync, SyncGroupResponse)).error_code == 0
    return joined.member_id, joined.generation_id


async def heartbeat(cells: Several, member: str, generation: int) -> int:
    beat = HeartbeatRequest(group_id=GROUP, generation_id=generation, member_id=member)
    return (await cells.ask(HOME, ApiKey.HEARTBEAT, 3, beat, HeartbeatResponse)).error_code


async def metadata(cells: Several, at: int, name: str) -> Any:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    return (await cells.ask(at, ApiKey.METADATA, 12, request, MetadataResponse)).topics[0]


async def test_a_member_whose_key_has_prefixes_stays_while_another_cell_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group has topics of its own cell only."""
    monkeypatch.setattr("broker.kafka.spread.topics_elsewhere.FRESH_S", 0.1)
    async with several(tmp_path, api_keys="all,orders:read+write+admin+delete:orders") as cells:
        await log_in(cells, HOME, "orders")
        await create(cells, [NAMES[HOME]], at=HOME, partitions=1)
        member, generation = await join(cells)
        await cells.stop(0)
        codes = []
        for _ in range(4):
            codes.append(await heartbeat(cells, member, generation))
            await asyncio.sleep(0.11)
        await cells.start(0)
        codes.append(await heartbeat(cells, member, generation))
        assert codes == [0] * 5


async def test_a_cell_that_hangs_does_not_end_the_session_of_a_member(cells: Several) -> None:
    """A commit for a cell that answers nothing delays the heartbeats behind it."""
    await create(cells, NAMES, partitions=1)
    member, generation = await join(cells)

    async def hangs(_: object) -> None:
        await asyncio.sleep(3600)

    handlers = cells.servers[0].broker.cells.handlers  # pyright: ignore
    for method in ("kafka_commit", "kafka_offsets"):
        handlers[method] = hangs
    wire = await cells.wire(HOME)
    commit = OffsetCommitRequest(
        group_id=GROUP, generation_id_or_member_epoch=generation, member_id=member,
        topics=[OffsetCommitRequestTopic(
            name=name, partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
        ) for name in NAMES],
    )  # fmt: skip
    wire.send(ApiKey.OFFSET_COMMIT, 8, encode(commit, 8))
    beat = HeartbeatRequest(group_id=GROUP, generation_id=generation, member_id=member)
    for _ in range(2):  # the client sends one every 3 s
        wire.send(ApiKey.HEARTBEAT, 3, encode(beat, 3))
    bodies = []
    for _ in range(3):
        size = int.from_bytes(await asyncio.wait_for(wire.reader.readexactly(4), 60), "big")
        bodies.append((await wire.reader.readexactly(size))[4:])
    done = decode(OffsetCommitResponse, 8, bodies[0], 1)
    codes = [topic.partitions[0].error_code for topic in done.topics]
    assert codes == [ErrorCode.COORDINATOR_NOT_AVAILABLE, 0, 0]
    beats = [ErrorCode(decode(HeartbeatResponse, 3, body, 0).error_code).name for body in bodies[1:]]
    assert beats == ["NONE", "NONE"]


async def test_named_topics_are_described_while_another_cell_is_away(cells: Several) -> None:
    await create(cells, NAMES)
    assert (await metadata(cells, 0, NAMES[2])).error_code == 0
    await cells.stop(2)

    async def described(names: list[str]) -> list[tuple[str | None, int, int]]:
        request = DescribeTopicPartitionsRequest(
            topics=[DescribeTopicPartitionsTopicRequest(name=name) for name in names], response_partition_limit=100
        )
        answer = await cells.ask(0, ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, request, DescribeTopicPartitionsResponse)
        return [(each.name, each.error_code, len(each.partitions)) for each in answer.topics]

    assert await described([NAMES[0]]) == [(NAMES[0], 0, 2)]
    assert await described(NAMES) == [(name, 0, 2) for name in sorted(NAMES)]
    unknown = name_of(2, "other")
    assert await described([unknown, NAMES[0]]) == [(NAMES[0], 0, 2), (unknown, ErrorCode.LEADER_NOT_AVAILABLE, 0)]


async def test_what_a_cell_remembers_is_not_older_than_what_another_one_does(cells: Several) -> None:
    name = NAMES[2]
    await create(cells, [name], partitions=2)
    assert len((await metadata(cells, 0, name)).partitions) == 2
    grow = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=name, count=4)])
    grown = await cells.ask(1, ApiKey.CREATE_PARTITIONS, 3, grow, CreatePartitionsResponse)
    assert grown.results[0].error_code == 0
    assert len((await metadata(cells, 1, name)).partitions) == 4
    await cells.stop(2)
    assert len((await metadata(cells, 1, name)).partitions) == 4
    assert len((await metadata(cells, 0, name)).partitions) == 4


async def test_lists_that_wait_for_a_cell_delay_nobody_else(cells: Several) -> None:
    await create(cells, NAMES)
    await cells.stop(2)
    for _ in range(6):
        wire = await cells.servers[0].connect()
        wire.send(ApiKey.METADATA, 4, b"\xff\xff\xff\xff\0")
    await asyncio.sleep(0.1)
    begun = monotonic()
    request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
    answer = await cells.ask(0, ApiKey.METADATA, 12, request, MetadataResponse)
    assert len(answer.brokers) == CELLS
    took = monotonic() - begun
    assert took < 2


async def test_offsets_of_a_partition_that_its_cell_does_not_count_yet_are_only_unknown(cells: Several) -> None:
    """The cell of the topic has decided, and the cell of the partition was killed before it was told."""
    name = name_of(0, "spread")
    handler = cells.servers[2].broker.cells.handlers["spread_tell"]  # pyright: ignore

    async def is_away(_: object) -> None:
        raise NotReady

    cells.servers[2].broker.cells.handlers["spread_tell"] = is_away  # pyright: ignore
    assert await create(cells, [name], partitions=3) == [0]
    assert [each.leader_id for each in (await metadata(cells, HOME, name)).partitions] == [1, 2, 3]
    topics = [OffsetFetchRequestTopics(name=name, partition_indexes=[0, 1, 2])]
    ask = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=topics)])
    found = (await cells.ask(HOME, ApiKey.OFFSET_FETCH, 8, ask, OffsetFetchResponse)).groups[0]
    parts = [OffsetCommitRequestPartition(partition_index=each, committed_offset=0) for each in range(3)]
    commit = OffsetCommitRequest(group_id=GROUP, topics=[OffsetCommitRequestTopic(name=name, partitions=parts)])
    done = await cells.ask(HOME, ApiKey.OFFSET_COMMIT, 8, commit, OffsetCommitResponse)
    codes = [ErrorCode(each.error_code).name for each in done.topics[0].partitions]
    cells.servers[2].broker.cells.handlers["spread_tell"] = handler  # pyright: ignore
    assert found.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert codes == ["NONE", "NONE", "COORDINATOR_NOT_AVAILABLE"]


async def test_offsets_of_a_partition_whose_cell_is_there_are_kept_while_that_of_the_topic_is_away(
    cells: Several,
) -> None:
    name = name_of(0, "spread")
    await create(cells, [name], partitions=3)
    await metadata(cells, HOME, name)
    await cells.stop(0)
    parts = [OffsetCommitRequestPartition(partition_index=each, committed_offset=0) for each in range(3)]
    commit = OffsetCommitRequest(group_id=GROUP, topics=[OffsetCommitRequestTopic(name=name, partitions=parts)])
    done = await cells.ask(HOME, ApiKey.OFFSET_COMMIT, 8, commit, OffsetCommitResponse)
    codes = [ErrorCode(each.error_code).name for each in done.topics[0].partitions]
    assert codes == ["COORDINATOR_NOT_AVAILABLE", "NONE", "NONE"]
    for numbers, code in (([1, 2], 0), ([2], 0), ([0, 1], ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)):
        topics = [OffsetFetchRequestTopics(name=name, partition_indexes=numbers)]
        ask = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=topics)])
        found = (await cells.ask(HOME, ApiKey.OFFSET_FETCH, 8, ask, OffsetFetchResponse)).groups[0]
        assert found.error_code == code
        assert code or [each.committed_offset for each in found.topics[0].partitions] == [0] * len(numbers)


async def test_calls_to_a_cell_that_cannot_be_connected_to_fail_together(cells: Several) -> None:
    peers = cells.servers[HOME].broker.cells.peers  # pyright: ignore
    peer = peers._peers[0]  # pyright: ignore
    await peer.close()
    await asyncio.sleep(0.1)

    async def drops() -> None:
        await asyncio.sleep(1)  # 4 in the relay
        raise ConnectionRefusedError

    peer._open = drops  # pyright: ignore
    begun = monotonic()
    times = []

    async def one() -> None:
        try:
            await peers.call(0, "ready", None)
        except Exception:
            times.append(round(monotonic() - begun, 1))

    await asyncio.gather(*(one() for _ in range(8)))
    assert max(times) < 2


async def test_a_refused_produce_without_an_answer_ends_the_connection(cells: Several) -> None:
    await create(cells, NAMES)
    wire = await cells.servers[0].connect()
    wire.send(ApiKey.PRODUCE, 9, produce_body(9, (NAMES[2], 0, a_batch(b"x")), acks=0))
    async with asyncio.timeout(3):
        assert await wire.reader.read() == b""


async def test_metadata_does_not_wait_for_a_cell_that_hangs(cells: Several) -> None:
    await create(cells, NAMES)
    await metadata(cells, 0, NAMES[2])

    async def hangs(_: object) -> None:
        await asyncio.sleep(3600)

    cells.servers[2].broker.cells.handlers["kafka_request"] = hangs  # pyright: ignore
    wire = await cells.wire(0)
    names = [MetadataRequestTopic(name=name) for name in (NAMES[0], NAMES[2])]
    request = MetadataRequest(topics=names, allow_auto_topic_creation=False)
    begun = monotonic()
    wire.send(ApiKey.METADATA, 12, encode(request, 12))
    size = int.from_bytes(await asyncio.wait_for(wire.reader.readexactly(4), 60), "big")
    body = (await wire.reader.readexactly(size))[4:]
    took = monotonic() - begun
    topics = decode(MetadataResponse, 12, body, 1).topics
    assert took < 8
    assert [len(each.partitions) for each in topics] == [2, 2]
