"""The write path, from checked records to a ticket in a shard's queue.

Everything that decides about a write (kind, key, expected_seq, caps, limits) and the assignment of its seqs happen in
one step of the event loop, so that they are exact under concurrency; what must be waited for (a key that is pending,
room in the queue, a seq reservation) is waited for before it, and then everything is looked at again.

Source: docs/reference/api.md#records, docs/reference/guarantees.md#crash-points-of-a-write.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from storage.config import Durability, TopicConfig, TopicType
from storage.errors import (
    IdempotencyConflict,
    InvalidRequest,
    SeqConflict,
    ShuttingDown,
    StorageError,
    TopicFull,
    TopicNotFound,
)
from storage.format import control
from storage.format.blocks import total
from storage.log.admission import announce, check_caps, check_limits, eviction, over_caps
from storage.log.blockers import Blocker, wait_done
from storage.log.contents import Contents, encoded, hash_of, measured
from storage.log.encode import WriteHeader, assemble
from storage.log.pending_losses import announce_losses
from storage.log.submission import Both, Outcome, Submission
from storage.log.validation import MAX_U64, check_address, check_cleanup, check_text
from storage.records.batches import AppendedRecords
from storage.records.partitions import is_address
from storage.records.values import Appended, ProducerBatch, StoredBodies
from storage.state.catalog import Topic
from storage.state.keys import key_digest
from storage.state.log import Log
from storage.state.partition_rules import check_partitions
from storage.state.retained import Eviction

if TYPE_CHECKING:
    from storage.engine import Engine
    from storage.log.writer import Shard


class Write:
    """One append request on its way through. Made, run once, thrown away."""

    __slots__ = (
        "apart",
        "config",
        "count",
        "create",
        "created",
        "delayed",
        "dest_id",
        "digest",
        "durable",
        "engine",
        "eviction",
        "expected_seq",
        "first_seq",
        "hash",
        "hasten",
        "held_ns",
        "key",
        "log",
        "move",
        "name",
        "node",
        "over",
        "payloads",
        "producer",
        "records",
        "strict",
        "submission",
        "total",
        "trailing",
        "writers",
    )

    def __init__(
        self,
        engine: Engine,
        name: str,
        records: Contents,
        *,
        node: str | None,
        key: str | None,
        strict: bool,
        create: bool,
        config: TopicConfig | None,
        expected_seq: int | None,
        producer: ProducerBatch | None = None,
        hasten: bool = False,
        move: tuple[int, Sequence[int]] | None = None,
        dest_id: int = 0,
        writers: int = 1,
    ) -> None:
        """`move`: (source topic_id, seqs) of the records that these are the copies of, for the topic `dest_id` and no
        other of its name, as stored bodies; they are synced whatever the class, and exempt from the limits that their
        originals kept.

        `hasten`: its sync is not to wait for the timer of its class; the ack does not wait for it all the same.
        `writers` above 1: each of its plain records is a write, and becomes a unit, of its own (see
        `storage.log.coalescer`), but where others go to a cap to make room for them: what goes and what comes is one
        unit, all of it."""
        self.engine = engine
        self.move = move
        self.dest_id = dest_id
        self.name = name
        self.records = records
        self.node = node
        self.key = key
        self.strict = strict
        self.create = create
        self.config = config
        self.expected_seq = expected_seq
        self.producer = producer
        self.hasten = hasten
        self.writers = writers
        self.apart = writers > 1
        self.count = len(records)
        self.payloads: array[int]
        self.total = 0
        self.digest = b""
        self.hash: bytes | None = None
        self.delayed = ""
        #: Goes into the batch behind the records.
        self.trailing: Sequence[control.Control] = ()
        if move is not None and len(move[1]) > 1:
            self.trailing = (control.Moved(source_id=move[0], seqs=[*move[1]]),)
        self.created = False
        self.held_ns = 0
        self.durable = False
        #: (records, bytes) by which it brings its log over its caps, and what goes for them, as far as it is there.
        self.over: tuple[int, int] | None = None
        self.eviction: Eviction | None = None
        self.log: Log
        self.first_seq = 0
        self.submission: Submission | None = None

    async def run(self) -> Appended:
        """Check, wait for what must be waited for, enqueue, wait for the log."""
        self._check()
        while True:
            topic = self.engine.catalog.topics.get(self.name)
            if topic is not None and (known := await self._known(topic)) is not None:
                return known
            topic = self.engine.catalog.topics.get(self.name)
            blocker = self._blocker(topic)
            if blocker is None:
                break
            await asyncio.ensure_future(blocker())  # a task: every round lets the loop go on
        submission = self._enqueue(topic)
        if submission is not None:
            done = self.engine.loop.create_future()
            self._submit(submission, done)
            await asyncio.shield(done)  # a caller that goes away does not stop the write, nor what hangs on it
        return self.finish()

    def attempt(self, outcome: Outcome) -> bool:
        """Enqueue if nothing has to be waited for: True, and `outcome` is told, on the loop.

        False: nothing was done, and it takes `appended`. Raises what stands against the write, as `appended` would.
        """
        self._check()
        topic = self.engine.catalog.topics.get(self.name)
        if topic is None or topic.logs[0].ephemeral:
            return False
        if (self.key is not None or self.producer is not None) and self._seen(topic.logs[0]):
            return False
        if self._blocker(topic) is not None:
            return False
        submission = self._enqueue(topic)
        assert submission is not None  # only ephemeral topics have none
        self._submit(submission, outcome)
        return True

    def finish(self) -> Appended:
        """The write has been committed: the answer to it."""
        submission = self.submission
        topic = self.engine.catalog.by_id.get(self.log.topic_id)
        if submission is not None and topic is not None:
            self.engine.reservations.look_ahead(topic)
        answer = self._answer(self.log, self.first_seq, self.count, created=self.created)
        if submission is not None:
            answer.wal_append_ms = (submission.written_ns - submission.enqueued_ns) / 1e6
            if self.durable:
                answer.fsync_ms = (submission.synced_ns - submission.written_ns) / 1e6
        answer.throttle_wait_ms = self.held_ns / 1e6
        return answer

    # -- checks ------------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        engine, options = self.engine, self.engine.options
        if self.move is not None:
            assert isinstance(self.records, StoredBodies)  # a copy of what is in the log
            self.payloads = self.records.payloads
            self.total = total(self.payloads)
            return
        check_address(self.name)
        if self.node is not None:
            check_text(self.node, "node", options.max_node_bytes)
        if self.key is not None:
            check_text(self.key, "idempotency_key", options.max_key_bytes)
            self.digest = key_digest(self.key)
        if self.producer is not None:
            engine.producers.check(self.producer)
        if self.expected_seq is not None and not 0 <= self.expected_seq <= MAX_U64:
            raise InvalidRequest("expected_seq must be a seq (0 or more).", field="expected_seq")
        self.records, self.payloads, self.delayed = measured(self.records, options, engine.now_ms)
        self.total = total(self.payloads)
        if self.key is not None:
            self.hash = hash_of(self.records, self.payloads, self.node)

    def _seen(self, log: Log) -> bool:
        """Whether this key or batch is on its way, or known already. Raises what a producer's batch is told."""
        if self.producer is not None and self.engine.producers.known(log, self.producer, self.count) is not None:
            return True
        if self.key is None:
            return False
        window_ms = self.engine.catalog.by_id[log.topic_id].config.idempotency_window_ms
        return (log.topic_id, self.digest) in self.engine.pending_keys or (
            log.keys is not None and log.keys.find(self.digest, self.engine.now_ms(), window_ms) is not None
        )

    async def _known(self, topic: Topic) -> Appended | None:
        """The answer for a key or a producer's batch that was there before; waits for one that is on its way."""
        log = topic.log
        if self.producer is not None:
            sent = await self.engine.producers.answer(log, self.producer, self.count)
            if sent is not None:
                return self._answer(log, sent.first_seq, self.count, deduped=True)
        if self.key is None:
            return None
        pending = self.engine.pending_keys.get((log.topic_id, self.digest))
        if pending is not None:
            await asyncio.shield(pending)  # its outcome, an error included, is this request's too
        window_ms = topic.config.idempotency_window_ms
        found = log.keys.find(self.digest, self.engine.now_ms(), window_ms) if log.keys else None
        if found is None:
            return None
        differs = found.hash != self.hash
        if differs and self.strict:
            raise IdempotencyConflict(first_seq=found.first_seq)
        return self._answer(log, found.first_seq, found.count, deduped=True, payload_differs=differs)

    def _blocker(self, topic: Topic | None) -> Blocker | None:
        """None when the write can be enqueued now; what to wait for; or raises what stands against it."""
        engine = self.engine
        if engine.closing:
            raise ShuttingDown()
        if topic is None:
            return self._check_new_topic()
        if self.move is not None and topic.topic_id != self.dest_id:
            raise TopicNotFound(self.name)
        config, log = topic.config, topic.logs[0]
        if self.delayed:
            self._check_kind(config)
        changing = engine.changing.get(topic.topic_id)
        if changing is not None:
            return partial(wait_done, changing)
        if self.key is not None and (log.topic_id, self.digest) in engine.pending_keys:
            return partial(wait_done, engine.pending_keys[log.topic_id, self.digest])
        if self.expected_seq is not None:
            self._check_expected(log.assigned_head)
        capped = config.cap_records or config.cap_bytes or config.consumed_max_bytes
        if capped:
            try:
                check_caps(config, log, self.payloads, self.total)
            except TopicFull as full:
                if not engine.expiry.may_be_due(topic):
                    raise
                return partial(engine.expiry.make_room, topic, full)  # what has expired takes no room
        check_limits(engine, config, self.total, has_key=self.key is not None)
        shard = engine.shards[log.shard]
        shard.refuse_when_full()
        if log.topic_id in engine.pending_losses:
            return partial(announce_losses, engine, log)
        self.over = over_caps(config, log, self.count, self.total) if capped else None
        if self.over is not None:
            eviction_plan = log.plan_eviction(*self.over)
            if not isinstance(eviction_plan, Eviction):
                return partial(engine.segments.load_to_evict, log, eviction_plan)
            self.eviction = eviction_plan
        frames = self.count + 3
        if not shard.has_room(frames, self.total):
            return partial(self._wait_room, shard, frames)
        if config.durability is not Durability.FSYNC and log.assigned_head + self.count > log.reserved:
            return partial(engine.reservations.extend, log, self.count)
        return None

    async def _wait_room(self, shard: Shard, frames: int) -> None:
        clock = self.engine.clock
        began_ns = clock.monotonic_ns()
        await shard.wait_room(frames, self.total, self.held_ns)
        self.held_ns += clock.monotonic_ns() - began_ns

    def _check_new_topic(self) -> Blocker | None:
        if not self.create:
            raise TopicNotFound(self.name)
        if is_address(self.name):
            raise TopicNotFound(self.name)
        config = self._new_config()
        check_cleanup(config, "config.")
        check_partitions(self.engine.catalog, self.engine.options, self.name, config, None, "config.")
        self._check_kind(config)
        self._check_expected(0)
        check_caps(config, None, self.payloads, self.total)
        check_limits(self.engine, config, self.total, has_key=self.key is not None)
        self.engine.admin.check_limit()
        if config.durability is Durability.EPHEMERAL or config.partitions > 1:
            # Its records never reach the log, or not all of the topic is one log: it cannot be made in their batch.
            return partial(self._make_topic, config)
        return None

    async def _make_topic(self, config: TopicConfig) -> None:
        if self.name not in self.engine.catalog.topics:  # else another write was faster, and its config counts
            self.created = await self.engine.admin.put(self.name, config)

    def _check_kind(self, config: TopicConfig) -> None:
        if self.delayed and config.type is not TopicType.QUEUE:
            raise InvalidRequest(f"{self.delayed} is for queues only; {self.name} is a log.", field=self.delayed)

    def _new_config(self) -> TopicConfig:
        return (self.config or TopicConfig()).clamped()

    def _check_expected(self, head_seq: int) -> None:
        if self.expected_seq is not None and self.expected_seq != head_seq:
            raise SeqConflict(
                f"expected_seq is {self.expected_seq}, the last assigned seq is {head_seq}.",
                expected_seq=self.expected_seq,
                head_seq=head_seq,
            )

    # -- the write ---------------------------------------------------------------------------------------------------

    def _enqueue(self, topic: Topic | None) -> Submission | None:
        """Give the write its seqs. What is returned is to be submitted; None: it is published already, in memory."""
        engine = self.engine
        now = engine.now_ms()
        before: list[control.Control] = []
        if topic is None:
            self.created = True
            topic, creation = engine.admin.provisional(self.name, self._new_config())
            before.append(creation)
            if (first_reserve := engine.reservations.first(topic, self.count)) is not None:
                before.append(first_reserve)
            self.over = over_caps(topic.config, topic.log, self.count, self.total)
        log = topic.logs[0]
        self.log, self.first_seq = log, log.assigned_head + 1
        durable = self.durable = topic.config.durability is Durability.FSYNC
        head = WriteHeader(log.topic_id, self.first_seq, now, durable, self.node.encode() if self.node else b"")
        over = self.over
        if over is not None:
            self.apart = False
        more = over is not None or bool(self.trailing)
        appends, appended = self._encode(head, more=more)
        entry = log.reserve(appended)
        after: list[control.EvictWatermark] = []
        if over is not None:
            eviction_plan = self.eviction
            if eviction_plan is None or eviction_plan.short:
                eviction_plan = log.plan_eviction(*over)  # some of what it brings goes, too
                assert isinstance(eviction_plan, Eviction), "all that is in segments goes, and takes no look at sizes"
            after.append(eviction(topic.config, log, eviction_plan))
            log.assign_eviction(eviction_plan)
            engine.segments.look_ahead(log, eviction_plan.floor)
        behind = [*self.trailing, *after]
        if self.producer is not None:
            engine.producers.assign(log, self.producer, self.count, self.first_seq, now)
        whole = assemble(
            appends,
            appended,
            head,
            before=before,
            after=behind,
            key=self.key,
            hash=self.hash,
            move=(self.move[0], self.move[1][0]) if self.move is not None and len(self.move[1]) == 1 else None,
            producer=self.producer,
            apart=self.apart,
        )
        if log.ephemeral:
            durable_go = bool(after) and not log.in_memory_only
            engine.publisher.in_memory(log, whole, entry)
            if durable_go:
                announce(engine, log, after)
            return None
        shard = engine.shards[log.shard]
        self.submission = Submission(
            whole.unit,
            whole.payload,
            frames=whole.frames,
            topic_id=log.topic_id,
            ts=now,
            needs_sync=durable or self.created or self.move is not None,
            hasten=self.hasten,
            generation=shard.generation,
            entry=entry,
            writers=self.writers,
        )
        return self.submission

    def _encode(self, head: WriteHeader, *, more: bool) -> tuple[bytes, AppendedRecords]:
        return encoded(self.records, head, self.payloads, more=more, apart=self.apart)

    def _submit(self, submission: Submission, outcome: Outcome) -> None:
        engine, log = self.engine, self.log
        if self.key is not None:
            key_id = (log.topic_id, self.digest)
            done_once = engine.pending_keys[key_id] = engine.loop.create_future()
            outcome = Both(outcome, done_once, partial(engine.pending_keys.pop, key_id, None))
        if self.producer is not None:
            pending, sent = engine.producers.pending, (log.topic_id, self.first_seq)
            over = pending[sent] = engine.loop.create_future()
            outcome = Both(outcome, over, partial(pending.pop, sent, None))
        engine.shards[log.shard].enqueue(submission, outcome)

    def _answer(self, log: Log, first_seq: int, count: int, **more: bool) -> Appended:
        return Appended(
            topic=self.name, first_seq=first_seq, last_seq=first_seq + count - 1, head_seq=log.head, count=count, **more
        )


class AppendCallback:
    """The outcome of a write that nobody awaits: a callback is told. It must not raise."""

    __slots__ = ("_on_result", "_write")

    def __init__(self, write: Write, on_result: Callable[[Appended | Exception], None]) -> None:
        self._write = write
        self._on_result = on_result

    def done(self) -> bool:
        return False

    def set_result(self, result: Any, /) -> None:
        outcome: Appended | Exception
        try:
            outcome = self._write.finish()
        except (
            Exception
        ) as error:  # where `appended` would raise it; other outcomes, told behind this one, must be told
            outcome = error
        # The submission leads back here: left standing, the circle would keep the request's bytes until the garbage
        # collector comes by, and every request would have to be given fresh memory instead of its predecessor's.
        self._write.submission = None
        self._on_result(outcome)

    def set_exception(self, exception: StorageError, /) -> None:
        self._write.submission = None
        self._on_result(exception)
