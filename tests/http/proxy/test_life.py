"""Consumer instances survive a restart of the broker, and end with their clients: restarts, idle instances, limits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from broker.settings import Settings, SettingsError, load
from broker.wiring import Broker
from storage import Engine
from storage.platform.clock import SystemClock
from tests.http.conftest import SMALL, client_of
from tests.http.proxy.calls import V2, instance, produce, refused, send, subscribed, values

GONE = (404, 40403, "Consumer instance not found.")


@asynccontextmanager
async def running(path: Path, *, clean: bool = True, **settings: object) -> AsyncIterator[httpx.AsyncClient]:
    """A broker over a directory, and a client."""
    async with Engine.open(path / "data", SMALL) as engine:
        broker = Broker(engine, Settings.model_validate({"data_dir": path / "data", **settings}))
        broker.proxy.start()
        async with client_of(broker) as client:
            yield client
        if clean:
            await broker.proxy.stop()


async def test_instances_survive_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path) as client:
        await produce(client, "t", *range(4))
        path = await subscribed(client, "t", **{"auto.offset.reset": "latest"})
        await send(client, f"{path}/positions/beginning", {"partitions": [{"topic": "t", "partition": 0}]})
        other = await instance(client, name="other")
        await client.delete(other)
        assert await values(client, path, count=2) == [0, 1]
    async with running(tmp_path) as client:
        assert (await client.get(f"{path}/subscription")).json() == {"topics": ["t"]}
        assert await values(client, path) == [2, 3]
        refused(await client.get(f"{other}/subscription"), *GONE)
        refused(await client.post("/consumers/g", json={"name": "i"}, headers=V2), 409, 40902)


async def test_uncommitted_reads_are_repeated_after_a_crash(tmp_path: Path) -> None:
    async with running(tmp_path, clean=False) as client:
        await produce(client, "t", *range(4))
        path = await subscribed(client, "t")
        assert await values(client, path, count=2) == [0, 1]
        await send(client, f"{path}/offsets")
        assert await values(client, path) == [2, 3]
    async with running(tmp_path) as client:
        assert await values(client, path) == [2, 3]


async def test_a_subscription_without_a_commit_keeps_its_position_over_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path, clean=False) as client:
        await produce(client, "t", "before")
        path = await subscribed(client, "t", **{"auto.offset.reset": "latest"})
        await produce(client, "t", "after")
    async with running(tmp_path) as client:
        assert await values(client, path) == ["after"]


async def test_assignments_survive_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path, clean=False) as client:
        await produce(client, "t", 1)
        path = await instance(client)
        await send(client, f"{path}/assignments", {"partitions": [{"topic": "t", "partition": 0}]})
    async with running(tmp_path) as client:
        assert await values(client, path) == [1]
        refused(await client.post(f"{path}/subscription", json={"topics": ["t"]}, headers=V2), 409, 40903)


class ShiftedClock(SystemClock):
    """The machine's clock plus the time that a test adds."""

    def __init__(self) -> None:
        self._ahead_s = 0

    def monotonic_ns(self) -> int:
        return super().monotonic_ns() + self._ahead_s * 1_000_000_000

    def advance(self, seconds: int) -> None:
        self._ahead_s += seconds


@pytest.fixture
def clock() -> ShiftedClock:
    return ShiftedClock()


@pytest.fixture
async def engine(tmp_path: Path, clock: ShiftedClock) -> AsyncIterator[Engine]:
    async with Engine.open(tmp_path / "data", SMALL, clock=clock) as engine:
        yield engine


async def test_idle_instances_expire(
    broker: Broker, client: httpx.AsyncClient, engine: Engine, clock: ShiftedClock
) -> None:
    await produce(client, "t", 1)
    path = await subscribed(client, "t")
    clock.advance(200)
    assert await values(client, path) == [1]
    clock.advance(299)
    await broker.proxy.expire()
    assert len(broker.proxy) == 1
    clock.advance(2)
    refused(await client.get(f"{path}/records"), *GONE)
    await broker.proxy.expire()
    assert (len(broker.proxy), broker.proxy.expired_total) == (0, 1)
    assert engine.states.items("proxy_instance") == []


async def test_the_name_of_an_expired_instance_is_free(client: httpx.AsyncClient, clock: ShiftedClock) -> None:
    await instance(client)
    clock.advance(301)
    await instance(client)


async def test_partitions_of_an_expired_member_go_to_another_member(
    broker: Broker, client: httpx.AsyncClient, clock: ShiftedClock
) -> None:
    await produce(client, "t", 1)
    first = await subscribed(client, "t", name="a", **{"auto.commit.enable": "true"})
    assert await values(client, first) == [1]
    clock.advance(200)
    second = await subscribed(client, "t", name="b")
    assert await values(client, second) == []
    clock.advance(150)
    await broker.proxy.expire()
    # The first instance has not committed them.
    assert await values(client, second) == [1]


async def test_an_instance_with_a_waiting_read_does_not_expire(
    broker: Broker, client: httpx.AsyncClient, clock: ShiftedClock
) -> None:
    await client.put("/v0/topics/t", json={})
    path = await subscribed(client, "t")
    waiting = asyncio.create_task(values(client, path, wait_ms=10_000))
    await asyncio.sleep(0.05)
    clock.advance(1000)
    await broker.proxy.expire()
    await produce(client, "t", "late")
    assert await asyncio.wait_for(waiting, 5) == ["late"]
    assert len(broker.proxy) == 1


async def test_there_is_a_limit(engine: Engine, settings: Settings) -> None:
    broker = Broker(engine, settings.model_copy(update={"max_kafka_rest_instances": 2}))
    async with client_of(broker) as client:
        await instance(client, name="a")
        await instance(client, name="b", group="h")
        answer = await client.post("/consumers/g", json={"name": "c"}, headers=V2)
        refused(answer, 429, 429)
        assert answer.headers["retry-after"]
        assert broker.proxy.refused_total == 1
        await client.delete("/consumers/g/instances/a")
        await instance(client, name="c")


async def test_a_configured_prefix_applies_to_all_paths(engine: Engine, settings: Settings) -> None:
    broker = Broker(engine, settings.model_copy(update={"kafka_rest_prefix": "/kafka"}))
    async with client_of(broker) as client:
        assert (await client.get("/topics")).status_code == 404
        assert (await client.get("/kafka/topics")).json() == []
        made = (await client.post("/kafka/consumers/g", json={"name": "i"}, headers=V2)).json()
        assert made["base_uri"] == "http://localhost/kafka/consumers/g/instances/i"
        assert (await client.get("/kafka/consumers/g/instances/i/subscription")).json() == {"topics": []}


@pytest.mark.parametrize("prefix", ["/v0", "/v0/kafka", "kafka", "/kafka/", "/a b"])
def test_an_invalid_prefix_is_refused(monkeypatch: pytest.MonkeyPatch, prefix: str) -> None:
    monkeypatch.setenv("TOPICS_KAFKA_REST_PREFIX", prefix)
    with pytest.raises(SettingsError, match="TOPICS_KAFKA_REST_PREFIX"):
        load()
