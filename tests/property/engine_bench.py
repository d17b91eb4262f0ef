"""An engine on a simulated machine beside its model: start, end and comparison."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from typing import Any, TypeVar

from hypothesis.stateful import RuleBasedStateMachine

from storage import Durability, Engine, Options, ReadQuery
from storage.records.values import LossCause
from tests.property.engine_world import World, Worlds
from tests.property.topic_model import Seen, Told, TopicModel
from tests.support.fake_clock import FakeClock
from tests.support.sim_disk import SimCrash, SimDisk
from tests.unit.storage.machine import DATA

T = TypeVar("T")
WINDOW_MS = 2_000


class EngineBench(RuleBasedStateMachine):
    """Each process has a loop of its own, so that everything it began can end with it. Subclasses add rules."""

    options: Options
    engine: Engine

    def __init__(self) -> None:
        super().__init__()
        self.disk = SimDisk()
        self.clock = FakeClock()
        self.worlds = Worlds()
        self.beside: list[asyncio.Task[None]] = []
        self.last_epoch = 0

    def teardown(self) -> None:
        self.run(self.engine.close())
        self.end_process()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def start(self) -> None:
        self.loop = new_loop()
        self.engine = Engine(DATA, self.options, fs=self.disk, clock=self.clock, threaded=False)
        self.run(self.engine.start())

    def end_process(self) -> None:
        """Everything that the process began ends with it. Its disk is stopped, or nothing is going on."""
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        self.run(asyncio.wait(tasks) if tasks else asyncio.sleep(0))
        self.loop.close()
        self.beside.clear()

    @property
    def now(self) -> int:
        return self.clock.wall_ms()

    @property
    def topics(self) -> World:
        return self.worlds.now

    def shard(self, name: str) -> int:
        return self.engine.catalog.topics[name].log.shard

    def made(self, name: str, topic: TopicModel) -> None:
        """A topic was created. A former topic of this name does not matter."""
        state = self.engine.state(name)
        assert state.epoch > self.last_epoch
        self.last_epoch = state.epoch
        self.worlds.add(name, topic, self.shard(name))

    def changed(self, name: str, *, synced: bool | None = None) -> None:
        """The topic was changed. The change is durable if the class of the topic, or the kind of the frame, says so."""
        if synced or (synced is None and self.topics[name].config.durability is Durability.FSYNC):
            self.worlds.hardened(self.shard(name))

    def work(self, what: str) -> Coroutine[Any, Any, None]:
        engine = self.engine
        works = {
            "absorb": engine.segment_worker.flush_all,
            "upkeep": engine.segment_worker.tick,
            "snapshot": engine.snapshotter.take,
            "expiry": engine.expiry.tick,
        }
        return works[what]()

    def settle(self) -> None:
        """Expire everything that is due."""
        for name, topic in self.topics.items():
            self.run(self.engine.read(name, ReadQuery()))
            floor = self.ttl_floor(name)
            assert topic.ttl_floor_fits(self.now, floor)
            written = not topic.in_memory_only
            if topic.expire(self.now, floor) and written:
                self.changed(name, synced=True)

    def ttl_floor(self, name: str) -> int:
        return self.engine.catalog.topics[name].log.marks.floors.get(LossCause.TTL, 1)

    # -- comparing ---------------------------------------------------------------------------------------------------

    def after_restart(self, *, exact: bool, heads_stay: bool) -> None:
        """`exact`: nothing that was written is lost."""
        assert {each.topic for each in self.engine.topics()} == set(self.topics)
        heads = {name: self.engine.state(name).head_seq for name in self.topics}
        for name, topic in self.topics.items():
            certain = heads_stay or topic.config.durability is Durability.FSYNC or (exact and not topic.ephemeral)
            assert heads[name] == topic.head if certain else heads[name] >= topic.head
            assert self.shard(name) == self.worlds.shard_of[name]
        if exact:
            self.worlds.hardened()
        found = {name: self.look(name) for name in self.topics}
        for shard in {self.shard(name) for name in self.topics}:
            assert self.worlds.settle(shard, lambda world: self.fitting(world, heads, found)), (
                found,
                self.worlds.of_shard(shard),
            )
        self.worlds.hardened()

    def fitting(self, world: World, heads: dict[str, int], found: dict[str, Seen]) -> World | None:
        """The topics after the restart, given what they were before it."""
        for name, topic in world.items():
            topic.restart(heads[name], self.now, WINDOW_MS, self.engine.catalog.topics[name].log.marks.floors)
            floor = self.ttl_floor(name)
            if not topic.ttl_floor_fits(self.now, floor):
                return None
            topic.expire(self.now, floor)
            if topic.seen() != found[name]:
                return None
        return world

    def look(self, name: str) -> Seen:
        """Read the whole topic."""
        found: list[tuple[int, int, Any, str, str]] = []
        told: list[Told] = []
        cursor = 0
        while True:
            result = self.run(self.engine.read(name, ReadQuery(from_seq=cursor, limit=100)))
            if result.tombstone is not None:
                assert result.tombstone.missed_estimate == result.tombstone.gap_to - cursor
                told.append(Told(result.tombstone.gap_from, result.tombstone.gap_to, result.tombstone.reason))
            found += [
                (each.seq, each.ts, json.loads(each.body)["data"], each.tag.decode(), each.node.decode())
                for each in result.records
            ]
            assert result.corrupt_seqs is None
            if result.next_from_seq == result.head_seq:
                break
            assert result.next_from_seq > cursor
            cursor = result.next_from_seq
        state = self.engine.state(name)
        assert state.next_seq == state.head_seq + 1
        assert state.evict_floor <= state.earliest_seq
        return Seen(state.head_seq, state.count, state.bytes, state.earliest_seq, state.evict_floor, found, told)


def new_loop() -> asyncio.AbstractEventLoop:
    """A loop that ignores the errors that callbacks of a stopped machine raise."""
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(_only_what_is_no_crash)
    return loop


def _only_what_is_no_crash(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if not isinstance(context.get("exception"), SimCrash):
        loop.default_exception_handler(context)
