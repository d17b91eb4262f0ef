"""Writes under pressure: which requests are refused, how, and which still work (docs/reference/api.md#records)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.pressure.governor import SUSTAINED, Step
from broker.pressure.watch import COALESCE_S, Pressure
from storage import Durability, TopicConfig, TopicType
from tests.http.hot_server import ASGI, HotServer, post, records
from tests.unit.storage.machine import data, options

WAYS: list[dict[str, str]] = [{}, ASGI]
BOTH = pytest.mark.parametrize("kind", WAYS, ids=["hot", "asgi"])
ONE = records(1)


def lag(pressure: Pressure, lag_ms: float) -> Step:
    """As if the loop had been late for a while, some seconds ago."""
    for index in range(SUSTAINED + 60):
        pressure.loop_lag_ms = lag_ms
        pressure.sample(index * 100.0)
    return pressure.governor.step


@BOTH
async def test_a_refused_write_gets_a_retry_after(kind: dict[str, str]) -> None:
    async with HotServer() as server:
        await server.topic("t", TopicConfig())
        await server.ask(post("t", ONE, kind))
        assert lag(server.broker.pressure, 600) is Step.REFUSE
        refused = await server.ask(post("t", ONE, kind))
        assert (refused.status, refused.code, refused.header("retry-after")) == (429, "throttled", ["2"])
        assert refused.body["error"]["detail"] == {"retry_after_ms": 1200}
        assert server.broker.pressure.refused_total == 1
        assert lag(server.broker.pressure, 0) is Step.NORMAL
        assert (await server.ask(post("t", ONE, kind))).status == 200
        assert await data(server.engine, "t") == [1, 1]


@BOTH
async def test_a_write_with_disable_backpressure_is_accepted(kind: dict[str, str]) -> None:
    async with HotServer() as server:
        await server.topic("t", TopicConfig())
        assert lag(server.broker.pressure, 600) is Step.REFUSE
        body = b'{"records":[{"data":1}],"disable_backpressure":%b}'
        assert (await server.ask(post("t", body % b"true", kind))).status == 200
        assert (await server.ask(post("t", body % b"false", kind))).status == 429
        assert await data(server.engine, "t") == [1]


async def test_claims_acks_reads_and_deletes_go_on_under_pressure() -> None:
    async with HotServer() as server:
        await server.topic("q", TopicConfig(type=TopicType.QUEUE))
        await server.ask(post("q", records(1, 2)))
        assert lag(server.broker.pressure, 600) is Step.REFUSE
        claimed = await server.ask(post("q/claim", b'{"node":"w","max":2}'))
        assert [job["$seq"] for job in claimed.body["claimed"]] == [1, 2]
        assert (await server.ask(post("q/ack", b'{"node":"w","seqs":[1]}'))).body["acked"] == 1
        assert (await server.ask(post("q/nack", b'{"node":"w","seqs":[2]}'))).body["nacked"] == 1
        assert (await server.ask(post("q/diff", b"{}"))).status == 200
        assert (await server.ask(post("q/delete", b'{"before_seq":3}'))).status == 200


async def test_a_stalled_log_causes_pressure() -> None:
    async with HotServer(pressure_commit_ms=1) as server:
        await server.topic("t", TopicConfig(durability=Durability.FSYNC))
        pressure = server.broker.pressure
        with server.disk.hold("pwritev", "*/wal-*", times=1) as gate:
            first = await server.connect()
            first.send(post("t", ONE))
            await asyncio.to_thread(gate.wait_held)
            await asyncio.sleep(0.005)
            assert lag(pressure, 0) is Step.REFUSE
            assert (await server.ask(post("t", ONE))).status == 429
        assert (await first.answer()).status == 200
        assert lag(pressure, 0) is Step.NORMAL
        assert (await server.ask(post("t", ONE))).status == 200
        assert await data(server.engine, "t") == [1, 1]


async def test_a_filling_log_queue_refuses_writes_before_any_write_waits() -> None:
    async with HotServer(limits=options(wal_queue_frames=100)) as server:
        await server.topic("t", TopicConfig(durability=Durability.FSYNC))
        with server.disk.hold("pwritev", "*/wal-*", times=1) as gate:
            wires = [await server.connect() for _ in range(2)]
            wires[0].send(post("t", records(*range(20))))
            await asyncio.to_thread(gate.wait_held)
            assert lag(server.broker.pressure, 0) is Step.COALESCE
            wires[1].send(post("t", records(*range(57))))
            while server.engine.shards[0].queued_frames < 79:
                await asyncio.sleep(0.001)
            assert lag(server.broker.pressure, 0) is Step.DEFER
            wires.append(await server.connect())
            wires[2].send(post("t", records(1)))
            while server.engine.shards[0].queued_frames < 80:
                await asyncio.sleep(0.001)
            assert lag(server.broker.pressure, 0) is Step.REFUSE
            assert (await server.ask(post("t", ONE))).status == 429
        assert [(await wire.answer()).status for wire in wires] == [200] * 3


async def test_each_pressure_step_applies_and_reverts_its_measures() -> None:
    async with HotServer() as server:
        pressure, engine, turns = server.broker.pressure, server.engine, server.broker.live.scheduler

        def state() -> tuple[Any, ...]:
            wanted, _ = engine.shards[0]._window.wait_for(0)
            return pressure.coalesce_s, wanted, pressure.share, engine.load_shedding.deferring

        engine.shards[0]._window.committed(8)
        calm = state()
        arrivals = calm[1]
        assert lag(pressure, 125) is Step.COALESCE
        assert state() == (COALESCE_S[1], arrivals, 1, False)
        assert lag(pressure, 250) is Step.WIDEN
        assert state() == (COALESCE_S[2], 2 * arrivals, 1, False)
        assert lag(pressure, 400) is Step.DEFER
        assert state() == (COALESCE_S[3], 4 * arrivals, 4, True)
        assert turns._share() == 4
        assert lag(pressure, 0) is Step.NORMAL
        assert state() == calm
        lag(pressure, 1000)
        pressure.stop()
        assert state() == calm
        assert not pressure.refusing


async def test_a_blocked_event_loop_causes_pressure() -> None:
    async with HotServer() as server:
        pressure = server.broker.pressure
        pressure.start()
        blocked = asyncio.get_running_loop()
        until = blocked.time() + 10
        while pressure.governor.step is Step.NORMAL and blocked.time() < until:
            held = blocked.time() + 0.3
            while blocked.time() < held:
                pass
            await asyncio.sleep(0)
        assert pressure.governor.step > Step.NORMAL
        pressure.stop()
