"""Routers beside a model that knows nothing of logs: after every step each topic has the records that the model has,
once.

In the model a record is copied at once along every matching router, hop by hop. Several routers may write to one topic
in any order, so contents are compared without order (crash tests look at the order).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from storage import Durability, Engine, ReadQuery, TopicConfig
from storage.errors import RouterCycle, StorageError, TopicIncompatible
from storage.records.values import TagMatch
from storage.state.routers.router import Definition, Start
from tests.support.sim_disk import Loss
from tests.unit.storage.machine import Machine, record

FSYNC = TopicConfig(durability=Durability.FSYNC)
OPTIONS = {"wal_shards": 3, "segment_max_events": 5, "checkpoint_records": 1}
TURNS = 3000

topics = st.sampled_from("abcd")
names = st.sampled_from(["r1", "r2", "r3", "r4"])
tags = st.sampled_from([None, "x", "xy", "z"])
filters = st.sampled_from([None, None, ["tag", "Eq", "x"], ["tag", "Glob", "x*"]])
steps = st.one_of(
    st.tuples(st.just("append"), topics, tags, st.integers(1, 3)),
    st.tuples(st.just("append"), topics, tags, st.integers(1, 3)),
    st.tuples(st.just("route"), names, topics, topics, filters, st.booleans(), st.booleans(), st.booleans()),
    st.tuples(st.just("route"), names, topics, topics, filters, st.booleans(), st.booleans(), st.booleans()),
    st.tuples(st.just("unroute"), names),
    st.tuples(st.just("drop"), topics),
    st.tuples(st.just("delete"), topics, tags),
    st.tuples(st.sampled_from(["kill", "power", "restart", "snapshot", "flush"])),
)

Item = tuple[int, str | None, int]
"""Number, tag, hops."""


@dataclass
class Model:
    """Topics by name, routers by name."""

    topics: dict[str, list[Item]] = field(default_factory=dict)
    routers: dict[str, Definition] = field(default_factory=dict)
    forwarded: Counter[str] = field(default_factory=Counter)

    def append(self, topic: str, items: list[Item]) -> None:
        held = self.topics.setdefault(topic, [])
        for item in items:
            held.append(item)
            for name, router in self.routers.items():
                if router.source == topic:
                    self.copy(name, item)

    def copy(self, name: str, item: Item) -> None:
        router = self.routers[name]
        number, tag, hops = item
        if hops == 7 or not _fits(router.filter, tag):
            return
        self.forwarded[name] += 1
        self.append(router.dest, [(number, tag if router.preserve_tag else None, hops + 1)])

    def reaches(self, start: str, end: str, but: str) -> bool:
        seen, queue = {start}, [start]
        while queue:
            at = queue.pop()
            for name, router in self.routers.items():
                if name != but and router.source == at and router.dest not in seen:
                    seen.add(router.dest)
                    queue.append(router.dest)
        return end in seen

    def refusal(self, name: str, wanted: Definition) -> type[StorageError] | None:
        old = self.routers.get(name)
        if wanted.source == wanted.dest:
            return StorageError
        if old is not None and (old.source, old.dest) != (wanted.source, wanted.dest):
            return TopicIncompatible
        if not wanted.allow_cycle and self.reaches(wanted.dest, wanted.source, name):
            return RouterCycle
        return None

    def route(self, name: str, wanted: Definition) -> None:
        new = name not in self.routers
        for topic in (wanted.source, wanted.dest):
            self.topics.setdefault(topic, [])
        self.routers[name] = wanted
        if new and wanted.start is Start.EARLIEST:
            self.forwarded[name] = 0
            for item in list(self.topics[wanted.source]):
                self.copy(name, item)

    def unroute(self, name: str) -> None:
        self.routers.pop(name, None)
        self.forwarded.pop(name, None)

    def drop(self, topic: str) -> list[str]:
        self.topics.pop(topic, None)
        gone = sorted(name for name, router in self.routers.items() if topic in (router.source, router.dest))
        for name in gone:
            self.unroute(name)
        return gone


def _fits(predicate: list[str] | None, tag: str | None) -> bool:
    if predicate is None:
        return True
    _, kind, text = predicate
    return tag is not None and (tag == text if kind == "Eq" else tag.startswith(text[:-1]))


class World:
    def __init__(self, machine: Machine, engine: Engine) -> None:
        self.machine = machine
        self.engine = engine
        self.model = Model()
        self.number = 0

    async def do(self, step: tuple[Any, ...]) -> None:
        await getattr(self, f"_{step[0]}")(*step[1:])
        await self._settle()
        await self._compare()

    async def _append(self, topic: str, tag: str | None, count: int) -> None:
        numbers = range(self.number, self.number + count)
        self.number += count
        self.model.append(topic, [(number, tag, 0) for number in numbers])
        await self.engine.append(topic, [record(number, tag=tag) for number in numbers], config=FSYNC)

    async def _route(
        self, name: str, source: str, dest: str, predicate: list[str] | None, earliest: bool, tags: bool, cycle: bool
    ) -> None:
        start = Start.EARLIEST if earliest else Start.HEAD
        wanted = Definition(
            source=source, dest=dest, filter=predicate, start=start, preserve_tag=tags, allow_cycle=cycle
        )
        expected = self.model.refusal(name, wanted)
        if expected is not None:
            before = set(self.engine.catalog.topics)
            with pytest.raises(expected):
                await self.engine.routers.put(name, wanted)
            assert set(self.engine.catalog.topics) == before
            return
        for topic in (source, dest):  # topics made by a router have the class disk, and may lose what is asked for here
            if topic not in self.model.topics:
                await self.engine.put_topic(topic, FSYNC)
        await self.engine.routers.put(name, wanted)
        self.model.route(name, wanted)

    async def _unroute(self, name: str) -> None:
        assert await self.engine.routers.delete(name) is (name in self.model.routers)
        self.model.unroute(name)

    async def _drop(self, topic: str) -> None:
        there = topic in self.model.topics
        assert await self.engine.remove_topic(topic) == (self.model.drop(topic) if there else None)

    async def _delete(self, topic: str, tag: str | None) -> None:
        if topic in self.model.topics and tag is not None:
            await self.engine.delete_records(topic, None, TagMatch(tag.encode()))
            self.model.topics[topic] = [item for item in self.model.topics[topic] if item[1] != tag]

    async def _kill(self) -> None:
        self.engine = await self.machine.kill(**OPTIONS)

    async def _power(self) -> None:
        self.engine = await self.machine.cut_power(Loss.DROP, **OPTIONS)

    async def _restart(self) -> None:
        self.engine = await self.machine.restart(**OPTIONS)

    async def _snapshot(self) -> None:
        await self.engine.snapshotter.take()

    async def _flush(self) -> None:
        await self.engine.segment_worker.flush_all()

    async def _settle(self) -> None:
        for _ in range(TURNS):
            if not any(state.lag for state in self.engine.routers.page()):
                return
            await asyncio.sleep(0)
        raise AssertionError(f"it does not come to rest: {self.engine.routers.page()}")

    async def _compare(self) -> None:
        assert {state.topic for state in self.engine.topics()} == set(self.model.topics)
        for topic, items in self.model.topics.items():
            found: Counter[tuple[int, str | None]] = Counter()
            at, head = 0, self.engine.state(topic).head_seq
            while at < head:
                result = await self.engine.read(topic, ReadQuery(from_seq=at, limit=1000))
                assert result.tombstone is None
                found.update((int(each.body[8:-1]), each.tag.decode() or None) for each in result.records)
                at = result.next_from_seq
            assert found == Counter((number, tag) for number, tag, _ in items), topic
        routers = {state.name: state for state in self.engine.routers.page()}
        assert {name: state.definition for name, state in routers.items()} == self.model.routers
        for name, state in routers.items():
            assert state.forwarded_total == self.model.forwarded[name], name


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(steps, max_size=25))
@example(
    [  # the new filter copied what the old one skipped
        ("route", "r1", "a", "b", ["tag", "Eq", "x"], False, False, False),
        ("append", "a", None, 1),
        ("route", "r1", "a", "b", None, False, False, False),
        ("kill",),
    ]
)
def test_router_destinations_match_the_model(script: list[tuple[Any, ...]]) -> None:
    async def run() -> None:
        async with Machine() as machine:
            world = World(machine, await machine.start(**OPTIONS))
            for step in script:
                await world.do(step)

    asyncio.run(run())
