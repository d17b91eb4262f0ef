"""Records appended to the source arrive at the destination: in order, once, unchanged."""

from __future__ import annotations

from typing import Any

import pytest

from storage import Durability, TopicConfig, TopicType
from storage.routers.forwarder import Forwarder
from tests.support.sim_disk import Loss
from tests.unit.storage.machine import Machine, log_of, record
from tests.unit.storage.routers.routed import FSYNC, add, bodies, datas, route, routed, stored, turns


async def test_copies_keep_data_meta_tag_and_node(machine: Machine) -> None:
    engine = await routed(machine)
    await engine.append("a", [record({"n": 1.10}, meta={"m": [1]}, tag="t", node="n"), record("plain")])
    source, copies = await stored(engine, "a"), await stored(engine)
    assert [(each.body, each.tag, each.node) for each in copies] == [
        (each.body, each.tag, each.node) for each in source
    ]
    state = engine.routers.state("r")
    assert (state.cursor_seq, state.lag, state.forwarded_total, state.blocked) == (2, 0, 2, None)
    assert engine.state("b").bytes == engine.state("a").bytes


async def test_copying_needs_no_timer_after_a_commit_at_the_source(machine: Machine) -> None:
    engine = await routed(machine)
    await route(engine, "r2", "b", "c")
    await route(engine, "r3", "c", "d")
    await add(engine, 1, 2, 3)
    assert await datas(engine, "d") == ["1", "2", "3"]


async def test_copies_omit_node_and_tag_if_configured(machine: Machine) -> None:
    engine = await routed(machine, preserve_node=False, preserve_tag=False)
    await add(engine, 1, tag="t", node="n")
    (copy,) = await stored(engine)
    assert (copy.tag, copy.node) == (b"", b"")


async def test_a_filter_copies_only_matching_tags(machine: Machine) -> None:
    engine = await routed(machine, filter=["tag", "Glob", "x*"])
    await engine.append("a", [record(n, tag=tag) for n, tag in enumerate(["x", "y", "xy", "z"])] + [record(9)])
    assert await datas(engine) == ["0", "2"]
    assert engine.routers.state("r").cursor_seq == 5
    assert engine.routers.state("r").forwarded_total == 2


async def test_several_sources_and_direct_writes_share_a_destination(machine: Machine) -> None:
    engine = await routed(machine)
    await route(engine, "r2", "c", "b")
    for n in range(5):
        await add(engine, f"a{n}")
        await add(engine, f"c{n}", to="c")
        await add(engine, f"b{n}", to="b")
    found = await datas(engine)
    for name in "abc":
        assert [each for each in found if each.startswith(f'"{name}')] == [f'"{name}{n}"' for n in range(5)]


@pytest.mark.parametrize(("start", "expected"), [("head", ["3"]), ("earliest", ["1", "2", "3"])])
async def test_a_new_router_begins_at_the_requested_start(machine: Machine, start: str, expected: list[str]) -> None:
    engine = await machine.start()
    await add(engine, 1, 2)
    await route(engine, start=start)
    await add(engine, 3)
    assert await datas(engine) == expected


async def test_earliest_begins_at_the_first_existing_record_without_a_loss(machine: Machine) -> None:
    engine = await machine.start()
    await engine.put_topic("a", TopicConfig(cap_records=2))
    await add(engine, 1, 2, 3, 4)
    await route(engine, start="earliest")
    assert await datas(engine) == ["3", "4"]
    assert engine.state("b").evict_floor == 1


async def test_deleted_records_are_not_copied(machine: Machine) -> None:
    engine = await machine.start()
    await add(engine, 1, 2, 3)
    await engine.delete_records("a", before_seq=3)
    await route(engine, start="earliest")
    assert await datas(engine) == ["3"]
    assert engine.state("b").evict_floor == 1


@pytest.mark.parametrize("queue", [True, False])
async def test_a_delayed_record_is_copied_at_commit(machine: Machine, queue: bool) -> None:
    engine = await machine.start()
    await engine.put_topic("a", TopicConfig(type=TopicType.QUEUE))
    await engine.put_topic("b", TopicConfig(type=TopicType.QUEUE if queue else TopicType.LOG))
    await route(engine)
    at = engine.now_ms() + 5000
    await engine.append("a", [record(1, meta={"k": 1}, deliver_at=at), record(2)])
    assert await bodies(engine) == [
        b'{"data":1,"meta":{"k":1},"deliver_at":%d}' % at if queue else b'{"data":1,"meta":{"k":1}}',
        b'{"data":2}',
    ]
    assert engine.state("b").bytes == len('1{"k":1}2')
    if queue:
        first = await engine.queues.claim("b", "n", max=5)
        assert [job.record.seq for job in first.jobs] == [2]
        await machine.clock.advance(5001)
        assert [job.record.seq for job in (await engine.queues.claim("b", "n", max=5)).jobs] == [1]


async def test_a_cycle_ends_after_seven_hops(machine: Machine) -> None:
    engine = await routed(machine)
    await route(engine, "back", "b", "a", allow_cycle=True)
    await add(engine, 1)
    assert (len(await datas(engine, "a")), len(await datas(engine, "b"))) == (4, 4)
    assert engine.routers.state("back").hop_limited + engine.routers.state("r").hop_limited == 1


async def test_hops_are_counted_through_segments(machine: Machine) -> None:
    engine = await machine.start()
    for n in range(9):
        await engine.put_topic(f"t{n}", FSYNC)
    await route(engine, "r0", "t0", "t1")
    await add(engine, 1, to="t0")
    for n in range(1, 8):
        await turns()
        await engine.segment_worker.flush_all()
        assert log_of(engine, f"t{n}").held.flushed == 1
        await route(engine, f"r{n}", f"t{n}", f"t{n + 1}", start="earliest")
    assert len(await datas(engine, "t7")) == 1
    assert await datas(engine, "t8") == []


@pytest.mark.parametrize("durability", [Durability.DISK, Durability.FSYNC, Durability.MEMORY, Durability.EPHEMERAL])
async def test_a_router_resumes_after_a_clean_stop(machine: Machine, durability: Durability) -> None:
    engine = await routed(machine, TopicConfig(durability=durability), filter=["tag", "Eq", "x"])
    await engine.append("a", [record(1, tag="x"), record(2), record(3)])
    await turns()
    engine = await machine.restart()
    assert engine.routers.state("r").cursor_seq == engine.state("a").head_seq
    await engine.append("a", [record(4, tag="x")])
    expected = ["4"] if durability is Durability.EPHEMERAL else ["1", "4"]
    assert await datas(engine) == expected


@pytest.mark.parametrize("durability", [Durability.DISK, Durability.FSYNC])
@pytest.mark.parametrize("snapshot", [True, False])
async def test_no_record_is_copied_twice_after_a_kill(machine: Machine, durability: Durability, snapshot: bool) -> None:
    engine = await routed(machine, TopicConfig(durability=durability))
    await add(engine, 1, 2)
    await turns()
    if snapshot:
        await engine.snapshotter.take()
    await add(engine, 3)
    await turns()
    engine = await machine.kill()
    assert engine.routers.state("r").forwarded_total == 3
    await add(engine, 4)
    assert await datas(engine) == ["1", "2", "3", "4"]
    assert engine.routers.state("r").forwarded_total == 4


async def test_pending_records_are_copied_after_a_power_cut(machine: Machine) -> None:
    engine = await routed(machine)
    await add(engine, 1, 2, 3)
    engine = await machine.cut_power(Loss.DROP)
    assert await datas(engine) == ["1", "2", "3"]


async def test_an_ephemeral_destination_continues_at_the_head_after_a_crash(machine: Machine) -> None:
    engine = await machine.start()
    await engine.put_topic("a", FSYNC)
    await engine.put_topic("b", TopicConfig(durability=Durability.EPHEMERAL))
    await route(engine)
    await add(engine, 1, 2)
    await turns()
    await engine.snapshotter.take()
    await add(engine, 3)
    engine = await machine.kill()
    assert engine.routers.state("r").cursor_seq == 3
    await add(engine, 4)
    assert await datas(engine) == ["4"]


async def test_a_router_keeps_its_cursor_when_its_destination_becomes_durable(machine: Machine) -> None:
    engine = await machine.start()
    await engine.put_topic("a", FSYNC)
    await engine.put_topic("b", TopicConfig(durability=Durability.EPHEMERAL))
    await route(engine)
    await add(engine, 1, 2)
    await turns()
    await engine.put_topic("b", FSYNC)
    engine = await machine.cut_power(Loss.DROP)
    assert await datas(engine) == ["1", "2"]
    await add(engine, 3)
    assert await datas(engine) == ["1", "2", "3"]


async def test_reading_for_a_router_is_no_read_of_the_source(machine: Machine) -> None:
    engine = await routed(machine)
    await add(engine, 1)
    await turns()
    assert engine.state("a").last_read_ts is None


async def test_more_than_a_stretch_goes_over_whole(machine: Machine) -> None:
    engine = await routed(machine)
    for n in range(3):
        await engine.append("a", [record(n * 1000 + k, tag="t" if k % 7 == 0 else None) for k in range(1000)])
    await turns()
    found = await datas(engine)
    assert found == [str(n) for n in range(3000)]


@pytest.mark.parametrize(
    ("step_ms", "copied", "copy_ns", "others", "queue", "records"),
    [
        (0, 0, 1000, 0, 200_000, 1000),
        (5, 0, 1000, 0, 200_000, 5000),
        (5, 2000, 1000, 0, 200_000, 3000),
        (5, 9000, 1000, 0, 200_000, 1000),
        (30, 2000, 5000, 0, 200_000, 4000),
        (50, 0, 1000, 0, 200_000, 32_768),
        (90, 0, 5000, 0, 200_000, 10_000),
        (50, 0, 1000, 19, 200_000, 2500),
        (50, 0, 1000, 0, 16, 1000),
    ],
)
async def test_as_much_is_copied_as_takes_the_time_of_other_work(
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    step_ms: int,
    copied: int,
    copy_ns: int,
    others: int,
    queue: int,
    records: int,
) -> None:
    engine = await machine.start(wal_queue_frames=queue)
    for name in "ab":
        await engine.put_topic(name, FSYNC)
    await route(engine)
    engine.routers.forwarding.running = others + 1
    forwarder = Forwarder(engine.routers.forwarding, engine.catalog.routes.by_name["r"])
    monkeypatch.setattr(machine.clock, "monotonic_ns", lambda: step_ms * 1_000_000)
    forwarder._copy_ns = copy_ns
    await forwarder._rest(0, copied)
    monkeypatch.undo()
    assert forwarder._batch_limit == records


async def test_the_time_of_a_step_begins_with_its_read(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = await routed(machine)
    await engine.append("a", [record(n) for n in range(10)])
    await turns()
    forwarder = Forwarder(engine.routers.forwarding, engine.catalog.routes.by_name["r"])
    now, read = [0], engine.routers.forwarding.windows.read

    async def slow(*arguments: Any) -> Any:
        now[0] += 3_000_000
        return await read(*arguments)

    monkeypatch.setattr(engine.routers.forwarding.windows, "read", slow)
    monkeypatch.setattr(machine.clock, "monotonic_ns", lambda: now[0])
    engine.routers.forwarding.running = 1
    await forwarder._step()
    monkeypatch.undo()
    assert forwarder._batch_limit == 3000


async def test_copies_of_copies_are_counted_as_costing_more(machine: Machine) -> None:
    engine = await routed(machine)
    await engine.put_topic("c", FSYNC)
    await route(engine, "s", "b", "c")
    await engine.append("a", [record(n) for n in range(10)])
    await turns()
    assert await datas(engine, "c") == [str(n) for n in range(10)]
    costs = [forwarder._copy_ns for forwarder in engine.routers._forwarders.values()]
    assert costs[1] > costs[0]


@pytest.mark.parametrize(
    ("queue", "records", "size"), [(256 << 20, 1000, 1 << 20), (256 << 20, 32_768, 4 << 20), (1 << 20, 16_384, 1 << 20)]
)
async def test_more_records_may_have_more_bytes(machine: Machine, queue: int, records: int, size: int) -> None:
    engine = await machine.start(wal_queue_bytes=queue)
    for name in "ab":
        await engine.put_topic(name, FSYNC)
    await route(engine)
    forwarder = Forwarder(engine.routers.forwarding, engine.catalog.routes.by_name["r"])
    assert forwarder._max_bytes(records) == size


async def test_idle_routers_do_not_count_as_running(machine: Machine) -> None:
    engine = await routed(machine)
    await add(engine, 1, 2)
    assert await datas(engine) == ["1", "2"]
    assert engine.routers.forwarding.running == 0
