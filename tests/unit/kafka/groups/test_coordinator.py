"""The groups of a broker: state is durable before it is answered, restarts and stops, and expiry."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from broker.kafka.errors import ErrorCode
from broker.kafka.groups.coordinator import Coordinator
from broker.kafka.groups.machine import Group
from broker.kafka.groups.offsets import Offsets
from broker.kafka.groups.record import KIND, GroupRecord
from broker.kafka.groups.states import State
from broker.kafka.groups.values import JoinAnswer, Limits
from storage import Engine, Options
from storage.errors import StorageFull
from tests.support.fake_clock import FakeClock
from tests.unit.kafka.groups.bench import asking

SMALL = Options(wal_shards=1, wal_file_bytes=4 << 20, wal_reserve_bytes=1 << 16)
PATIENCE_S = 10


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    async with Engine.open(tmp_path / "data", SMALL) as engine:
        await engine.put_topic("a")
        yield engine


def coordinator(engine: Engine, **changes: Any) -> Coordinator:
    limits = Limits(min_session_ms=1, rebalance_delay_ms=changes.pop("delay_ms", 10))
    return Coordinator(engine, Offsets(engine), limits=limits, **changes)


async def join(groups: Coordinator, member_id: str = "", **changes: Any) -> JoinAnswer:
    changes.setdefault("fresh_id", groups.fresh_id("me", None))
    async with asyncio.timeout(PATIENCE_S):
        return await groups.join("g", asking(member_id, **changes))


async def stable(groups: Coordinator, **changes: Any) -> JoinAnswer:
    answer = await join(groups, **changes)
    synced = await groups.sync("g", answer.member_id, answer.generation, None, {answer.member_id: b"all"})
    assert synced.assignment == b"all"
    return answer


def record(engine: Engine) -> GroupRecord:
    value = engine.states.get(KIND, "g")
    assert value is not None
    return GroupRecord.decode(value)


async def until(condition: Any) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.005)


# -- durability -------------------------------------------------------------------------------------------------------


async def test_a_generation_is_durable_before_members_see_the_generation(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups, held, put = coordinator(engine), asyncio.Event(), engine.states.put
    asked: list[str] = []

    async def slow(kind: str, key: str, value: bytes) -> None:
        asked.append(key)
        await held.wait()
        await put(kind, key, value)

    monkeypatch.setattr(engine.states, "put", slow)
    joining = asyncio.create_task(join(groups))
    await until(lambda: asked)
    await asyncio.sleep(0.05)
    assert not joining.done()
    held.set()
    assert (await joining).generation == 1
    assert (record(engine).generation, record(engine).protocol_type, record(engine).empty_ms) == (1, "consumer", 0)
    await groups.close()


async def test_a_generation_that_cannot_be_stored_is_not_announced(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = coordinator(engine)
    with monkeypatch.context() as full:

        async def refuse(*_: object) -> None:
            raise StorageFull()

        full.setattr(engine.states, "put", refuse)
        answer = await join(groups)
    assert answer.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert groups.describe("g").state is State.DEAD
    assert (await join(groups)).generation == 1
    await groups.close()


async def test_after_a_restart_members_are_strangers_and_generations_go_on(tmp_path: Path) -> None:
    async with Engine.open(tmp_path / "data", SMALL) as engine:
        groups = coordinator(engine)
        before = await stable(groups)
        await groups.close()
    async with Engine.open(tmp_path / "data", SMALL) as engine:
        groups = coordinator(engine)
        assert groups.describe("g").state is State.EMPTY
        assert groups.heartbeat("g", before.member_id, before.generation, None) is ErrorCode.UNKNOWN_MEMBER_ID
        assert (await join(groups, before.member_id)).error is ErrorCode.UNKNOWN_MEMBER_ID
        assert (await join(groups)).generation > before.generation
        await groups.close()


# -- time -------------------------------------------------------------------------------------------------------------


async def test_a_session_times_out_without_a_request(engine: Engine) -> None:
    groups = coordinator(engine)
    await join(groups, session_ms=50)
    await until(lambda: groups.describe("g").state is State.EMPTY)
    await until(lambda: record(engine).generation == 2)  # which is written then
    assert record(engine).empty_ms > 0
    await groups.close()


async def test_a_member_that_disconnects_while_joining_is_removed_after_its_session(engine: Engine) -> None:
    groups = coordinator(engine, delay_ms=30)
    gone = asyncio.create_task(join(groups, session_ms=3_000))
    await asyncio.sleep(0)
    gone.cancel()
    other = await join(groups)
    assert len(groups.describe("g").members) == 2
    await until(lambda: [each.member_id for each in groups.describe("g").members] == [other.member_id])
    await groups.close()


async def test_a_defect_in_one_group_does_not_stop_the_time_of_others(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups, tick = coordinator(engine), Group.tick

    def fail(group: Group, now_ms: int) -> None:
        if group.group_id == "bad":
            raise RuntimeError("planted")
        tick(group, now_ms)

    monkeypatch.setattr(Group, "tick", fail)
    bad, good = await asyncio.gather(groups.join("bad", asking()), join(groups))
    assert bad.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert good.generation == 1
    await groups.close()


async def test_event_of_a_forgotten_group_object_has_no_effect(engine: Engine) -> None:
    groups = coordinator(engine)
    old = groups._host("g")  # as a waiting call holds it
    assert groups.heartbeat("g", "who", 1, None) is ErrorCode.UNKNOWN_MEMBER_ID
    await stable(groups)
    groups._after_event(old)
    assert groups.describe("g").state is State.STABLE
    await groups.close()


# -- stopping ---------------------------------------------------------------------------------------------------------


async def test_a_stop_sends_all_waiting_members_to_another_coordinator(engine: Engine) -> None:
    groups = coordinator(engine)
    first = await join(groups)
    syncing = asyncio.create_task(groups.sync("g", first.member_id, 1, None, {}))
    assert (await syncing).error is ErrorCode.NONE
    joining = asyncio.create_task(join(groups))
    await asyncio.sleep(0)
    await groups.close()
    assert (await joining).error is ErrorCode.NOT_COORDINATOR
    assert groups.heartbeat("g", first.member_id, 1, None) is ErrorCode.NOT_COORDINATOR
    assert (await join(groups)).error is ErrorCode.NOT_COORDINATOR
    assert await groups.delete("g") is ErrorCode.NOT_COORDINATOR


async def test_before_recovery_clients_get_a_retriable_error(tmp_path: Path) -> None:
    groups = coordinator(Engine(tmp_path / "data", SMALL))
    assert groups.refusal("g") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert (await join(groups)).error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


# -- limits -----------------------------------------------------------------------------------------------------------


async def test_no_more_groups_than_the_limit(engine: Engine) -> None:
    groups = coordinator(engine, max_groups=1)
    first = await stable(groups)
    assert (await groups.join("other", asking())).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert await groups.admit_commit("other", "", -1, None) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert groups.leave("g", first.member_id, None) is ErrorCode.NONE
    assert (await groups.join("other", asking())).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert await groups.delete("g") is ErrorCode.NONE
    assert await groups.admit_commit("other", "", -1, None) is ErrorCode.NONE
    await groups.close()


@pytest.mark.parametrize("group_id", ["", "ü" * 85])
async def test_a_group_id_too_long_for_a_consumer_name_is_refused(engine: Engine, group_id: str) -> None:
    groups = coordinator(engine)
    assert (await groups.join(group_id, asking())).error is ErrorCode.INVALID_GROUP_ID
    assert await groups.admit_commit(group_id, "", -1, None) is ErrorCode.INVALID_GROUP_ID
    await groups.close()


async def test_groups_without_members_are_not_in_memory(engine: Engine) -> None:
    groups = coordinator(engine)
    answer = await stable(groups)
    assert len(groups) == 1
    groups.leave("g", answer.member_id, None)
    await until(lambda: len(groups) == 0)
    assert groups.heartbeat("other", "who", 1, None) is ErrorCode.UNKNOWN_MEMBER_ID
    assert len(groups) == 0
    await groups.close()


# -- offsets, deletion, expiry ----------------------------------------------------------------------------------------


async def test_offsets_from_outside_make_a_group(engine: Engine) -> None:
    groups, offsets = coordinator(engine), Offsets(engine)
    await engine.append("a", b"1")
    assert groups.describe("g").state is State.DEAD
    assert await groups.admit_commit("g", "", -1, None) is ErrorCode.NONE
    await offsets.commit("g", "a", 0, 1, "meta")
    assert [(each.group_id, each.state) for each in groups.all_groups()] == [("g", State.EMPTY)]
    assert record(engine).generation == 0
    await stable(groups)
    assert await groups.admit_commit("g", "", -1, None) is ErrorCode.UNKNOWN_MEMBER_ID
    await groups.close()


async def test_a_consumer_made_by_the_http_api_is_a_group(engine: Engine) -> None:
    groups = coordinator(engine)
    await engine.append("a", b"1")
    await engine.consumers.put("a", "group:x%2Fy", start=1)
    await engine.consumers.put("a", "group:%zz")
    assert [(each.group_id, each.state) for each in groups.all_groups()] == [("x/y", State.EMPTY)]
    assert [(each.topic, each.offset) for each in Offsets(engine).all("x/y")] == [("a", 1)]
    assert await groups.delete("x/y") is ErrorCode.NONE
    assert [each.consumer for each in engine.consumers.list("a")] == ["group:%zz"]


async def test_deletion_removes_only_the_offsets_of_the_group(engine: Engine) -> None:
    groups, offsets = coordinator(engine), Offsets(engine)
    for group_id in ("g", "h"):
        await groups.admit_commit(group_id, "", -1, None)
        await offsets.commit(group_id, "a", 0, 0, "")
    assert await groups.delete("g") is ErrorCode.NONE
    assert await groups.delete("g") is ErrorCode.GROUP_ID_NOT_FOUND
    assert offsets.all("g") == []
    assert offsets.groups() == {"h"}
    assert [each.group_id for each in groups.all_groups()] == ["h"]


async def test_join_during_a_deletion_is_refused(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    groups, delete = coordinator(engine), engine.states.delete
    seen: list[ErrorCode] = []

    async def meanwhile(kind: str, key: str) -> None:
        seen.append((await join(groups)).error)
        seen.append(await groups.admit_commit("g", "", -1, None))
        await delete(kind, key)

    await groups.admit_commit("g", "", -1, None)
    monkeypatch.setattr(engine.states, "delete", meanwhile)
    assert await groups.delete("g") is ErrorCode.NONE
    assert seen == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    assert (await join(groups)).generation == 1
    await groups.close()


async def test_an_empty_group_expires_with_its_offsets(tmp_path: Path) -> None:
    clock = FakeClock()
    async with Engine.open(tmp_path / "data", SMALL, clock=clock) as engine:
        await engine.put_topic("a")
        groups, offsets = coordinator(engine, retention_ms=10_000), Offsets(engine)
        await groups.admit_commit("g", "", -1, None)
        await offsets.commit("g", "a", 0, 0, "")
        await clock.advance(9_000)
        await groups.sweep()
        assert offsets.groups() == {"g"}
        await groups.admit_commit("g", "", -1, None)
        await clock.advance(9_000)
        await groups.sweep()
        assert offsets.groups() == {"g"}, "it has committed since"
        await until(lambda: len(groups) == 0)  # which is written before the clock moves on
        await clock.advance(11_000)
        await groups.sweep()
        assert offsets.groups() == set()
        assert groups.describe("g").state is State.DEAD
        await groups.close()


async def test_a_group_whose_members_never_returned_expires(tmp_path: Path) -> None:
    clock = FakeClock()
    async with Engine.open(tmp_path / "data", SMALL, clock=clock) as engine:
        value = GroupRecord(generation=7, protocol_type="consumer", empty_ms=0)
        await engine.states.put(KIND, "g", value.encode())
        groups = coordinator(engine, retention_ms=10_000)
        await groups.sweep()
        await until(lambda: record(engine).empty_ms > 0 and len(groups) == 0)
        assert record(engine).generation == 7
        await clock.advance(11_000)
        await groups.sweep()
        assert groups.describe("g").state is State.DEAD
        await groups.close()


async def test_a_group_with_members_does_not_expire(engine: Engine) -> None:
    groups = coordinator(engine, retention_ms=1)
    await stable(groups)
    await asyncio.sleep(0.01)
    await groups.sweep()
    assert groups.describe("g").state is State.STABLE
    await groups.close()
