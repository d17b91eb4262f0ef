"""The engine against a plain list, one topic, in any order: writes, reads, deletes, caps, ttl, classes, restarts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from storage import Discard, Durability, ReadQuery, TagMatch, TopicConfig
from storage.errors import SeqConflict, StorageError
from storage.records import LossCause
from tests.property.topic_model import Item, TopicModel, item
from tests.support.sim_disk import Loss
from tests.unit.storage.machine import Machine, record

T = TypeVar("T")
NAME = "t"
WINDOW_MS = 5_000
SMALL = {
    "expiry_interval_ms": 10**9,
    "tail_cache_bytes": 400,
    "wal_file_bytes": 4096,
    "wal_reserve_bytes": 2048,
    "sync_point_bytes": 300,
}
TAGS = st.sampled_from([None, None, "a", "ab", "b"])
NODES = st.sampled_from([None, None, "n1", "n2"])
RECORDS = st.lists(st.tuples(st.integers(0, 2000), TAGS, NODES), min_size=1, max_size=6)
MATCHES = st.sampled_from([TagMatch(b"a"), TagMatch(b"a", True), TagMatch(b"b"), TagMatch(b"", True), TagMatch(b"zz")])
CONFIGS = st.builds(
    TopicConfig,
    durability=st.sampled_from([Durability.FSYNC, Durability.DISK, Durability.EPHEMERAL]),
    cap_records=st.sampled_from([0, 0, 3, 8]),
    cap_bytes=st.sampled_from([0, 0, 12, 40]),
    discard=st.sampled_from([Discard.OLD, Discard.OLD, Discard.REJECT]),
    ttl_ms=st.sampled_from([0, 0, 50, 400]),
    idempotency_window_ms=st.just(WINDOW_MS),
)
KEYS = st.none() | st.integers(0, 4).map("key-{}".format)


class EngineModel(RuleBasedStateMachine):
    """Expiry is settled by a read in front of every step, so that the model need not know when it is swept."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.machine = Machine()
        self.model = TopicModel()
        self.keys: dict[str, tuple[int, int, int]] = {}

    def teardown(self) -> None:
        self.run(self.machine.close())
        self.loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    @initialize(config=CONFIGS)
    def begin(self, config: TopicConfig) -> None:
        self.engine = self.run(self.machine.start(**SMALL))
        self.run(self.engine.put_topic(NAME, config))
        self.model.config = config

    # -- writing -----------------------------------------------------------------------------------------------------

    @rule(batch=RECORDS, key=KEYS, wrong_seq=st.booleans(), expect=st.booleans())
    def append(
        self, batch: list[tuple[int, str | None, str | None]], key: str | None, wrong_seq: bool, expect: bool
    ) -> None:
        expected = self.model.head + wrong_seq if expect else None
        first = self.model.head + 1
        items = [item(first + n, self.now, *each) for n, each in enumerate(batch)]
        written = self.run(self.attempt(items, key, expected))
        known = self.keys.get(key or "")
        if known is not None and self.now - known[2] <= WINDOW_MS:
            assert (written.first_seq, written.count, written.deduped) == (known[0], known[1], True)
            return
        if expect and wrong_seq:
            assert isinstance(written, SeqConflict)
            assert written.detail == {"expected_seq": expected, "head_seq": self.model.head}
            return
        code = self.model.refuses([each.size for each in items])
        if code:
            assert isinstance(written, StorageError)
            assert written.code == code
            return
        assert (written.first_seq, written.last_seq, written.count) == (first, items[-1].seq, len(items))
        assert not written.deduped
        self.model.append(items)
        if key is not None:
            self.keys[key] = (first, len(items), self.now)

    async def attempt(self, items: list[Item], key: str | None, expected: int | None) -> Any:
        batch = [record(each.data, tag=each.tag, node=each.node) for each in items]
        try:
            return await self.engine.append(NAME, batch, idempotency_key=key, expected_seq=expected)
        except StorageError as error:
            return error

    @rule(at=st.floats(0, 1.2))
    def delete_below(self, at: float) -> None:
        before_seq = 1 + round(at * (self.model.head + 1))
        live = len(self.model.items)
        self.model.raise_floor(LossCause.DELETE, min(before_seq, self.model.head + 1))
        done = self.run(self.engine.delete_records(NAME, before_seq=before_seq))
        assert (done.deleted, done.count) == (live - len(self.model.items), len(self.model.items))

    @rule(match=MATCHES, at=st.none() | st.floats(0, 1.2))
    def delete_matching(self, match: TagMatch, at: float | None) -> None:
        before_seq = None if at is None else 1 + round(at * (self.model.head + 1))
        kept = [
            each
            for each in self.model.items
            if not match.matches((each.tag or "").encode()) or (before_seq is not None and each.seq >= before_seq)
        ]
        done = self.run(self.engine.delete_records(NAME, before_seq=before_seq, match=match))
        assert done.deleted == len(self.model.items) - len(kept)
        self.model.items = kept

    @rule(config=CONFIGS)
    def change_config(self, config: TopicConfig) -> None:
        self.run(self.engine.put_topic(NAME, config))
        self.model.set_config(config, self.now)

    # -- time and restarts -------------------------------------------------------------------------------------------

    @rule(ms=st.integers(1, 300))
    def time_passes(self, ms: int) -> None:
        self.run(self.machine.clock.advance(ms))
        self.settle()

    @rule()
    def snapshot(self) -> None:
        self.run(self.engine.snapshotter.take())

    @rule()
    def clean_restart(self) -> None:
        self.engine = self.run(self.machine.restart(**SMALL))
        self.after_restart(self.model.head)

    @rule()
    def process_killed(self) -> None:
        self.engine = self.run(self.machine.kill(**SMALL))
        self.after_restart(None if self.model.ephemeral else self.model.head)

    @precondition(lambda self: self.model.config.durability is Durability.FSYNC)
    @rule(seed=st.integers(0, 5))
    def power_cut(self, seed: int) -> None:
        self.engine = self.run(self.machine.cut_power(Loss.TORN, seed, **SMALL))
        self.after_restart(self.model.head)

    def after_restart(self, head: int | None) -> None:
        new_head = self.engine.state(NAME).head_seq
        assert new_head == head if head is not None else new_head >= self.model.head
        kept = self.model.durable_head if self.model.ephemeral else new_head
        self.keys = {key: known for key, known in self.keys.items() if known[0] <= kept}
        self.model.lose_memory(new_head)
        # Those that were live get a whole window from now; those that were not may be live again.
        live = {key: known for key, known in self.keys.items() if self.now - known[2] <= WINDOW_MS}
        self.keys = {key: (first, count, self.now) for key, (first, count, _) in live.items()}
        self.settle()

    def settle(self) -> None:
        self.run(self.engine.read(NAME, ReadQuery()))
        self.model.expire(self.now)

    # -- reading -----------------------------------------------------------------------------------------------------

    @invariant()
    def the_figures_agree(self) -> None:
        state = self.engine.state(NAME)
        model = self.model
        assert (state.head_seq, state.next_seq) == (model.head, model.head + 1)
        assert (state.count, state.bytes) == (len(model.items), model.bytes)
        assert (state.earliest_seq, state.evict_floor) == (model.earliest, model.evict_floor)
        assert state.evict_floor <= state.earliest_seq
        usage = self.engine.catalog.usage
        assert usage.bytes == model.bytes
        in_memory = [each.size for each in model.items if model.ephemeral and each.seq > model.durable_head]
        assert usage.ephemeral_bytes == sum(in_memory)
        log = self.engine.catalog.topics[NAME].log
        assert (log.assigned_head, log.assigned_count, log.assigned_bytes) == (model.head, state.count, state.bytes)

    @invariant()
    def a_walk_finds_every_record_and_is_told_of_every_loss(self) -> None:
        found: list[tuple[int, int, Any, str, str]] = []
        told: set[int] = set()
        cursor = 0
        for _ in range(len(self.model.items) + len(self.model.ranges) + 3):
            result = self.run(self.engine.read(NAME, ReadQuery(from_seq=cursor, limit=5)))
            if result.tombstone is not None:
                told |= set(range(result.tombstone.gap_from, result.tombstone.gap_to + 1))
            found += [
                (each.seq, each.ts, json.loads(each.body)["data"], each.tag.decode(), each.node.decode())
                for each in result.records
            ]
            assert result.next_from_seq >= cursor
            cursor = result.next_from_seq
            if cursor == self.model.head:
                break
        assert cursor == self.model.head
        assert found == [(each.seq, each.ts, each.data, each.tag or "", each.node or "") for each in self.model.items]
        assert told == self.model.announced()

    @rule(
        at=st.floats(0, 1),
        limit=st.integers(1, 7),
        max_bytes=st.sampled_from([1, 12, 30, 1000]),
        match=st.none() | MATCHES,
        nodes=st.sets(st.sampled_from([b"n1", b"n2"])),
    )
    def read(self, at: float, limit: int, max_bytes: int, match: TagMatch | None, nodes: set[bytes]) -> None:
        model = self.model
        from_seq = cursor = round(at * model.head)
        if cursor + 1 in model.announced():
            while cursor + 1 in model.announced() and cursor + 1 != model.range_behind(cursor):
                cursor += 1
            if cursor == from_seq:
                cursor = next(b for a, b in model.ranges if a == cursor + 1)
        end = model.range_behind(cursor)
        wanted: list[int] = []
        size, last = 0, end - 1
        for each in model.items:
            passes = (match is None or match.matches((each.tag or "").encode())) and (
                (each.node or "").encode() not in nodes
            )
            if not cursor < each.seq < end or not passes:
                continue
            if wanted and size + each.body_size > max_bytes:
                last = each.seq - 1
                break
            size += each.body_size
            wanted.append(each.seq)
            if len(wanted) == limit:
                last = each.seq
                break
        query = ReadQuery(
            from_seq=from_seq, limit=limit, max_bytes=max_bytes, tag=match, exclude_nodes=frozenset(nodes)
        )
        result = self.run(self.engine.read(NAME, query))
        assert [each.seq for each in result.records] == wanted
        assert result.next_from_seq == last
        assert (result.head_seq, result.earliest_seq) == (model.head, model.earliest)
        assert (result.tombstone is not None) == (from_seq + 1 in model.announced())

    @property
    def now(self) -> int:
        return self.machine.clock.wall_ms()


TestEngineModel = EngineModel.TestCase
TestEngineModel.settings = settings(max_examples=2 * settings().max_examples // 3)
