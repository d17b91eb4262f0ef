"""Consumers beside a model that knows nothing of logs. Over crashes they return the records that the promises allow.

Each write to the topic is synced, so its records are those of the model. Consumers of both kinds read, commit, seek and
fall silent, and the machine stops in every way. After each step the cursors are where they may be.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from storage import Engine, ReadQuery
from storage.state.consumers.values import Consistency, ConsumerConfig
from tests.support.sim_disk import Loss
from tests.unit.storage.consumers.consumed import FSYNC, add, turns
from tests.unit.storage.machine import Machine

OPTIONS = {"segment_max_events": 5, "checkpoint_records": 1}

names = st.sampled_from("cd")
steps = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 6)),
    st.tuples(st.just("read"), names, st.integers(1, 5)),
    st.tuples(st.just("read"), names, st.integers(1, 5)),
    st.tuples(st.just("read"), names, st.integers(1, 5)),
    st.tuples(st.just("peek"), names),
    st.tuples(st.just("commit"), names, st.integers(0, 20)),
    st.tuples(st.just("seek"), names, st.integers(0, 20)),
    st.tuples(st.just("put"), names, st.booleans(), st.integers(1, 6)),
    st.tuples(st.just("delete"), names),
    st.tuples(st.just("remove"), st.integers(1, 20)),
    st.tuples(st.sampled_from(["settle", "silence", "snapshot", "absorb", "kill", "power", "restart", "reshard"])),
)


@dataclass
class Reader:
    """What the model knows of a consumer. `unsure`: seqs returned that may come again after a crash, oldest first."""

    strict: bool
    every: int
    cursor: int = 0
    unsure: list[int] = field(default_factory=list[int])


@dataclass
class Model:
    live: set[int] = field(default_factory=set[int])
    head: int = 0
    readers: dict[str, Reader] = field(default_factory=dict[str, Reader])
    shards: int = 1

    def behind(self, cursor: int) -> list[int]:
        return sorted(seq for seq in self.live if seq > cursor)


async def apply(machine: Machine, engine: Engine, model: Model, step: tuple[Any, ...]) -> Engine:
    kind = step[0]
    reader = model.readers.get(step[1]) if kind in ("read", "peek", "commit", "seek", "delete") else None
    if kind == "append":
        await add(engine, step[1])
        model.live |= set(range(model.head + 1, model.head + step[1] + 1))
        model.head += step[1]
    elif kind == "remove":
        await engine.delete_records("a", step[1])
        model.live = {seq for seq in model.live if seq >= step[1]}
    elif kind == "put":
        await put(engine, model, *step[1:])
    elif kind in ("read", "peek", "commit", "seek", "delete"):
        if reader is not None:
            await use(engine, model, reader, step)
    else:
        engine = await happen(machine, engine, model, kind)
    return engine


async def put(engine: Engine, model: Model, name: str, strict: bool, every: int) -> None:
    consistency = Consistency.STRICTLY_AT_ONCE if strict else Consistency.AT_LEAST_ONCE
    state, created = await engine.consumers.put("a", name, ConsumerConfig(consistency=consistency, persist_every=every))
    assert created is (name not in model.readers)
    reader = model.readers.setdefault(name, Reader(strict, every, state.cursor_seq))
    # Reads before the change follow the config of that time.
    reader.every = max(every, len(reader.unsure))
    reader.strict = strict


async def use(engine: Engine, model: Model, reader: Reader, step: tuple[Any, ...]) -> None:
    kind, name = step[:2]
    if kind == "delete":
        assert await engine.consumers.delete("a", name)
        del model.readers[name]
    elif kind == "read":
        answer = await engine.consumers.read("a", name, ReadQuery(limit=step[2]))
        found = [each.seq for each in answer.result.records]
        assert found == model.behind(reader.cursor)[: len(found)]
        assert found or not model.behind(reader.cursor)
        reader.cursor = answer.cursor_seq
        reader.unsure = [] if reader.strict and found else reader.unsure + found
        assert answer.unread == len(model.behind(reader.cursor))
    elif kind == "peek":
        answer = await engine.consumers.read("a", name, ReadQuery(limit=3), checkpoint=False)
        assert [each.seq for each in answer.result.records] == model.behind(reader.cursor)[:3]
    elif kind == "commit":
        seq = min(step[2], model.head)
        await engine.consumers.commit("a", name, seq)
        reader.cursor = max(reader.cursor, seq)
        reader.unsure = [each for each in reader.unsure if each > seq]
    else:
        reader.cursor, reader.unsure = min(step[2], model.head), []
        await engine.consumers.seek("a", name, seq=reader.cursor)


async def happen(machine: Machine, engine: Engine, model: Model, kind: str) -> Engine:
    if kind == "settle":
        await turns()
        return engine
    if kind == "silence":
        await machine.clock.advance(1500)
        for reader in model.readers.values():
            reader.unsure = []
        return engine
    if kind == "snapshot":
        await engine.snapshotter.take()
        return engine
    if kind == "absorb":
        await engine.segment_worker.flush_all()
        return engine
    options: dict[str, Any] = {**OPTIONS, "wal_shards": model.shards}
    if kind in ("restart", "reshard"):
        if kind == "reshard":
            model.shards = options["wal_shards"] = model.shards % 3 + 1
        engine = await machine.restart(**options)
        for reader in model.readers.values():
            reader.unsure = []
    elif kind == "kill":
        engine = await machine.kill(**options)
    else:
        engine = await machine.cut_power(Loss.TORN, **options)
    for name, reader in model.readers.items():
        cursor = engine.consumers.state("a", name).cursor_seq
        again = [seq for seq in reader.unsure if seq > cursor]
        assert cursor <= reader.cursor, "it was skipped"
        assert len(again) <= reader.every
        # A record that is not unsure does not come again. Between two records there are only skipped ones.
        assert all(seq in reader.unsure for seq in model.behind(cursor) if seq <= reader.cursor)
        reader.cursor, reader.unsure = cursor, []
    return engine


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(1, 6), st.lists(steps, min_size=10, max_size=40))
async def test_consumers_match_the_model_over_crashes(every: int, history: list[tuple[Any, ...]]) -> None:
    async with Machine() as machine:
        engine = await machine.start(**OPTIONS)
        await engine.put_topic("a", FSYNC)
        model = Model()
        await add(engine, 8)
        model.live, model.head = set(range(1, 9)), 8
        await put(engine, model, "c", False, every)
        await put(engine, model, "d", True, 1)
        for step in history:
            engine = await apply(machine, engine, model, step)
            states = {state.consumer: state for state in engine.consumers.list("a")}
            assert states.keys() == model.readers.keys()
            for name, reader in model.readers.items():
                assert states[name].cursor_seq == reader.cursor
                assert states[name].unread == len(model.behind(reader.cursor))
                assert len([seq for seq in reader.unsure if seq > states[name].durable_seq]) <= reader.every
