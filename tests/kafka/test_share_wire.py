"""Share groups on the wire: sessions, fencing, jobs of members that leave, and access."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from broker.kafka import cluster
from broker.kafka.apis import ApiKey
from broker.kafka.codec.schema import encode
from broker.kafka.errors import ErrorCode
from broker.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from broker.kafka.messages.share import (
    AcknowledgementBatch,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareForgottenTopic,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    SharePartition,
    ShareTopic,
)
from broker.kafka.share import shares
from storage import NewRecord, TopicConfig, TopicType
from tests.kafka.asking import ranges
from tests.kafka.server import PATIENCE_S, KafkaServer, Wire
from tests.kafka.test_access import KEYS, known

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
WAIT_MS = 20_000
NONE = ErrorCode.NONE


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[KafkaServer]:
    async with KafkaServer(tmp_path) as server:
        await put(server, "q")
        yield server


async def put(server: KafkaServer, name: str, **settings: Any) -> None:
    await server.engine.put_topic(name, TopicConfig(type=TopicType.QUEUE, **settings))


async def add(server: KafkaServer, count: int, name: str = "q", size: int = 1) -> None:
    await server.engine.append(name, [NewRecord(data=msgspec.Raw(b'"%b"' % (b"x" * size))) for _ in range(count)])


def uuid(server: KafkaServer, name: str = "q") -> bytes:
    return cluster.uuid_of(server.engine.topic(name))


class Member:
    """One share consumer, request by request."""

    def __init__(self, server: KafkaServer, wire: Wire, name: str = "m", group: str = "g") -> None:
        self.server, self.wire, self.name, self.group = server, wire, name, group
        self.epoch = 0

    def _said(self, batches: dict[str, list[tuple[int, int, int]]]) -> list[ShareTopic]:
        return [
            ShareTopic(
                topic_id=uuid(self.server, name),
                partitions=[
                    SharePartition(
                        acknowledgement_batches=[
                            AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[type_])
                            for first, last, type_ in said
                        ]
                    )
                ],
            )
            for name, said in batches.items()
        ]

    def request(self, *names: str, epoch: int | None = None, most: int = 100, wait_ms: int = 0, **more: Any) -> Any:
        said = {name: more.pop("acks", []) for name in names}
        now = self.epoch if epoch is None else epoch
        self.epoch = now + 1
        fields: dict[str, Any] = {
            "max_bytes": 1 << 20,
            "max_records": most,
            "max_wait_ms": wait_ms,
            "min_bytes": 1,
            **more,
        }
        return ShareFetchRequest(
            group_id=self.group, member_id=self.name, share_session_epoch=now, topics=self._said(said), **fields
        )

    async def fetch(self, *names: str, version: int = 2, **more: Any) -> ShareFetchResponse:
        return await self.wire.ask(ApiKey.SHARE_FETCH, version, self.request(*names, **more), ShareFetchResponse)

    async def take(self, *names: str, **more: Any) -> list[tuple[int, int, int]]:
        """First and last offset and delivery count of the acquired range; the records must be those of the range."""
        answer = await self.fetch(*names, **more)
        assert answer.error_code == 0, answer.error_message
        found: list[tuple[int, int, int]] = []
        for topic in answer.responses:
            for part in topic.partitions:
                assert (part.error_code, part.acknowledge_error_code) == (0, 0), part
                taken = [(each.first_offset, each.last_offset, each.delivery_count) for each in part.acquired_records]
                assert sum(last - first + 1 for first, last, _ in taken) == sum(r[2] for r in ranges(part.records))
                found += taken
        return found

    async def say(self, *acks: tuple[int, int, int], epoch: int | None = None, version: int = 2) -> tuple[int, int]:
        """The error of the request, and that of the partition."""
        now = self.epoch if epoch is None else epoch
        self.epoch = now + 1
        request = ShareAcknowledgeRequest(
            group_id=self.group, member_id=self.name, share_session_epoch=now, topics=self._said({"q": list(acks)})
        )
        answer = await self.wire.ask(ApiKey.SHARE_ACKNOWLEDGE, version, request, ShareAcknowledgeResponse)
        part = answer.responses[0].partitions[0].error_code if answer.responses else 0
        return answer.error_code, part

    async def heartbeat(self, epoch: int, *names: str) -> ShareGroupHeartbeatResponse:
        request = ShareGroupHeartbeatRequest(
            group_id=self.group, member_id=self.name, member_epoch=epoch, subscribed_topic_names=[*names] or None
        )
        return await self.wire.ask(ApiKey.SHARE_GROUP_HEARTBEAT, 1, request, ShareGroupHeartbeatResponse)


async def member(server: KafkaServer, name: str = "m", group: str = "g") -> Member:
    return Member(server, await server.connect(), name, group)


async def until_ready(server: KafkaServer, count: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while server.engine.queues.figures("q").ready != count:
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("version", [1, 2])
async def test_a_session_takes_and_settles(server: KafkaServer, version: int) -> None:
    await add(server, 5)
    one = await member(server)
    assert await one.take("q", most=3, version=version) == [(0, 2, 1)]
    # Acknowledged with the next fetch, which also returns the released job first.
    assert await one.take("q", acks=[(0, 0, ACCEPT), (1, 1, RELEASE), (2, 2, ACCEPT)], version=version) == [
        (1, 1, 2),
        (3, 4, 1),
    ]
    assert await one.say((1, 1, ACCEPT), (3, 4, ACCEPT), version=version) == (NONE, NONE)
    assert server.engine.queues.figures("q").ready == server.engine.queues.figures("q").in_flight == 0


async def test_requests_of_a_session_must_be_in_order(server: KafkaServer) -> None:
    one = await member(server)
    assert (await one.fetch("q", epoch=3)).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert await one.say((0, 0, ACCEPT), epoch=1) == (ErrorCode.SHARE_SESSION_NOT_FOUND, 0)
    assert (await one.fetch("q", epoch=0, acks=[(0, 0, ACCEPT)])).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert (await one.fetch("q", epoch=0)).error_code == NONE
    assert await one.say((0, 0, ACCEPT), epoch=0) == (ErrorCode.INVALID_SHARE_SESSION_EPOCH, 0)
    assert (await one.fetch(epoch=2)).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert (await one.fetch(epoch=1)).error_code == NONE
    assert (await one.fetch(epoch=-1)).error_code == NONE
    assert (await one.fetch(epoch=2)).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


async def test_a_session_has_its_queues_until_they_are_forgotten(server: KafkaServer) -> None:
    await put(server, "r")
    for name in ("q", "r"):
        await add(server, 1, name)
    one = await member(server)
    assert len(await one.take("q", "r")) == 2
    for name in ("q", "r"):
        await add(server, 1, name)
    forgotten = [ShareForgottenTopic(topic_id=uuid(server, "r"), partitions=[0])]
    assert await one.take(forgotten_topics_data=forgotten) == [(1, 1, 1)]
    assert server.engine.queues.figures("r").ready == 1


async def test_waiting_ends_with_the_first_job_of_any_queue(server: KafkaServer) -> None:
    await put(server, "r")
    one = await member(server)
    waiting = asyncio.create_task(one.take("q", "r", wait_ms=WAIT_MS))
    async with asyncio.timeout(PATIENCE_S):
        while not server.engine.queues.figures("r").waiting_claims:
            await asyncio.sleep(0.005)
    await add(server, 3, "r")
    assert await waiting == [(0, 2, 1)]
    assert server.engine.queues.figures("q").waiting_claims == 0


async def test_waiting_fetch_of_a_disconnected_client_claims_nothing(server: KafkaServer) -> None:
    one = await member(server)
    one.wire.send(ApiKey.SHARE_FETCH, 2, encode(one.request("q", wait_ms=WAIT_MS), 2))
    async with asyncio.timeout(PATIENCE_S):
        while not server.engine.queues.figures("q").waiting_claims:
            await asyncio.sleep(0.005)
    await one.wire.close()
    async with asyncio.timeout(PATIENCE_S):
        while server.engine.queues.figures("q").waiting_claims:
            await asyncio.sleep(0.005)
    await add(server, 1)
    assert await (await member(server, "other")).take("q") == [(0, 0, 1)]


async def test_jobs_of_a_lost_connection_are_nacked(server: KafkaServer) -> None:
    await put(server, "q", max_deliveries=2, dead_letter="dead")
    await add(server, 1)
    for _ in range(2):
        one = await member(server)
        assert len(await one.take("q")) == 1
        await one.wire.close()
        async with asyncio.timeout(PATIENCE_S):
            while server.broker.kafka_shares.sessions:
                await asyncio.sleep(0.005)
    async with asyncio.timeout(PATIENCE_S):
        while not server.engine.queues.figures("q").dead_lettered:
            await asyncio.sleep(0.005)


async def test_jobs_of_a_closed_session_are_released_without_a_delivery(server: KafkaServer) -> None:
    await put(server, "q", max_deliveries=1, dead_letter="dead")
    await add(server, 2)
    one = await member(server)
    await one.take("q")
    assert (await one.fetch("q", epoch=-1, acks=[(0, 0, ACCEPT)])).error_code == NONE
    await until_ready(server, 1)
    assert await (await member(server, "other")).take("q") == [(1, 1, 2)]


async def test_leaving_member_releases_unacknowledged_jobs(
    server: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shares, "LEAVE_GRACE_S", 0.05)
    await add(server, 2)
    one = await member(server)
    joined = await one.heartbeat(0, "q")
    assert (joined.error_code, joined.member_epoch) == (NONE, 1)
    assert joined.assignment is not None
    assert [each.topic_id for each in joined.assignment.topic_partitions] == [uuid(server)]
    await one.take("q")
    assert (await one.heartbeat(-1)).member_epoch == -1
    assert await one.say((0, 0, ACCEPT)) == (NONE, NONE)  # on its way after it
    await until_ready(server, 1)
    assert (await one.heartbeat(1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_an_expired_lease_is_fenced(server: KafkaServer) -> None:
    await put(server, "q", lease_ms=2000)
    await add(server, 2)
    one = await member(server)
    answer = await one.fetch("q")
    assert answer.acquisition_lock_timeout_ms == 2000
    await until_ready(server, 2)
    other = await member(server, "other")
    assert await other.take("q") == [(0, 1, 2)]
    assert await one.say((0, 1, ACCEPT)) == (NONE, ErrorCode.INVALID_RECORD_STATE)
    assert await other.say((0, 0, ACCEPT)) == (NONE, NONE)
    assert server.engine.queues.figures("q").in_flight == 1


async def test_a_renewed_lease_does_not_expire(server: KafkaServer) -> None:
    await put(server, "q", lease_ms=2000)
    await add(server, 2)
    one = await member(server)
    await one.take("q")
    for _ in range(4):
        await asyncio.sleep(0.6)
        assert await one.say((0, 0, RENEW)) == (NONE, NONE)
    await until_ready(server, 1)
    assert await one.say((0, 0, ACCEPT)) == (NONE, NONE)
    assert await one.say((0, 0, RENEW), version=1) == (NONE, ErrorCode.INVALID_REQUEST)


async def test_a_new_session_keeps_the_leases_of_its_member(server: KafkaServer) -> None:
    await add(server, 1)
    one = await member(server)
    await one.take("q")
    assert await one.take("q", epoch=0) == []
    assert await one.say((0, 0, ACCEPT)) == (NONE, NONE)


async def test_an_answer_has_no_more_than_was_asked_for(server: KafkaServer) -> None:
    await add(server, 20, size=1000)
    one = await member(server)
    assert await one.take("q", most=4) == [(0, 3, 1)]
    assert server.engine.queues.figures("q").in_flight == 4


async def test_jobs_beyond_the_answer_limit_are_released(server: KafkaServer) -> None:
    await put(server, "q", max_deliveries=1, dead_letter="dead")
    await add(server, 2, size=50_000)
    await add(server, 100)  # so that many would fit by their mean size
    one = await member(server)
    assert await one.take("q", max_bytes=40_000) == [(0, 0, 1)]
    figures = server.engine.queues.figures("q")
    assert (figures.in_flight, figures.ready, figures.dead_lettered + figures.dead_pending) == (1, 101, 0)
    assert await one.take(max_bytes=40_000) == [(1, 1, 2)]


async def test_other_group_is_refused_with_the_owner_also_after_a_restart(tmp_path: Path) -> None:
    async with KafkaServer(tmp_path) as server:
        await put(server, "q")
        await (await member(server)).take("q")
    async with KafkaServer(tmp_path) as server:
        answer = await (await member(server, "m", "other")).fetch("q", wait_ms=WAIT_MS)
        part = answer.responses[0].partitions[0]
        assert part.error_code == ErrorCode.INVALID_GROUP_ID
        assert part.error_message == "q belongs to the share group g; a queue has only one share group."
        await server.engine.delete_topic("q")
        await put(server, "q")
        assert await (await member(server, "m2", "other")).take("q") == []


async def test_of_two_concurrent_groups_only_one_owns_the_queue(server: KafkaServer) -> None:
    both = [await member(server, "a", "a"), await member(server, "b", "b")]
    answers = await asyncio.gather(*(each.fetch("q") for each in both))
    errors = [topic.partitions[0].error_code for answer in answers for topic in answer.responses]
    assert errors == [ErrorCode.INVALID_GROUP_ID]


async def test_fetching_jobs_needs_its_scopes(tmp_path: Path) -> None:
    async with KafkaServer(tmp_path, api_keys=KEYS, header_timeout_s=600) as server:
        for name in ("q", "own.q"):
            await put(server, name)
            await add(server, 1, name)
        found: dict[str, list[int]] = {}
        for key in ("reader", "writer", "own", "admin", "all"):
            one = Member(server, await known(server, key), key)
            answer = await one.fetch("q", "own.q")
            errors = {topic.topic_id: topic.partitions[0].error_code for topic in answer.responses}
            found[key] = [answer.error_code, *(errors.get(uuid(server, name), 0) for name in ("q", "own.q"))]
        no, group = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert found == {
            "reader": [0, no, no], "writer": [group, 0, 0], "own": [0, no, 0], "admin": [group, 0, 0], "all": [0, 0, 0],
        }  # fmt: skip


async def test_logs_unknown_topics_and_invalid_ids_are_errors(server: KafkaServer) -> None:
    await server.engine.append("log", b"1")
    one = await member(server)
    answer = await one.fetch("q", "log", wait_ms=WAIT_MS)
    assert [topic.partitions[0].error_code for topic in answer.responses] == [ErrorCode.INVALID_REQUEST]
    request = one.request(epoch=1)
    request.topics = [ShareTopic(topic_id=bytes(16), partitions=[SharePartition()])]
    gone = await one.wire.ask(ApiKey.SHARE_FETCH, 2, request, ShareFetchResponse)
    codes = {topic.topic_id: topic.partitions[0].error_code for topic in gone.responses}
    assert codes[bytes(16)] == ErrorCode.UNKNOWN_TOPIC_ID
    for fields in ({"group_id": ""}, {"member_id": None}, {"member_id": "x" * 37}):
        bad = one.request("q", epoch=0)
        for name, value in fields.items():
            setattr(bad, name, value)
        assert (await one.wire.ask(ApiKey.SHARE_FETCH, 2, bad, ShareFetchResponse)).error_code in (24, 42)


@pytest.mark.parametrize("version", [10, 11, 12])
async def test_metadata_finds_topics_by_id(server: KafkaServer, version: int) -> None:
    wire = await server.connect()
    named = MetadataRequest(topics=[MetadataRequestTopic(name="q")])
    (found,) = (await wire.ask(ApiKey.METADATA, version, named, MetadataResponse)).topics
    assert (found.name, found.topic_id) == ("q", uuid(server))
    ids = (found.topic_id, bytes(16), b"topics\0\1" + b"\xff" * 8)
    for nameless in (None, ""):  # the latter is what Java's client sends
        asked = [MetadataRequestTopic(topic_id=each, name=nameless) for each in ids]
        answer = await wire.ask(ApiKey.METADATA, version, MetadataRequest(topics=asked), MetadataResponse)
        none = 100 if nameless is None else 17
        assert [(each.error_code, each.name or "") for each in answer.topics] == [(0, "q"), (none, ""), (100, "")]


async def test_share_fetch_claims_only_jobs_that_fit_the_memory(tmp_path: Path) -> None:
    async with KafkaServer(tmp_path, max_answer_memory_bytes=16 << 20) as server:
        await put(server, "q")
        await add(server, 10, size=900_000)
        others = server.broker.memory.answers.hold(object(), 15 << 20)
        one = await member(server)
        assert await one.take("q", max_bytes=32 << 20) == [(0, 0, 1)]
        others.release()
        assert await one.take("q", max_bytes=32 << 20, wait_ms=0) == [(1, 9, 1)]


async def test_share_fetch_claims_nothing_without_memory_for_one_job(tmp_path: Path) -> None:
    async with KafkaServer(tmp_path, max_answer_memory_bytes=16 << 20) as server:
        await put(server, "q")
        await add(server, 2, size=900_000)
        others = server.broker.memory.answers.hold(object(), 16 << 20)
        one = await member(server)
        assert await one.take("q", max_bytes=32 << 20) == []
        assert server.engine.queues.figures("q").ready == 2
        others.release()
        assert await one.take("q", max_bytes=32 << 20) == [(0, 1, 1)]
