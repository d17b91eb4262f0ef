"""Instances of the REST Proxy in a set of cells: they are in the home cell of their group and read in all cells."""

from __future__ import annotations

import asyncio

import pytest

from broker.kafka.groups import State
from broker.proxy import Limits, ProxyRead, lags
from broker.proxy.polling import Streaming
from storage import Unavailable
from tests.kafka.asking import a_batch, produce
from tests.kafka.cells.several import CELLS, Several, name_of
from tests.kafka.cells.topics import NAMES, create

GROUP = name_of(0, "readers")
CONFIG = {"name": "i", "auto.offset.reset": "earliest", "auto.commit.enable": "true"}


async def _add(cells: Several, *values: bytes) -> None:
    for cell, name in enumerate(NAMES):
        for number in range(2):
            leader = await cells.wire((cell + number) % CELLS)
            assert (await produce(leader, (name, number, a_batch(*values))))[0][0] == 0


async def _read(cells: Several, count: int, name: str = "i", timeout_ms: int = 3000) -> ProxyRead:
    """Read until there are this many records."""
    proxy = cells.servers[0].broker.proxy
    found = ProxyRead([], [], [], {}, {})
    with proxy.using(GROUP, name) as member:
        while len(found.records) < count:
            more = await proxy.read(member, Limits(timeout_ms=timeout_ms), Streaming())
            assert not more.empty, f"only {len(found.records)} of {count}"
            found.records.extend(more.records)
    return found


def _committed(cells: Several) -> dict[str, list[int]]:
    """The offsets of the group in the cells of the topics."""
    found: dict[str, list[int]] = {}
    for cell, name in enumerate(NAMES):
        offsets = cells.servers[cell].broker.kafka_offsets
        found[name] = [each.offset for each in offsets.all(GROUP)]
    return found


async def test_an_instance_reads_and_commits_in_all_cells(cells: Several) -> None:
    await create(cells, NAMES)
    await _add(cells, b"a", b"b")
    proxy = cells.servers[0].broker.proxy
    await proxy.create(GROUP, CONFIG)
    with proxy.using(GROUP, "i") as member:
        await proxy.subscribe(member, NAMES, None, ())
        assert sorted(proxy.assigned(member)) == sorted((name, number) for name in NAMES for number in range(2))
    found = await _read(cells, 4 * CELLS)
    assert sorted((each.topic, each.partition, each.offset, each.value) for each in found.records) == sorted(
        (name, number, offset, b"ab"[offset : offset + 1])
        for name in NAMES
        for number in range(2)
        for offset in range(2)
    )
    async with asyncio.timeout(10):  # for Kafka clients the instances are one member of the group
        while cells.servers[0].broker.kafka_groups.describe(GROUP).state is not State.STABLE:
            await asyncio.sleep(0.05)
    with proxy.using(GROUP, "i") as member:
        await proxy.delete(member)
    assert _committed(cells) == {name: [2, 2] for name in NAMES}
    await _add(cells, b"c")
    await proxy.create(GROUP, CONFIG)
    with proxy.using(GROUP, "i") as member:
        await proxy.subscribe(member, [], "orders.*", ())
    again = await _read(cells, 2 * CELLS)
    assert {each.value for each in again.records} == {b"c"}


async def test_a_read_waits_for_records_of_any_cell(cells: Several) -> None:
    await create(cells, NAMES)
    proxy = cells.servers[0].broker.proxy
    await proxy.create(GROUP, CONFIG)
    with proxy.using(GROUP, "i") as member:
        await proxy.assign(member, [(name, 0) for name in NAMES])
        for cell in (2, 1, 0):
            reading = asyncio.create_task(_read(cells, 1, timeout_ms=20_000))
            await asyncio.sleep(0.1)
            assert not reading.done()
            await produce(await cells.wire(cell), (NAMES[cell], 0, a_batch(b"x")))
            async with asyncio.timeout(10):
                assert [each.topic for each in (await reading).records] == [NAMES[cell]]
        ends = proxy.sources
        await ends.look(GROUP, NAMES)
        assert [ends.bounds((name, 0)) for name in NAMES] == [(0, 1)] * CELLS
        await proxy.commit(member, {(name, 0): (1, "note") for name in NAMES})
    assert _committed(cells) == {name: [1] for name in NAMES}


async def test_a_topic_of_a_cell_that_is_away_is_no_missing_topic(cells: Several) -> None:
    await create(cells, NAMES)
    proxy = cells.servers[0].broker.proxy
    await proxy.create(GROUP, CONFIG)
    with proxy.using(GROUP, "i") as member:
        await proxy.subscribe(member, NAMES, None, ())
        await _add(cells, b"a")
        await cells.stop(2)
        with pytest.raises(Unavailable):
            await proxy.read(member, Limits(timeout_ms=0), Streaming())
        await cells.start(2)
    assert len((await _read(cells, 2 * CELLS)).records) == 2 * CELLS


async def test_the_home_cell_tells_the_group_and_its_lags_in_all_cells(cells: Several) -> None:
    await create(cells, NAMES)
    await _add(cells, b"a", b"b", b"c")
    proxy = cells.servers[0].broker.proxy
    await proxy.create(GROUP, {"name": "i"})
    with proxy.using(GROUP, "i") as member:
        await proxy.assign(member, [(name, 0) for name in NAMES])
        await proxy.commit(member, {(name, 0): (1, None) for name in NAMES})
    brokers = [cells.servers[cell].broker for cell in range(CELLS)]
    assert [await lags.groups(broker, ()) for broker in brokers] == [[GROUP], [], []]
    found = await lags.lags(brokers[0], GROUP, ())
    assert sorted((each.topic, each.offset, each.end) for each in found) == sorted((name, 1, 3) for name in NAMES)
    assert [each.topic for each in await lags.lags(brokers[0], GROUP, (NAMES[1],))] == [NAMES[1]]
