"""The engine against plain lists: several topics, and every operation on them in any order.

Writes of all classes, reads, deletes, caps, ttl, copies into tiny segments, snapshots, and all kinds of restarts.
"""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from storage import Discard, Durability, ReadQuery, TagMatch, TopicConfig
from storage.errors import RecordNotFound, SeqConflict, StorageError, TopicNotFound
from storage.records.values import LossCause
from tests.conftest import is_soak
from tests.property.engine_bench import WINDOW_MS, EngineBench
from tests.property.topic_model import Item, Told, TopicModel, item
from tests.support.sim_disk import Loss
from tests.unit.storage.machine import options, outcome, record

NAMES = ("t", "t", "u")
DISK_SYNC_MS = 50
SMALL: dict[str, Any] = {
    "expiry_interval_ms": 700,
    "checkpoint_interval_ms": 400,
    "checkpoint_records": 1,
    "disk_sync_ms": DISK_SYNC_MS,
    "max_open_segments": 2,
    "tail_cache_bytes": 400,
    "wal_file_bytes": 4096,
    "wal_reserve_bytes": 2048,
    "sync_point_bytes": 300,
}
WHICH = st.sampled_from(NAMES)
TAGS = st.sampled_from([None, "a", "a", "ab", "b"])
NODES = st.sampled_from([None, None, "n1", "n2"])
RECORDS = st.lists(st.tuples(st.integers(0, 2000), TAGS, NODES), min_size=1, max_size=6)
MANY_TAGS = ("a", "a", "ab", "a", None, "b", "a", "a")
MATCHES = st.sampled_from(
    [TagMatch(b"a"), TagMatch(b"a"), TagMatch(b"a", True), TagMatch(b"b"), TagMatch(b"", True), TagMatch(b"zz")]
)
BESIDE = st.sampled_from(["absorb", "absorb", "snapshot"])
TURNS = st.integers(0, 30)
CONFIGS = st.builds(
    TopicConfig,
    durability=st.sampled_from(
        [Durability.FSYNC, Durability.FSYNC, Durability.DISK, Durability.DISK, Durability.MEMORY, Durability.EPHEMERAL]
    ),
    cap_records=st.sampled_from([0, 0, 0, 3, 14]),
    cap_bytes=st.sampled_from([0, 0, 0, 12, 60]),
    discard=st.sampled_from([Discard.OLD, Discard.OLD, Discard.REJECT]),
    ttl_ms=st.sampled_from([0, 0, 0, 50, 600]),
    idempotency_window_ms=st.just(WINDOW_MS),
)
KEYS = st.none() | st.integers(0, 4).map("key-{}".format)
#: Cursors from 0 to a little beyond the head.
PLACES = st.floats(0, 1.2)


class EngineModel(EngineBench):
    """A read after every step that takes time makes expiry happen, so that the model need not know when it happens."""

    @initialize(events=st.integers(4, 8), shards=st.integers(1, 2), config=CONFIGS)
    def begin(self, events: int, shards: int, config: TopicConfig) -> None:
        self.options = options(**SMALL, segment_max_events=events, wal_shards=shards)
        self.start()
        self.put(NAMES[0], config)

    # -- writing -----------------------------------------------------------------------------------------------------

    @rule(name=WHICH, batch=RECORDS, key=KEYS, expect=st.none() | st.integers(0, 1), config=CONFIGS)
    def append(
        self,
        name: str,
        batch: list[tuple[int, str | None, str | None]],
        key: str | None,
        expect: int | None,
        config: TopicConfig,
    ) -> None:
        creates = name not in self.topics
        topic = TopicModel(config) if creates else self.topics[name]
        if key in topic.unsure:
            return
        expected = None if expect is None else topic.head + expect
        first = topic.head + 1
        items = [item(first + n, self.now, *each) for n, each in enumerate(batch)]
        if not creates:
            self.worlds.remember(self.shard(name))
        written = self.run(self.attempt(name, items, key, expected, config))
        known = topic.keys.get(key or "")
        if known is not None and self.now - known.ts <= WINDOW_MS:
            assert (written.first_seq, written.count, written.deduped) == (known.first_seq, known.records, True)
            return
        if expect:
            assert isinstance(written, SeqConflict)
            assert written.detail == {"expected_seq": expected, "head_seq": topic.head}
            return
        code = topic.refuses([each.size for each in items])
        if code:
            assert isinstance(written, StorageError)
            assert written.code == code
            return
        assert not isinstance(written, StorageError)
        assert (written.first_seq, written.last_seq, written.count) == (first, items[-1].seq, len(items))
        assert (written.created, written.deduped) == (creates, False)
        if creates:
            self.made(name, topic)
        topic.append(items, key)
        self.changed(name, synced=True if creates else None)

    async def attempt(
        self, name: str, items: list[Item], key: str | None, expected: int | None, config: TopicConfig
    ) -> Any:
        batch = [record(each.data, tag=each.tag, node=each.node) for each in items]
        try:
            return await self.engine.append(name, batch, idempotency_key=key, expected_seq=expected, config=config)
        except StorageError as error:
            return error

    @rule(name=WHICH, count=st.integers(5, 30), each=st.integers(1, 6), absorbs=st.booleans())
    def append_much(self, name: str, count: int, each: int, absorbs: bool) -> None:
        """So that there are segments to work on."""
        if name not in self.topics:
            return
        for first in range(0, count, each):
            batch = [(first, MANY_TAGS[n % len(MANY_TAGS)], None) for n in range(first, min(count, first + each))]
            self.append(name, batch, None, None, self.topics[name].config)
            if absorbs:
                self.keep_up("absorb")

    @rule(name=WHICH, at=st.none() | PLACES, match=MATCHES)
    def delete_tagged(self, name: str, at: float | None, match: TagMatch) -> None:
        self.delete(name, at, match)

    @rule(name=WHICH, at=PLACES, match=st.none() | MATCHES)
    def delete(self, name: str, at: float | None, match: TagMatch | None) -> None:
        topic = self.topics.get(name)
        if topic is None:
            return
        before_seq = None if at is None else 1 + round(at * (topic.head + 1))
        self.worlds.remember(self.shard(name))
        written = not topic.in_memory_only
        gone = topic.delete(
            lambda each: (
                (before_seq is None or each.seq < before_seq)
                and (match is None or match.matches((each.tag or "").encode()))
            )
        )
        if match is None and before_seq is not None:
            topic.raise_floor(LossCause.DELETE, min(before_seq, topic.head + 1), written=written)
        done = self.run(self.engine.delete_records(name, before_seq=before_seq, match=match))
        assert (done.deleted, done.count, done.bytes) == (gone, len(topic.items), topic.bytes)
        assert (done.earliest_seq, done.head_seq) == (topic.earliest, topic.head)
        self.changed(name)

    @rule(name=WHICH, config=CONFIGS)
    def put(self, name: str, config: TopicConfig) -> None:
        created = name not in self.topics
        changes = created or self.topics[name].config != config.clamped()
        _, made = self.run(self.engine.put_topic(name, config))
        assert made == created
        if created:
            self.made(name, TopicModel(config.clamped()))
        elif changes:
            self.topics[name].set_config(config.clamped())
        self.changed(name, synced=changes)
        self.settle()

    @rule(name=WHICH, sure=st.integers(0, 2))
    def drop(self, name: str, sure: int) -> None:
        if sure:
            return  # most of the time
        there = name in self.topics
        if there:
            self.changed(name, synced=True)
            self.worlds.remove(name)
        assert self.run(self.engine.delete_topic(name)) == there

    # -- time, and what goes on beside -------------------------------------------------------------------------------

    @rule(ms=st.integers(1, 500))
    def time_passes(self, ms: int) -> None:
        self.run(self.clock.advance(ms))
        if ms > DISK_SYNC_MS:
            self.worlds.hardened()
        self.settle()

    @rule(what=st.sampled_from(["absorb", "absorb", "upkeep", "snapshot", "expiry"]))
    def keep_up(self, what: str) -> None:
        self.run(self.work(what))
        if what == "snapshot":
            self.worlds.hardened()

    @rule(what=BESIDE, turns=TURNS)
    def begin_beside(self, what: str, turns: int) -> None:
        """It continues during the next steps."""
        self.beside.append(self.loop.create_task(self.work(what)))
        self.run(go_on(turns))

    # -- restarts ----------------------------------------------------------------------------------------------------

    @rule(
        how=st.none() | st.just("kill") | st.sampled_from(list(Loss)), amid=BESIDE, turns=TURNS, seed=st.integers(0, 5)
    )
    def restart(self, how: str | None, amid: str, turns: int, seed: int) -> None:
        """By a clean stop, by killing the process, or by cutting the power."""
        self.begin_beside(amid, turns)
        if how is None:
            self.run(self.engine.close())
        else:
            self.disk = self.disk.process_kill() if how == "kill" else self.disk.power_cut(how, seed)
        self.end_process()
        self.start()
        self.after_restart(exact=how is None or how == "kill", heads_stay=how is None)

    # -- reading -----------------------------------------------------------------------------------------------------

    @invariant()
    def all_of_it_is_as_it_should_be(self) -> None:
        for name, topic in self.topics.items():
            assert self.look(name) == topic.seen()
            log = self.engine.catalog.topics[name].log
            assert (log.assigned_head, log.assigned_count, log.assigned_bytes) == (
                topic.head,
                len(topic.items),
                topic.bytes,
            )
        usage = self.engine.catalog.usage
        assert usage.bytes == sum(topic.bytes for topic in self.topics.values())
        assert usage.ephemeral_bytes == sum(
            each.size
            for topic in self.topics.values()
            for each in topic.items
            if topic.ephemeral and each.seq > topic.durable_head
        )

    @invariant()
    def the_log_is_kept_from_where_it_is_needed(self) -> None:
        """Also if it is asked after every step, and so looks only at what has changed since."""
        places = [shard.applied_lsn for shard in self.engine.shards]
        for topic in self.engine.catalog.topics.values():
            needed = topic.log.wal_needed_from()
            if needed is not None:
                places[topic.log.shard] = min(places[topic.log.shard], needed)
        assert self.engine.snapshotter.redo_lsns(frozenset()) == places

    @invariant()
    def what_goes_on_beside_goes_well(self) -> None:
        for task in self.beside:
            if task.done():
                task.result()
        self.beside = [task for task in self.beside if not task.done()]
        assert not any(self.engine.supervisor.failures.values())
        assert self.engine.failed_shards == []

    @rule(
        name=WHICH,
        at=PLACES,
        limit=st.integers(1, 7),
        max_bytes=st.sampled_from([1, 12, 30, 1000]),
        match=st.none() | MATCHES,
        nodes=st.sets(st.sampled_from([b"n1", b"n2"])),
    )
    def read(self, name: str, at: float, limit: int, max_bytes: int, match: TagMatch | None, nodes: set[bytes]) -> None:
        topic = self.topics.get(name)
        query = ReadQuery(from_seq=0, limit=limit, max_bytes=max_bytes, tag=match, exclude_nodes=frozenset(nodes))
        if topic is None:
            assert isinstance(self.run(outcome(self.engine.read(name, query))), TopicNotFound)
            return
        self.read_since(name, at, 100 * limit)
        self.read_one(name, at)
        from_seq = round(at * topic.head)
        tombstone = topic.tombstone(from_seq) if from_seq <= topic.head else Told(1, topic.evict_floor - 1, "recreated")
        cursor = from_seq if tombstone is None else tombstone.gap_to
        end = topic.stop_behind(cursor)
        wanted: list[int] = []
        size, last = 0, max(cursor, end - 1)
        for each in topic.items:
            passes = match is None or match.matches((each.tag or "").encode())
            if not cursor < each.seq < end or not passes or (each.node or "").encode() in nodes:
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
        result = self.run(self.engine.read(name, query))
        assert [each.seq for each in result.records] == wanted
        assert result.next_from_seq == last
        assert (result.head_seq, result.earliest_seq) == (topic.head, topic.earliest)
        given = result.tombstone
        assert (given and Told(given.gap_from, given.gap_to, given.reason)) == tombstone

    def read_since(self, name: str, at: float, ago_ms: int) -> None:
        topic = self.topics[name]
        cursor, since, seqs = min(topic.head, round(at * topic.head)), self.now - ago_ms, list[int]()
        wanted = [each.seq for each in topic.items if each.seq > cursor and each.ts >= since]
        while cursor < topic.head:
            result = self.run(self.engine.read(name, ReadQuery(from_seq=cursor, limit=3, from_ts=since)))
            seqs += [each.seq for each in result.records]
            assert result.next_from_seq > cursor
            cursor = result.next_from_seq
        assert seqs == wanted

    def read_one(self, name: str, at: float) -> None:
        topic = self.topics[name]
        seq = 1 + round(at * topic.head)
        reason = topic.why_missing(seq)
        found = self.run(outcome(self.engine.read_one(name, seq)))
        if reason is None:
            wanted = next(each for each in topic.items if each.seq == seq)
            assert (found.seq, found.ts, json.loads(found.body)["data"]) == (seq, wanted.ts, wanted.data)
        else:
            assert isinstance(found, RecordNotFound)
            assert found.detail is not None
            assert found.detail["reason"] == reason


async def go_on(turns: int) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)


TestEngineModel = EngineModel.TestCase
TestEngineModel.settings = settings(max_examples=2000 if is_soak(os.environ) else 80, stateful_step_count=40)
