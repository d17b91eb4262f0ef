"""Whatever is appended, consumed, bounded, switched and crashed: a reader finds what a dozen lines of Python predict.

The model knows which cursors consumers report as durable, and where segments ended. From that it says which records are
left, and what a reader is told of the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from storage import Durability, Engine, ReadQuery, Retention, TopicConfig
from storage.errors import ConsumerNotFound
from storage.state.consumers.values import Consistency, ConsumerConfig
from tests.support.sim_disk import Loss
from tests.unit.storage.machine import Machine, log_of, sized

SIZE = 10
OPTIONS = {"segment_max_events": 4, "checkpoint_records": 1, "checkpoint_interval_ms": 10**9}
#: Turns of the loop in which everything is done that can be done at once.
MANY_TURNS = 40

names = st.sampled_from(["a", "b"])
seqs = st.integers(0, 30)
steps = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 6)),
    st.tuples(st.just("mark_flushed")),
    st.tuples(st.just("put"), names, st.sampled_from(Consistency)),
    st.tuples(st.just("leave"), names),
    st.tuples(st.just("read"), names, st.integers(1, 9)),
    st.tuples(st.just("commit"), names, seqs),
    st.tuples(st.just("seek"), names, seqs),
    st.tuples(st.just("keep"), st.sampled_from(Retention), st.sampled_from([0, 7, 12])),
    st.tuples(st.just("restart"), st.sampled_from(["clean", "kill", "power"])),
    st.tuples(st.just("pass_time"), st.just(1500)),
)


class World:
    """An engine, and the expected content of its topic."""

    def __init__(self, machine: Machine, engine: Engine) -> None:
        self.machine = machine
        self.engine = engine
        self.consumed, self.bound = True, 0
        self.head = 0
        #: Records up to this seq are gone, and up to that seq this was announced.
        self.gone = self.announced = 0
        self.ends: set[int] = set()

    # -- the model -----------------------------------------------------------------------------------------------------

    def passed(self) -> int:
        cursors = [state.durable_seq for state in self.engine.consumers.list("t")]
        return min(cursors) if cursors and self.consumed else 0

    def reclaim(self) -> None:
        passed = self.passed()
        self.gone = max([self.gone, *(end for end in self.ends if end <= passed)])

    def make_room(self) -> None:
        if self.bound and self.consumed and self.head - self.bound > self.gone:
            self.gone = self.head - self.bound
            if self.gone > self.passed():
                self.announced = self.gone

    async def agree(self) -> None:
        await settle(self.engine)
        segments = log_of(self.engine, "t").held.manifest.segments
        self.ends |= {segment.end_seq - 1 for segment in segments if segment.sealed}
        self.reclaim()
        await self.engine.segment_worker.tick()
        result = await self.engine.read("t", ReadQuery(limit=1000))
        told = None if result.tombstone is None else (result.tombstone.gap_to, result.tombstone.reason)
        assert told == ((self.announced, "cap") if self.announced else None)
        assert [each.seq for each in result.records] == list(range(self.gone + 1, self.head + 1))
        left = self.head - self.gone
        state = self.engine.state("t")
        assert (state.count, state.bytes, state.head_seq) == (left, left * SIZE, self.head)
        segments = log_of(self.engine, "t").held.manifest.segments
        assert [segment.first_seq for segment in segments if segment.sealed and segment.end_seq - 1 <= self.gone] == []

    # -- what happens --------------------------------------------------------------------------------------------------

    async def append(self, count: int) -> None:
        for _ in range(count):
            await self.engine.append("t", [sized(SIZE)])
            self.head += 1
            self.make_room()

    async def mark_flushed(self) -> None:
        await self.engine.segment_worker.flush_all()

    async def put(self, name: str, consistency: Consistency) -> None:
        await self.engine.consumers.put("t", name, ConsumerConfig(consistency=consistency, persist_every=3))

    async def leave(self, name: str) -> None:
        await self.engine.consumers.delete("t", name)

    async def read(self, name: str, limit: int) -> None:
        """Read on from the cursor to the end."""
        before = self.engine.consumers.state("t", name).cursor_seq
        await settle(self.engine)
        read = await self.engine.consumers.read("t", name, ReadQuery(limit=limit))
        found = [each.seq for each in read.result.records]
        if found:
            first = max(before, self.gone) + 1
            assert found == list(range(first, first + len(found)))

    async def commit(self, name: str, seq: int) -> None:
        await self.engine.consumers.commit("t", name, min(seq, self.head))

    async def seek(self, name: str, seq: int) -> None:
        await self.engine.consumers.seek("t", name, seq=min(seq, self.head))

    async def keep(self, retention: Retention, bound: int) -> None:
        config = TopicConfig(durability=Durability.FSYNC, retention=retention, consumed_max_bytes=bound * SIZE)
        self.consumed, self.bound = retention is Retention.CONSUMED, bound
        self.make_room()
        await self.engine.put_topic("t", config)

    async def restart(self, how: str) -> None:
        ways: dict[str, Callable[..., Coroutine[Any, Any, Engine]]] = {
            "clean": self.machine.restart,
            "kill": self.machine.kill,
            "power": lambda **options: self.machine.cut_power(Loss.DROP, **options),
        }
        self.engine = await ways[how](**OPTIONS)
        await self.engine.segment_worker.tick()

    async def pass_time(self, ms: int) -> None:
        await self.machine.clock.advance(ms)


async def settle(engine: Engine) -> None:
    for _ in range(MANY_TURNS):
        await asyncio.sleep(0)


@settings(max_examples=150, deadline=None)
@given(st.lists(steps, min_size=4, max_size=30))
def test_readers_of_a_reclaimed_topic_match_the_model(script: list[tuple[Any, ...]]) -> None:
    async def run() -> None:
        async with Machine() as machine:
            engine = await machine.start(**OPTIONS)
            world = World(machine, engine)
            await world.keep(Retention.CONSUMED, 0)
            for name, *arguments in script:
                try:
                    await getattr(world, name)(*arguments)
                except ConsumerNotFound:
                    continue
                await world.agree()

    asyncio.run(run())
