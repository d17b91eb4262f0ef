"""The most requests of a key at a time: on this port further requests are not refused, but wait unread for their
turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest

from broker.auth.access import KeyAccess
from broker.kafka.apis import ApiKey
from broker.kafka.call import Answer, Call, Handler, Later
from broker.kafka.codec.schema import encode
from broker.kafka.connection import Connection
from broker.kafka.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
)
from broker.kafka.table import HANDLERS
from storage.errors import LimitReached
from tests.kafka.asking import a_batch, fetch_body, fetched, produce, produce_body
from tests.kafka.server import KafkaServer, Wire
from tests.kafka.test_access import known
from tests.kafka.test_flow import until

LONG_MS = 20_000


class HeldProduce:
    """A Produce handler whose writes end when the test says so."""

    def __init__(self) -> None:
        self.writes: list[asyncio.Future[bytes]] = []

    async def produce(self, _: Call, __: memoryview) -> Answer:
        self.writes.append(asyncio.get_running_loop().create_future())
        return Later(self.writes[-1])

    @property
    def handlers(self) -> dict[int, Handler]:
        return {**HANDLERS, ApiKey.PRODUCE: self.produce}

    def send(self, wire: Wire, count: int = 1) -> list[int]:
        return [wire.send(ApiKey.PRODUCE, 9, b"") for _ in range(count)]

    async def begun(self, count: int) -> None:
        """Exactly this many requests begin, even after time for more."""
        await until(lambda: len(self.writes) >= count)
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(self.writes) == count

    def finish(self, *numbers: int) -> None:
        for number in numbers:
            self.writes[number].set_result(b"")


@asynccontextmanager
async def held(directory: Path, most: int, **more: object) -> AsyncIterator[tuple[KafkaServer, HeldProduce]]:
    held = HeldProduce()
    given = {"api_keys": "one,two", "max_inflight_per_key": most, "header_timeout_s": 600, **more}
    async with KafkaServer(directory, held.handlers, **given) as server:
        yield server, held
        for write in held.writes:
            if not write.done():
                write.set_result(b"")


def access(server: KafkaServer, key: str = "one") -> KeyAccess:
    assert server.broker.gate is not None
    found = server.broker.gate.find(key.encode())
    assert found is not None
    return found


def connections(server: KafkaServer) -> list[Connection]:
    return list(cast("set[Connection]", server.port.metrics.connections))


def read(server: KafkaServer) -> int:
    """How many of them are read."""
    return sum(each.transport.is_reading() for each in connections(server))


async def one_waits(server: KafkaServer, writes: HeldProduce) -> tuple[Wire, Wire]:
    """A connection with a request in progress, and one whose request waits for its turn."""
    first, waiting = await known(server, "one"), await known(server, "one")
    writes.send(first)
    await writes.begun(1)
    writes.send(waiting)
    await until(lambda: read(server) == 1)
    return first, waiting


async def test_requests_of_a_key_over_all_its_connections_wait_for_their_turn(tmp_path: Path) -> None:
    async with held(tmp_path, most=3) as (server, writes):
        one, other = await known(server, "one"), await known(server, "one")
        mine = writes.send(one, 5)
        await writes.begun(3)
        theirs = writes.send(other)
        await until(lambda: read(server) == 0)
        await writes.begun(3)
        assert access(server).inflight == 3
        writes.finish(1)  # this one, not the one whose answer goes first, and it makes room all the same
        await writes.begun(4)
        assert access(server).inflight == 3
        writes.finish(0, 2, 3)
        await writes.begun(6)
        await until(lambda: read(server) == 2)
        writes.finish(4, 5)
        assert [(await one.answer())[0] for _ in mine] == mine
        assert [(await other.answer())[0] for _ in theirs] == theirs
        await until(lambda: access(server).inflight == 0)


async def test_kafka_and_http_requests_of_a_key_count_together(tmp_path: Path) -> None:
    async with held(tmp_path, most=1) as (server, writes):
        one, two = await known(server, "one"), await known(server, "two")
        over_http = access(server).enter()
        writes.send(one)
        writes.send(two)
        await writes.begun(1)
        writes.finish(0)
        await two.answer()
        over_http.end()
        await writes.begun(2)
        with pytest.raises(LimitReached):
            access(server).enter()
        writes.finish(1)
        await one.answer()
        access(server).enter().end()


async def test_disconnected_waiting_request_does_not_count(tmp_path: Path) -> None:
    async with held(tmp_path, most=1) as (server, writes):
        first, gone, last = [await known(server, "one") for _ in range(3)]
        writes.send(first)
        await writes.begun(1)
        writes.send(gone)
        await until(lambda: read(server) == 2)
        (waiting,) = [each for each in connections(server) if not each.transport.is_reading()]
        writes.send(last)
        await until(lambda: read(server) == 1)
        waiting.transport.abort()
        await gone.ended()
        writes.finish(0)
        await first.answer()
        await writes.begun(2)
        writes.finish(1)
        await last.answer()
        assert access(server).inflight == 0


async def test_unnoticed_disconnection_releases_its_slot_after_the_work(tmp_path: Path) -> None:
    async with held(tmp_path, most=1) as (server, writes):
        first, gone = await one_waits(server, writes)
        await gone.close()  # which is read when its turn comes
        writes.finish(0)
        await first.answer()
        await writes.begun(2)
        await until(lambda: len(connections(server)) == 1)
        writes.finish(1)
        await until(lambda: access(server).inflight == 0)


async def test_a_shutdown_waits_for_no_turn(tmp_path: Path) -> None:
    async with held(tmp_path, most=1) as (server, writes):
        first, waiting = await one_waits(server, writes)
        closing = asyncio.create_task(server.port.close(grace_s=10))
        await waiting.ended()
        writes.finish(0)
        await first.answer()
        await closing
        assert (len(writes.writes), access(server).inflight) == (1, 0)


async def test_without_a_limit_all_requests_begin(tmp_path: Path) -> None:
    async with held(tmp_path, most=0) as (server, writes):
        wire = await known(server, "one")
        writes.send(wire, 50)
        await writes.begun(50)
        assert access(server).inflight == 50
        writes.finish(*range(50))


async def test_a_call_that_raises_releases_its_slot(tmp_path: Path) -> None:
    async def raises(_: Call, __: memoryview) -> Answer:
        raise RuntimeError

    async with KafkaServer(tmp_path, {**HANDLERS, ApiKey.METADATA: raises}, api_keys="one") as server:
        wire = await known(server, "one")
        wire.send(ApiKey.METADATA, 9, b"")
        await wire.ended()
        assert access(server).inflight == 0


# -- what waits for something else -------------------------------------------------------------------------------------


@pytest.fixture
async def narrow(tmp_path: Path) -> AsyncIterator[KafkaServer]:
    """One request at a time."""
    given = {"max_inflight_per_key": 1, "kafka_rebalance_delay_ms": LONG_MS, "header_timeout_s": 600}
    async with KafkaServer(tmp_path, api_keys="one", **given) as server:
        await server.engine.put_topic("t")
        yield server


async def test_a_waiting_fetch_takes_no_slot(narrow: KafkaServer) -> None:
    reader, writer = await known(narrow, "one"), await known(narrow, "one")
    reader.send(ApiKey.FETCH, 12, fetch_body(12, ("t", 0, 0), max_wait_ms=LONG_MS))
    assert [error for error, _, _ in await produce(writer, ("t", 0, a_batch(b"1")))] == [0]
    assert [one.high_watermark for one in await fetched(reader)] == [1]
    assert access(narrow).inflight == 0


async def test_waiting_join_does_not_count_as_in_flight(narrow: KafkaServer) -> None:
    member, other = await known(narrow, "one"), await known(narrow, "one")
    join = JoinGroupRequest(
        group_id="g", session_timeout_ms=10_000, rebalance_timeout_ms=LONG_MS, protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range")],
    )  # fmt: skip
    member.send(ApiKey.JOIN_GROUP, 3, encode(join, 3))
    member.send(ApiKey.PRODUCE, 9, produce_body(9, ("t", 0, a_batch(b"1"))))
    await until(lambda: narrow.engine.topic("t").log.head == 1)
    assert [error for error, _, _ in await produce(other, ("t", 0, a_batch(b"2")))] == [0]
    assert access(narrow).inflight == 0


async def test_heartbeats_are_served_at_the_in_flight_limit(narrow: KafkaServer) -> None:
    wire = await known(narrow, "one")
    flight = access(narrow).enter()
    request = HeartbeatRequest(group_id="g", member_id="m")
    assert (await wire.ask(ApiKey.HEARTBEAT, 4, request, HeartbeatResponse)).error_code == 25
    flight.end()
