"""Writes that bypass ASGI when the log refuses them, and when the server stops meanwhile."""

from __future__ import annotations

import asyncio
import errno

import pytest

from schemas.records import AppendAnswer
from storage import Discard, Durability, TopicConfig
from tests.http.hot_server import ASGI, HotServer, Reply, post, records
from tests.support.sim_disk import SimDisk
from tests.unit.storage.machine import data, options

FSYNC = TopicConfig(durability=Durability.FSYNC)
WAYS: list[dict[str, str]] = [{}, ASGI]
BOTH = pytest.mark.parametrize("kind", WAYS, ids=["hot", "asgi"])
ONE = records(1)
#: Status, code, Retry-After.
Told = tuple[int, str, list[str]]
FAILED: Told = (503, "storage_failed", ["5"])
FULL: Told = (507, "storage_full", [])
ROUTE = "/v0/topics/{topic}"


def envelope(answer: Reply) -> Told:
    return answer.status, answer.code, answer.header("retry-after")


@BOTH
@pytest.mark.parametrize(("number", "expected"), [(errno.EIO, FAILED), (errno.ENOSPC, FULL)])
async def test_a_write_on_a_failing_disk_ends_with_storage_failed(
    kind: dict[str, str], number: int, expected: Told
) -> None:
    async with HotServer() as server:
        await server.topic("t", FSYNC)
        await server.ask(post("t", ONE))
        server.disk.fail("pwritev", "*/wal-*", errno=number, sticky=True)
        with server.disk.hold("pwritev", "*/wal-*", times=1) as gate:
            wires = [await server.connect() for _ in range(4)]
            for wire in wires:
                wire.send(post("t", ONE, {**kind, "idempotency-key": "same", "accept-encoding": "gzip"}))
            await asyncio.to_thread(gate.wait_held)
        answers = [await wire.answer() for wire in wires]
        assert [envelope(answer) for answer in answers] == [expected] * 4
        if number == errno.EIO:
            assert {answer.body["error"]["detail"]["outcome"] for answer in answers} == {"unknown"}
        assert server.taken == (1 if kind else 2)
        assert envelope(await server.ask(post("t", ONE, kind))) == expected
        assert await data(server.engine, "t") == [1]
        server.disk.clear_faults()


@BOTH
async def test_a_write_to_a_saturated_log_is_refused_with_wal_saturated(kind: dict[str, str]) -> None:
    async with HotServer(limits=options(wal_queue_frames=20, wal_enqueue_timeout_ms=10)) as server:
        await server.topic("t", FSYNC)
        with server.disk.hold("pwritev", "*/wal-*", times=1) as gate:
            first = await server.connect()
            first.send(post("t", ONE, kind))
            await asyncio.to_thread(gate.wait_held)
            second = await server.connect()
            second.send(post("t", records(*range(12)), kind))
            while server.engine.shards[0].queued_frames < 13:
                await asyncio.sleep(0.001)
            assert envelope(await server.ask(post("t", records(*range(12)), kind))) == (503, "wal_saturated", ["1"])
        assert [(await wire.answer()).body["first_seq"] for wire in (first, second)] == [1, 2]
        assert server.engine.state("t").head_seq == 13


@BOTH
async def test_a_write_refused_for_a_full_queue_reports_its_wait(kind: dict[str, str]) -> None:
    async with HotServer(limits=options(wal_queue_frames=20)) as server:
        await server.topic("t", FSYNC)
        with server.disk.hold("pwritev", "*/wal-*", times=1) as gate:
            wires = [await server.connect() for _ in range(3)]
            wires[0].send(post("t", ONE, kind))
            await asyncio.to_thread(gate.wait_held)
            for wire in wires[1:]:
                wire.send(post("t", records(*range(12)), kind))
            while not server.engine.shards[0].waiting_for_room:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.05)
        answers = [await wire.answer() for wire in wires]
        assert [answer.body["first_seq"] for answer in answers] == [1, 2, 14]
        for answer in answers[:2]:
            assert "throttle_wait_ms" not in AppendAnswer.model_validate(answer.body).performance.model_fields_set
        spent = answers[2].body["performance"]
        assert 50 <= spent["throttle_wait_ms"] <= spent["server_total_ms"]
        assert spent["throttle_wait_ms"] + spent["wal_append_ms"] + spent["fsync_ms"] <= spent["server_total_ms"] + 0.01


@BOTH
async def test_a_write_to_a_full_topic_is_refused_with_topic_full(kind: dict[str, str]) -> None:
    async with HotServer() as server:
        await server.topic("t", TopicConfig(cap_records=1, discard=Discard.REJECT))
        wire = await server.connect()
        wire.send(post("t", ONE, kind), post("t", ONE, kind))
        assert (await wire.answer()).status == 200
        assert envelope(await wire.answer()) == (422, "topic_full", [])


@BOTH
async def test_a_hanging_write_ends_with_shutting_down_after_the_grace(kind: dict[str, str]) -> None:
    async with HotServer(grace_s=0.2) as server:
        await server.topic("t", FSYNC)
        with server.disk.hold("datasync", "*/wal-*", times=1) as gate:
            wire = await server.connect()
            wire.send(post("t", ONE, kind))
            await asyncio.to_thread(gate.wait_held)
            stopped = server.stop()
            answer = await wire.answer()
            assert envelope(answer) == (503, "shutting_down", ["1"])
            assert answer.body["error"]["detail"] == {"outcome": "unknown"}
            await wire.ended()
            await stopped
        await server.engine.close()
        # The write succeeded after all and has been answered, so nobody is answered a second time.
        assert server.counted("topics_http_requests") == {(ROUTE, "POST", "5xx"): 1}
        assert server.taken == (0 if kind else 1)


@BOTH
async def test_a_write_that_ends_within_the_grace_is_answered(kind: dict[str, str]) -> None:
    async with HotServer(grace_s=20) as server:
        await server.topic("t", FSYNC)
        with server.disk.hold("datasync", "*/wal-*", times=1) as gate:
            wire = await server.connect()
            wire.send(post("t", ONE, kind))
            await asyncio.to_thread(gate.wait_held)
            stopped = server.stop()
            while server.server.servers[0].is_serving():
                await asyncio.sleep(0.001)
        assert (await wire.answer()).body["seqs"] == [1]
        await wire.ended()
        await stopped
        assert server.counted("topics_http_requests") == {(ROUTE, "POST", "2xx"): 1}


@BOTH
async def test_a_stop_waits_for_a_pending_write_of_a_disconnected_client(kind: dict[str, str]) -> None:
    async with HotServer(grace_s=20) as server:
        await server.topic("t", FSYNC)
        with server.disk.hold("datasync", "*/wal-*", times=1) as gate:
            wire = await server.connect()
            wire.send(post("t", ONE, kind))
            await asyncio.to_thread(gate.wait_held)
            await wire.reset()
            stopped = server.stop()
            while server.server.server_state.connections:
                await asyncio.sleep(0.001)
            assert len(server.server.server_state.tasks) == 1
            assert not stopped.done()
        await stopped
        assert await data(server.engine, "t") == [1]


@BOTH
async def test_an_incomplete_request_ends_with_shutting_down_after_the_grace(kind: dict[str, str]) -> None:
    async with HotServer(grace_s=0.2) as server:
        wire = await server.connect()
        wire.send(post("t", ONE, kind, length=500))
        while not server.server.server_state.tasks:
            await asyncio.sleep(0.001)
        stopped = server.stop()
        answer = await wire.answer()
        assert (envelope(answer), answer.body["error"]["detail"]) == (
            (503, "shutting_down", ["1"]),
            {"outcome": "unknown"},
        )
        await wire.ended()
        await stopped


async def test_requests_during_the_start_of_a_shutdown_are_answered() -> None:
    async with HotServer() as server:
        await server.topic("t", FSYNC)
        wire = await server.connect()
        half = post("t", ONE)
        wire.send(half[:-5])
        while not server.server.server_state.tasks:
            await asyncio.sleep(0.001)
        server.broker.stopping = True
        wire.send(half[-5:], post("t", ONE))
        assert [(await wire.answer()).status for _ in range(2)] == [200, 200]
        assert server.taken == 1, "the one that had begun"


@BOTH
async def test_an_engine_that_is_not_ready_answers_before_the_body_arrives(kind: dict[str, str]) -> None:
    async with HotServer() as server:
        server.engine.logs.ready = False
        assert (await server.ask(post("t", ONE, kind, length=500))).code == "not_ready"
        server.engine.logs.ready = True


@BOTH
async def test_a_body_over_the_limit_is_refused_by_its_content_length(kind: dict[str, str]) -> None:
    async with HotServer(max_body_bytes=2000) as server:
        await server.topic("t", FSYNC)
        answer = await server.ask(post("t", ONE, kind, length=2001))
        assert (answer.status, answer.code) == (413, "payload_too_large")
        body = b'{"records":[{"data":"' + b"x" * (2000 - 25) + b'"}]}'
        assert len(body) == 2000
        assert (await server.ask(post("t", body, kind))).status == 200
        assert server.taken == (0 if kind else 1)


async def test_a_slow_sync_does_not_delay_other_requests() -> None:
    disk = SimDisk()
    async with HotServer(disk=disk) as server:
        await server.topic("t", FSYNC)
        with disk.hold("datasync", "*/wal-*", times=1) as gate:
            wire = await server.connect()
            wire.send(post("t", ONE))
            await asyncio.to_thread(gate.wait_held)
            assert (await server.ask(b"GET /v0/topics/t HTTP/1.1\r\nhost: localhost\r\n\r\n")).body["head_seq"] == 0
        assert (await wire.answer()).status == 200
