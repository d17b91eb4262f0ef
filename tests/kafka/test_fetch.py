"""Fetch, ListOffsets and DeleteRecords: returned records, waiting, gaps and errors."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiokafka.record.memory_records import MemoryRecords

from broker.kafka.apis import APIS, ApiKey
from broker.kafka.errors import ErrorCode
from broker.kafka.messages.positions import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    OffsetForLeaderEpochOffsetForLeaderPartition,
    OffsetForLeaderEpochOffsetForLeaderTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from broker.kafka.messages.topics import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from storage import TopicConfig
from storage.records.values import NewRecord, PlainBinary, ReadQuery, ReadResult, TagMatch
from storage.state.manifest import Segment, SegmentState
from tests.kafka.asking import FETCH_VERSIONS, a_batch, fetch, fetch_body, fetched, produce, ranges
from tests.kafka.server import KafkaServer, Wire


def records_of(data: bytes) -> list[tuple[int, Any]]:
    """Offset and value of each record, as a client extracts them from an answer."""
    found: list[tuple[int, Any]] = []
    batches: Any = MemoryRecords(data)
    while batches.has_next():
        found += [(record.offset, record.value) for record in batches.next_batch()]
    return found


async def with_records(server: KafkaServer, count: int, topic: str = "t", **config: Any) -> Wire:
    """A topic whose records contain their offsets."""
    await server.engine.put_topic(topic, TopicConfig(**config))
    if count:
        await server.engine.append(topic, PlainBinary([b"%d" % number for number in range(count)]))  # pyright: ignore
    return await server.connect()


@pytest.mark.parametrize("version", FETCH_VERSIONS)
async def test_existing_records_are_returned(server: KafkaServer, version: int) -> None:
    wire = await with_records(server, 30)
    (one,) = await fetch(wire, ("t", 0, 10), version=version)
    assert (one.error_code, one.high_watermark, one.last_stable_offset) == (0, 30, 30)
    assert records_of(one.records) == [(number, b"%d" % number) for number in range(10, 30)]


async def test_fetch_at_the_head_is_empty(server: KafkaServer) -> None:
    wire = await with_records(server, 3)
    (one,) = await fetch(wire, ("t", 0, 3))
    assert (one.error_code, one.records) == (0, b"")


@pytest.mark.parametrize("offset", [-1, 4, 1 << 40])
async def test_fetch_of_an_empty_partition(server: KafkaServer, offset: int) -> None:
    wire = await with_records(server, 3)
    assert (await fetch(wire, ("t", 0, offset)))[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize(("topic", "partition"), [("none", 0), ("t", 1), ("t", -1)])
async def test_unknown_partition_is_an_error(server: KafkaServer, topic: str, partition: int) -> None:
    wire = await with_records(server, 3)
    assert (await fetch(wire, (topic, partition, 0)))[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_first_batch_is_returned_whatever_its_size(server: KafkaServer) -> None:
    wire = await with_records(server, 0)
    await server.engine.append("t", PlainBinary([b"x" * 50_000, b"y" * 50_000]))  # pyright: ignore
    (one,) = await fetch(wire, ("t", 0, 0), max_bytes=1, partition_bytes=1)
    assert records_of(one.records) == [(0, b"x" * 50_000)]


async def test_partitions_share_the_byte_limit(server: KafkaServer) -> None:
    wire = await with_records(server, 100, "a")
    await with_records(server, 100, "b")
    first, second = await fetch(wire, ("a", 0, 0), ("b", 0, 0), max_bytes=300)
    assert 0 < len(records_of(first.records)) < 100
    assert second.records == b""
    first, second = await fetch(wire, ("b", 0, 0), ("a", 0, 0), partition_bytes=300)
    assert 0 < len(records_of(first.records)) < 100
    assert 0 < len(records_of(second.records)) < 100


@pytest.mark.parametrize("max_bytes", [1, 500, 5_000, 60_000, 120_000])
async def test_only_the_first_partition_gives_more_than_was_asked_for(server: KafkaServer, max_bytes: int) -> None:
    names = ("a", "b", "c")
    for name in names:
        wire = await with_records(server, 0, name)
        await server.engine.append(name, PlainBinary([b"x" * 50_000, b"1", b"2"]))  # pyright: ignore
    wire = await server.connect()
    at, seen = dict.fromkeys(names, 0), {name: list[int]() for name in names}
    for turn in range(30):
        order = [names[(turn + place) % 3] for place in range(3)]
        answers = await fetch(wire, *((name, 0, at[name]) for name in order), max_bytes=max_bytes)
        sizes = [len(one.records) for one in answers]
        first = next((place for place, size in enumerate(sizes) if size), 0)
        beyond = len(records_of(answers[first].records)) == 1 and not any(sizes[first + 1 :])
        assert sum(sizes) <= max_bytes or beyond, sizes
        for name, one in zip(order, answers, strict=True):
            offsets = [offset for offset, _ in records_of(one.records)]
            seen[name] += offsets
            at[name] = offsets[-1] + 1 if offsets else at[name]
    assert seen == {name: [0, 1, 2] for name in names}


async def test_a_fetch_with_min_bytes_over_max_bytes_does_not_wait(server: KafkaServer) -> None:
    wire = await with_records(server, 100)
    body = fetch_body(12, ("t", 0, 0), max_wait_ms=60_000, min_bytes=1 << 20, max_bytes=300)
    wire.send(ApiKey.FETCH, 12, body)
    (one,) = await fetched(wire)
    assert 0 < len(one.records) <= 300


async def test_wait_ends_with_an_append(server: KafkaServer) -> None:
    wire = await with_records(server, 3)
    await with_records(server, 0, "other")
    for names in (["t"], ["other", "t"]):
        head = server.engine.state("t").head_seq
        wanted = [(name, 0, head if name == "t" else 0) for name in names]
        wire.send(ApiKey.FETCH, 12, fetch_body(12, *wanted, max_wait_ms=20_000))
        answer = asyncio.create_task(fetched(wire))
        await asyncio.sleep(0.05)
        assert not answer.done()
        await server.engine.append("t", b"new")
        found = await answer
        assert records_of(found[-1].records) == [(head, b"new")]


async def test_waiting_ends_when_min_bytes_are_available(server: KafkaServer) -> None:
    wire = await with_records(server, 0)
    wire.send(ApiKey.FETCH, 12, fetch_body(12, ("t", 0, 0), max_wait_ms=20_000, min_bytes=1000))
    answer = asyncio.create_task(fetched(wire))
    for _ in range(3):
        await server.engine.append("t", b"x" * 300)
        await asyncio.sleep(0.05)
        assert not answer.done()
    await server.engine.append("t", b"x" * 300)
    assert len(records_of((await answer)[0].records)) == 4


async def test_waiting_ends_with_the_time(server: KafkaServer) -> None:
    wire = await with_records(server, 0)
    await server.engine.append("t", b"x")
    (one,) = await fetch(wire, ("t", 0, 0), max_wait_ms=50, min_bytes=100_000)
    assert records_of(one.records) == [(0, b"x")]


async def test_waiting_ends_with_the_topic_and_with_the_broker(server: KafkaServer) -> None:
    wire = await with_records(server, 0)
    wire.send(ApiKey.FETCH, 12, fetch_body(12, ("t", 0, 0), max_wait_ms=20_000))
    await asyncio.sleep(0.05)
    await server.engine.delete_topic("t")
    assert (await fetched(wire))[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await with_records(server, 0)
    wire.send(ApiKey.FETCH, 12, fetch_body(12, ("t", 0, 0), max_wait_ms=20_000))
    await asyncio.sleep(0.05)
    server.engine.begin_shutdown()
    assert (await fetched(wire))[0].error_code == 0


async def test_deleted_offsets_are_skipped(server: KafkaServer) -> None:
    wire = await with_records(server, 0)
    records = [NewRecord(b"%d" % number, tag=f"tag{number // 10}") for number in range(50)]  # pyright: ignore
    await server.engine.append("t", records)
    for number in (0, 2, 4):
        await server.engine.delete_records("t", match=TagMatch(b"tag%d" % number))
    (one,) = await fetch(wire, ("t", 0, 0))
    assert one.log_start_offset == 10
    assert ranges(one.records) == [(0, 9, 0), (10, 39, 20), (40, 49, 0)]
    alive = [*range(10, 20), *range(30, 40)]
    assert records_of(one.records) == [(number, b"%d" % number) for number in alive]
    (one,) = await fetch(wire, ("t", 0, 45))
    assert ranges(one.records) == [(45, 49, 0)]


async def test_evicted_offsets_are_out_of_range(server: KafkaServer) -> None:
    wire = await with_records(server, 100, cap_records=10)
    (one,) = await fetch(wire, ("t", 0, 0))
    assert (one.error_code, one.high_watermark, one.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 100, 90)
    (one,) = await fetch(wire, ("t", 0, 90))
    assert [offset for offset, _ in records_of(one.records)] == [*range(90, 100)]


@pytest.mark.parametrize("epoch", [1, 7])
async def test_an_epoch_of_the_future_is_not_known(server: KafkaServer, epoch: int) -> None:
    wire = await with_records(server, 3)
    (one,) = await fetch(wire, ("t", 0, 0), current_leader_epoch=epoch)
    assert one.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert (await fetch(wire, ("t", 0, 0), current_leader_epoch=0))[0].error_code == 0


# -- positions -------------------------------------------------------------------------------------------------------


async def listed(wire: Wire, timestamp: int, version: int = 6) -> tuple[int, int, int]:
    """Error, offset and time."""
    part = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[part])])
    answer = await wire.ask(ApiKey.LIST_OFFSETS, version, request, ListOffsetsResponse)
    (one,) = answer.topics[0].partitions
    return one.error_code, one.offset, one.timestamp


@pytest.mark.parametrize("version", range(1, APIS[ApiKey.LIST_OFFSETS].last + 1))
async def test_where_a_partition_begins_and_ends(server: KafkaServer, version: int) -> None:
    wire = await with_records(server, 100, cap_records=10)
    assert await listed(wire, -2, version) == (0, 90, -1)
    assert await listed(wire, -1, version) == (0, 100, -1)


async def test_the_first_record_of_a_time_is_found_by_create_time(server: KafkaServer) -> None:
    wire = await with_records(server, 0)
    await produce(wire, ("t", 0, a_batch(b"1", b"2", b"3")))
    first = 1_700_000_000_000
    assert await listed(wire, first) == (0, 0, first)
    assert await listed(wire, first + 1) == (0, 1, first + 1)
    assert await listed(wire, first + 3) == (0, -1, -1)
    assert await listed(wire, 0) == (0, 0, first)


@pytest.mark.parametrize(("timestamp", "since"), [(-3, 7), (-4, 8), (-5, 9), (-6, 11), (-7, 99)])
async def test_special_timestamps_need_certain_versions(server: KafkaServer, timestamp: int, since: int) -> None:
    wire = await with_records(server, 3)
    for version in range(1, APIS[ApiKey.LIST_OFFSETS].last + 1):
        error = (await listed(wire, timestamp, version))[0]
        assert error == (0 if version >= since else ErrorCode.UNSUPPORTED_VERSION)


async def test_the_record_with_the_latest_time_is_found(server: KafkaServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.kafka.fetching._LOOK_AT_ONCE", 7)
    wire = await with_records(server, 0)
    assert await listed(wire, -3, 7) == (0, -1, -1)
    # The create times of each batch are the same three. Of the records with the latest time, the first counts.
    for _ in range(10):
        await produce(wire, ("t", 0, a_batch(b"1", b"2", b"3")))
    assert await listed(wire, -3, 7) == (0, 2, 1_700_000_000_002)
    await server.engine.delete_records("t", before_seq=6)
    assert await listed(wire, -3, 7) == (0, 5, 1_700_000_000_002)
    # Without a create time a record has the time of its commit, which is later than these.
    await server.engine.append("t", PlainBinary([b"x"]))  # pyright: ignore
    error, offset, _ = await listed(wire, -3, 7)
    assert (error, offset) == (0, 30)


async def test_the_search_for_the_latest_time_is_bounded(server: KafkaServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.kafka.fetching._LOOK_AT_ONCE", 5)
    wire = await with_records(server, 100)
    read, seen = server.engine.read, list[int]()

    async def watched(name: str, query: ReadQuery) -> ReadResult:
        seen.append(query.from_seq)
        return await read(name, query)

    monkeypatch.setattr(server.engine, "read", watched)
    await asyncio.sleep(0.002)  # the next record has a later time
    await server.engine.append("t", PlainBinary([b"x"] * 5))  # pyright: ignore
    error, offset, _ = await listed(wire, -3, 7)
    assert (error, offset) == (0, 100)
    assert min(seen) >= 95


async def test_a_limited_number_of_records_is_scanned(server: KafkaServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.kafka.fetching._LOOK_AT_ONCE", 5)
    monkeypatch.setattr("broker.kafka.fetching.MAX_LOOKED_AT", 20)
    wire = await with_records(server, 100)  # all with the same time, so the first would count
    error, offset, _ = await listed(wire, -3, 7)
    assert (error, offset) == (0, 80)


async def test_without_a_cold_tier_all_segments_are_local(server: KafkaServer) -> None:
    wire = await with_records(server, 100, cap_records=10)
    assert await listed(wire, -4, 11) == (0, 90, -1)
    assert await listed(wire, -5, 11) == (0, -1, -1)
    assert await listed(wire, -6, 11) == (0, -1, -1)


async def test_offsets_of_local_and_cold_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with KafkaServer(tmp_path, cold_dir=str(tmp_path / "cold")) as server:
        wire = await with_records(server, 10)
        assert await listed(wire, -6, 11) == (0, 0, -1)
        manifest = server.engine.topic("t").log.held.manifest
        segments = [
            Segment(SegmentState(first_seq=first, end_seq=first + 3, sealed=True, tier=tier))
            for first, tier in ((1, "cold"), (4, "cold"), (7, "hot"))
        ]
        monkeypatch.setattr(manifest, "segments", segments)
        assert await listed(wire, -2, 11) == (0, 0, -1)
        assert await listed(wire, -4, 11) == (0, 6, -1)
        assert await listed(wire, -5, 11) == (0, 5, -1)
        assert await listed(wire, -6, 11) == (0, 6, -1)


@pytest.mark.parametrize("version", range(2, 5))
async def test_the_only_epoch_ends_at_the_head(server: KafkaServer, version: int) -> None:
    wire = await with_records(server, 3)
    part = OffsetForLeaderEpochOffsetForLeaderPartition
    topic = OffsetForLeaderEpochOffsetForLeaderTopic(
        topic="t", partitions=[part(partition=0, leader_epoch=0), part(partition=0, leader_epoch=9)]
    )
    request = OffsetForLeaderEpochRequest(topics=[topic])
    answer = await wire.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, request, OffsetForLeaderEpochResponse)
    known, unknown = answer.topics[0].partitions
    assert (known.error_code, known.leader_epoch, known.end_offset) == (0, 0, 3)
    assert (unknown.error_code, unknown.leader_epoch, unknown.end_offset) == (0, -1, -1)


@pytest.mark.parametrize("version", range(3))
async def test_records_are_deleted_up_to_an_offset(server: KafkaServer, version: int) -> None:
    wire = await with_records(server, 10)

    async def deleted(offset: int) -> tuple[int, int]:
        topic = DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)])
        request = DeleteRecordsRequest(topics=[topic], timeout_ms=1000)
        answer = await wire.ask(ApiKey.DELETE_RECORDS, version, request, DeleteRecordsResponse)
        (one,) = answer.topics[0].partitions
        return one.error_code, one.low_watermark

    assert await deleted(4) == (0, 4)
    assert await deleted(11) == (ErrorCode.OFFSET_OUT_OF_RANGE, 0)
    assert ranges((await fetch(wire, ("t", 0, 0)))[0].records) == [(0, 3, 0), (4, 9, 6)]
    assert await deleted(-1) == (0, 10)
    assert ranges((await fetch(wire, ("t", 0, 0)))[0].records) == [(0, 9, 0)]


async def test_every_partition_has_separate_offsets(server: KafkaServer) -> None:
    await server.engine.put_topic("t", TopicConfig(partitions=3))
    wire = await server.connect()
    for partition, values in ((2, [b"1", b"2"]), (1, [b"3"]), (2, [b"4"])):
        assert (await produce(wire, ("t", partition, a_batch(*values))))[0][0] == 0
    found = await fetch(wire, ("t", 0, 0), ("t", 1, 0), ("t", 2, 0), ("t", 3, 0))
    assert [one.error_code for one in found] == [0, 0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert [records_of(one.records) for one in found[:3]] == [[], [(0, b"3")], [(0, b"1"), (1, b"2"), (2, b"4")]]
    assert (await produce(wire, ("t", 3, a_batch(b"1"))))[0][0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    # Waiting for several partitions ends when one of them gets something.
    wire.send(ApiKey.FETCH, 12, fetch_body(12, ("t", 0, 0), ("t", 1, 1), ("t", 2, 3), max_wait_ms=20_000))
    answer = asyncio.create_task(fetched(wire))
    await asyncio.sleep(0.05)
    other = await server.connect()
    await produce(other, ("t", 1, a_batch(b"5")))
    assert [records_of(one.records) for one in await answer] == [[], [(1, b"5")], []]


async def test_damaged_records_are_never_returned(tmp_path: Path) -> None:
    async with KafkaServer(tmp_path, tail_cache_bytes=0) as server:
        wire = await with_records(server, 0)
        await server.engine.append("t", PlainBinary([b"good-%02d" % number for number in range(50)]))  # pyright: ignore
        for file in (tmp_path / "data").rglob("wal-*.log"):
            whole = file.read_bytes()
            # Two digits each: the byte after a shorter value could be a digit by chance.
            at = whole.find(b"good-30")
            if at >= 0:
                with file.open("r+b") as there:
                    there.seek(at)
                    there.write(b"evil")
        (one,) = await fetch(wire, ("t", 0, 0))
        assert records_of(one.records) == [(number, b"good-%02d" % number) for number in range(30)]
        (one,) = await fetch(wire, ("t", 0, 30))
        assert (one.error_code, one.records) == (ErrorCode.CORRUPT_MESSAGE, b"")
        (one,) = await fetch(wire, ("t", 0, 31))
        assert len(records_of(one.records)) == 19
