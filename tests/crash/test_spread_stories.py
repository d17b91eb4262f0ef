"""Partitions of one topic in two cells: writes that are passed on, writes during a deletion, and what a restored cell
lacks."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import msgspec
import pytest

from storage import Durability, Engine, NewRecord, ReadQuery, TopicConfig
from storage.errors import NotMine, NotReady, TopicNotEmpty, TopicNotFound, Unavailable
from storage.records import BinaryRecord, PlainRecords
from storage.state import TO_TELL
from storage.topics import partitioner
from tests.support.cell_pair import CellPair
from tests.support.crash_run import run
from tests.support.sim_disk import SimDisk

CONFIG = TopicConfig(durability=Durability.FSYNC, partitions=4)


class Lossless(Random):
    """Chance by which the line between the cells loses nothing."""

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        return 1


async def two_cells() -> tuple[CellPair, Engine, Engine]:
    """Two cells, and a topic of cell 0 with partitions 0 and 2 there, 1 and 3 in cell 1."""
    pair = CellPair(Lossless(), {"t": 0})
    await pair.start()
    home, other = [process.engine for process in pair.processes if process is not None]
    home.placements.is_on = True
    await home.put_topic("t", CONFIG)
    return pair, home, other


async def data_of(engine: Engine, partition: str) -> list[bytes]:
    return [record.data for record in (await engine.read(partition, ReadQuery())).records]


def test_the_cell_of_the_topic_passes_on_records_of_any_form() -> None:
    async def story() -> None:
        _, home, other = await two_cells()
        forms: list[Any] = [
            PlainRecords([msgspec.Raw(b"1"), msgspec.Raw(b"2")]),
            [NewRecord(data=msgspec.Raw(b"3"), meta=msgspec.Raw(b'{"m":1}'), node="n")],
            [BinaryRecord(b"\x00\xff")],
        ]
        for records in forms:
            done = await partitioner.append(home, "t", records, partition=1, node="me")
            assert (done.topic, done.partition) == ("t", 1)
        page = (await other.read("t/1", ReadQuery())).records
        assert [record.data for record in page] == [b"1", b"2", b"3", b"\x00\xff"]
        assert [record.node for record in page] == [b"me", b"me", b"n", b"me"]
        assert [state.count for state in (await home.states_of(["t"]))[0].states.values()] == [0, 4, 0, 0]
        with pytest.raises(NotMine):
            await home.append("t/1", {"n": 1}, create=False)
        with pytest.raises(TopicNotFound):
            await other.append("t/2", {"n": 1}, create=False)

    run(story())


def test_a_key_is_found_in_the_partition_of_before_the_topic_grew() -> None:
    async def story() -> None:
        _, home, _ = await two_cells()
        record = [NewRecord(data=msgspec.Raw(b"1"))]
        keys = [f"key-{number}" for number in range(12)]
        first = [await partitioner.append(home, "t", record, idempotency_key=key) for key in keys]
        await home.put_topic("t", msgspec.structs.replace(CONFIG, partitions=7))
        again = [await partitioner.append(home, "t", record, idempotency_key=key) for key in keys]
        assert [(each.partition, each.first_seq) for each in again] == [
            (each.partition, each.first_seq) for each in first
        ]
        assert all(each.deduped for each in again)

    run(story())


def test_a_deletion_if_empty_and_a_write_in_another_cell_do_not_miss_each_other() -> None:
    async def story() -> None:
        _, home, other = await two_cells()
        for turns in range(40):
            deleting = asyncio.ensure_future(home.delete_topic("t", if_empty=True))
            for _ in range(turns):
                await asyncio.sleep(0)
            writing = asyncio.ensure_future(other.append("t/1", {"n": turns}, create=False))
            deleted, written = await asyncio.gather(deleting, writing, return_exceptions=True)
            if isinstance(written, BaseException):
                assert isinstance(written, TopicNotFound | NotReady), written
                assert deleted is True
                await home.put_topic("t", CONFIG)
            elif deleted is True:
                raise AssertionError(f"an acked record is gone, {turns} turns into the deletion")
            else:
                assert isinstance(deleted, TopicNotEmpty)
                assert len(await data_of(other, "t/1")) == 1
                await home.delete_topic("t")
                await home.put_topic("t", CONFIG)

    run(story())


def test_what_a_restored_cell_lacks_is_made_again() -> None:
    async def story() -> None:
        pair, home, other = await two_cells()
        await other.append("t/1", {"n": 1}, create=False)
        await home.append("t", {"n": 2}, create=False)
        for cell in range(2):
            pair.cut_power(cell)
            await pair.processes[cell].stopped.wait()  # type: ignore[union-attr]  # pyright: ignore
        pair.disks[1] = SimDisk()  # as of before the topic was made
        pair.processes[1] = None
        other = (await pair.up(1)).engine
        home = (await pair.up(0)).engine
        await pair.pass_time(5000)
        assert await data_of(home, "t") == [b'{"n":2}']
        assert await data_of(other, "t/1") == []
        assert home.states.items(TO_TELL) == []

    run(story())


def test_a_topic_is_not_made_while_the_other_cell_is_away_and_leaves_nothing_behind() -> None:
    async def story() -> None:
        pair, home, _ = await two_cells()
        pair.cut_power(1)
        with pytest.raises(Unavailable) as caught:
            await home.put_topic("u", CONFIG)
        assert caught.value.outcome == "none"
        assert "u" not in home.catalog.topics
        other = (await pair.up(1)).engine
        await pair.pass_time(5000)
        assert home.states.items(TO_TELL) == []
        assert {topic.title for topic in other.catalog.by_id.values()} == {"t"}

    run(story())


def test_the_states_of_partitions_come_from_the_cells_that_are_there() -> None:
    async def story() -> None:
        pair, home, other = await two_cells()
        await other.append("t/1", {"n": 1}, create=False)
        pair.cut_power(1)
        [found] = await home.states_of(["t"])
        assert ([*found.states], found.offline) == ([0, 2], {1: 1, 3: 1})
        await pair.up(1)
        [found] = await home.states_of(["t"])
        assert ([*found.states], found.offline) == ([0, 1, 2, 3], {})
        assert found.states[1].count == 1

    run(story())


def test_a_change_that_is_refused_names_the_cell_that_is_away_and_did_nothing() -> None:
    async def story() -> None:
        pair, home, _ = await two_cells()
        pair.cut_power(1)
        for change in (
            home.put_topic("t", msgspec.structs.replace(CONFIG, cap_records=5)),
            home.put_topic("t", msgspec.structs.replace(CONFIG, partitions=6)),
            home.delete_topic("t"),
        ):
            with pytest.raises(NotReady) as caught:
                await change
            assert caught.value.detail == {"cell": 1, "outcome": "none"}
        other = (await pair.up(1)).engine
        await pair.pass_time(5000)
        assert home.states.items(TO_TELL) == []
        assert home.state("t").config == CONFIG
        assert {topic.name for topic in other.catalog.by_id.values()} == {"t/1", "t/3"}
        assert await home.delete_topic("t")

    run(story())
