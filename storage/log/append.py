"""The write path on the event loop: from the records of a request to a submission in a shard's queue.

    Engine.append, try_append, try_append_coalesced
        Appender   one for each engine: what writes need; coalesces records that arrive in the same turn of the loop.
                   The engine's two try_append are its methods
        Write      one write: check, wait for what blocks it, assign seqs, encode, enqueue
        Shard      (storage/log/writer.py) writes and syncs; the outcome comes back to the Write

Every decision about a write (type of the topic, idempotency key, expected_seq, caps, limits) and the assignment of
its seqs happen in one step of the event loop, so they are exact under concurrency. Waits (for a write with the same
key, room in the queue, a seq reservation) come before that step; after each, everything is checked again.

Source: docs/reference/api.md#records, docs/reference/guarantees.md#crash-points-of-a-write.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import msgspec

from kernel import Header, largest, total
from storage.errors import (
    IdempotencyConflict,
    InvalidRequest,
    LimitReached,
    RecordTooLarge,
    SeqConflict,
    ShuttingDown,
    StorageError,
    StorageFull,
    TopicFull,
    TopicNotFound,
)
from storage.format import control
from storage.log.encode import DURABLE, Contents, Surroundings, encode_controls, encoded, hash_of, measured
from storage.log.logs import Logs
from storage.log.reservation import Reservations
from storage.log.submission import AppendStep, Outcome, Submission, Unit, resolve
from storage.log.validation import MAX_U64, check_address, check_cleanup, check_plain, check_text
from storage.records import (
    Appended,
    AppendedRecords,
    Discard,
    Durability,
    LossCause,
    PlainRecords,
    ProducerBatch,
    StoredBodies,
    TopicConfig,
    TopicType,
    is_address,
)
from storage.state import Eviction, Log, Segment, Sent, Topic, check_partitions, key_digest
from storage.state.consumers.progress import consumed_floor
from storage.state.routers import Router

if TYPE_CHECKING:
    from storage.log.writer import Shard

#: Something that a write must wait for. The call begins the wait.
Blocker: TypeAlias = Callable[[], Awaitable[Any]]

#: Single records of one topic and node that become one write, at most.
MAX_COALESCED: Final = 256
#: A write to the source of a router that is far behind waits this long at most. It is never refused because of one.
MAX_BEHIND_NS: Final = 1_000_000_000
#: A write checks up to this many plain records itself, because `measured` takes several calls.
_FEW: Final = 16


class TopicMaker(Protocol):
    """Creates topics: `storage.topics.admin`."""

    def check_limit(self) -> None: ...

    def provisional(self, name: str, config: TopicConfig) -> tuple[Topic, control.TopicCreate]: ...

    async def put(self, name: str, config: TopicConfig) -> bool: ...


class ProducerSequences(Protocol):
    """The sequence numbers of idempotent producers: `storage.topics.producers`."""

    pending: dict[tuple[int, int], asyncio.Future[int | None]]

    def check(self, batch: ProducerBatch) -> None: ...

    def known(self, log: Log, batch: ProducerBatch, count: int) -> Sent | None: ...

    async def answer(self, log: Log, batch: ProducerBatch, count: int) -> Sent | None: ...

    def assign(self, log: Log, batch: ProducerBatch, count: int, first_seq: int, ts: int) -> None: ...


class ExpiredRecords(Protocol):
    """Evicts expired records from a full topic: `storage.topics.expiry`."""

    def may_be_due(self, topic: Topic) -> bool: ...

    async def make_room(self, topic: Topic, full: TopicFull) -> None: ...


class SegmentDetails(Protocol):
    """Loads the details of segments that an eviction has to know: `storage.segments.details`."""

    async def load_to_evict(self, log: Log, segment: Segment | None) -> None: ...

    def look_ahead(self, log: Log, seq: int) -> None: ...


#: A write of one record: (data, on_result, fallback). Either `on_result` is called with its outcome, or `fallback` is
#: called and nothing was done. Neither may raise, because the callbacks of other writes follow.
PendingAppend: TypeAlias = tuple[msgspec.Raw, Callable[[Appended | Exception], None], Callable[[], None]]


class Appender:
    """The parts of an engine that writes need, and the coalescing of single records.

    A write of one record has costs that do not depend on the record. Therefore single records that arrive in the same
    round of the event loop, for one topic and from one node, become one `Write`, which checks, encodes and publishes
    them together. On disk each record is a separate unit, as if they had been written one after the other: after a
    crash any prefix of them may exist, and every acknowledged record is in it. If the common write is refused or has
    to wait (a cap, a limit), each record is tried separately.
    """

    def __init__(
        self,
        logs: Logs,
        reservations: Reservations,
        topics: TopicMaker,
        producers: ProducerSequences,
        expiry: ExpiredRecords,
        segments: SegmentDetails,
    ) -> None:
        self.logs = logs
        self.options = options = logs.options
        self.reservations = reservations
        self.topics = topics
        self.producers = producers
        self.expiry = expiry
        self.segments = segments
        self._pending: dict[tuple[str, str | None], list[PendingAppend]] = {}
        #: The most records and bytes of a coalesced write: the records of a batch, and much less than the queue holds,
        #: since a write larger than the queue is accepted only while no other write is in flight.
        self._most = max(1, min(MAX_COALESCED, options.max_batch_records, options.wal_queue_frames // 8))

    def try_append(
        self,
        name: str,
        records: Contents,
        on_result: Callable[[Appended | Exception], None],
        *,
        node: str | None = None,
        idempotency_key: str | None = None,
        producer: ProducerBatch | None = None,
        hasten: bool = False,
    ) -> bool:
        """`Engine.append` without a task. True: the write is submitted, and `on_result` will be called with the result.

        False: nothing was done, because the write must wait first, or its result is already known; call `append`
        instead. If it raises the error of the write, nothing was done either.
        """
        logs = self.logs
        if not logs.ready or logs.closing:
            logs.check_open()
        write = Write(self, name, records, node=node, key=idempotency_key, producer=producer, hasten=hasten)
        return write.attempt(on_result)

    def try_append_coalesced(
        self,
        name: str,
        data: msgspec.Raw,
        on_result: Callable[[Appended | Exception], None],
        fallback: Callable[[], None],
        *,
        node: str | None = None,
    ) -> bool:
        """`try_append` of one record with only data. While other writes of its shard are in flight, it is coalesced
        with the records that arrive in this turn of the loop; if `try_append` returns False or raises then, `fallback`
        is called. If no write of its shard is in flight, it is written at once: a lone writer does not wait for others.
        """
        logs = self.logs
        if not logs.ready or logs.closing:
            logs.check_open()
        one = (data, on_result, fallback)
        if not self._pending:
            topic = logs.catalog.topics.get(name)
            if topic is None or not logs.shards[topic.log.shard].unresolved:
                return self._attempt(name, node, [one])
            logs.runtime.loop.call_soon(self._write_pending)
        self._pending.setdefault((name, node), []).append(one)
        return True

    def _write_pending(self) -> None:
        pending, self._pending = self._pending, {}
        for (name, node), appends in pending.items():
            for begin in range(0, len(appends), self._most):
                self._write_all(name, node, appends[begin : begin + self._most])

    def _write_all(self, name: str, node: str | None, appends: list[PendingAppend]) -> None:
        if len(appends) > 1:
            try:
                if self._attempt(name, node, appends):
                    return
            except StorageError:
                pass  # possibly because of one of the records: each is tried separately
            except Exception as error:  # nobody knows how far the write came: a second try could write records twice
                for _, on_result, _ in appends:
                    on_result(error)
                return
        for each in appends:
            _, on_result, fallback = each
            try:
                is_on_its_way = self._attempt(name, node, [each])
            except StorageError:
                is_on_its_way = False
            except Exception as error:
                on_result(error)
                continue
            if not is_on_its_way:
                fallback()

    def _attempt(self, name: str, node: str | None, appends: list[PendingAppend]) -> bool:
        if len(appends) == 1:
            data, on_result, _ = appends[0]
            return Write(self, name, PlainRecords((data,)), node=node).attempt(on_result)
        datas, callbacks, _ = zip(*appends, strict=True)
        return Write(self, name, PlainRecords(datas), node=node, writers=len(appends)).attempt(_ToEach(callbacks))


class _ToEach:
    """Calls back every writer of a coalesced write with its own seq."""

    __slots__ = ("_callbacks",)

    def __init__(self, on_result: Sequence[Callable[[Appended | Exception], None]]) -> None:
        self._callbacks = on_result

    def __call__(self, outcome: Appended | Exception) -> None:
        if isinstance(outcome, Exception):
            for on_result in self._callbacks:
                on_result(outcome)
            return
        topic, head_seq = outcome.topic, outcome.head_seq
        written_ms, synced_ms = outcome.wal_append_ms, outcome.fsync_ms
        for seq, on_result in enumerate(self._callbacks, outcome.first_seq):
            on_result(
                Appended(
                    topic=topic,
                    first_seq=seq,
                    last_seq=seq,
                    head_seq=head_seq,
                    count=1,
                    wal_append_ms=written_ms,
                    fsync_ms=synced_ms,
                )
            )


class Write:
    """A write, used once. It receives the outcome of its submission and calls `on_result` with the answer."""

    __slots__ = (
        "apart",
        "appender",
        "behind_ns",
        "config",
        "count",
        "create",
        "created",
        "delayed",
        "dest_id",
        "digest",
        "durable",
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
        "on_result",
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
        appender: Appender,
        name: str,
        records: Contents,
        *,
        node: str | None = None,
        key: str | None = None,
        strict: bool = False,
        create: bool = False,
        config: TopicConfig | None = None,
        expected_seq: int | None = None,
        producer: ProducerBatch | None = None,
        hasten: bool = False,
        move: tuple[int, Sequence[int]] | None = None,
        dest_id: int = 0,
        writers: int = 1,
    ) -> None:
        """`move`: the records are copies of the records (source topic_id, seqs), and the destination must be the topic
        with the id `dest_id`. Copies are stored bodies, are synced in every durability class, and are exempt from the
        limits that their originals met.

        `hasten`: sync without waiting for the timer of the durability class; the ack still does not wait for the sync.
        `writers` above 1: each plain record is a separate write and becomes a separate unit (see `Appender`). If the
        write evicts older records because of a cap, all of it is one unit.
        """
        self.appender = appender
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
        #: The field that delays a record; empty: no record is delayed.
        self.delayed = ""
        #: Frames of the batch after the records.
        self.trailing: Sequence[control.Control] = ()
        if move is not None and len(move[1]) > 1:
            self.trailing = (control.Moved(source_id=move[0], seqs=[*move[1]]),)
        self.created = False
        #: How long it has waited for room in the queue, and for routers.
        self.held_ns = self.behind_ns = 0
        self.durable = False
        #: (records, bytes) by which this write exceeds the caps of its log, and the eviction that makes room.
        self.over: tuple[int, int] | None = None
        self.eviction: Eviction | None = None
        self.log: Log
        self.first_seq = 0
        self.submission: Submission | None = None
        self.on_result: Callable[[Appended | Exception], None]

    async def run(self) -> Appended:
        """Check, wait for what blocks the write, enqueue it and wait until it is committed."""
        logs = self.appender.logs
        self._check()
        while True:
            topic = logs.catalog.topics.get(self.name)
            if topic is not None and (known := await self._known(topic)) is not None:
                return known
            topic = logs.catalog.topics.get(self.name)
            blocker = self._blocker(topic)
            if blocker is None:
                break
            await asyncio.ensure_future(blocker())  # as a task, so that the event loop runs other work in each round
        submission = self._prepare(topic)
        if submission is not None:
            done = logs.runtime.loop.create_future()
            logs.shards[self.log.shard].enqueue(submission, self._shared(partial(resolve, done)))
            # A cancelled caller cancels neither the write nor other callers that wait for the same outcome.
            await asyncio.shield(done)
        return self.finish()

    def attempt(self, on_result: Callable[[Appended | Exception], None]) -> bool:
        """Enqueue the write if nothing blocks it. True: `on_result` is called on the event loop and must not raise.

        False: nothing was done, and the write needs `run`. Raises the same errors as `run`.
        """
        self._check()
        logs = self.appender.logs
        topic = logs.catalog.topics.get(self.name)
        if topic is None or topic.log.ephemeral:
            return False
        idempotent = self.key is not None or self.producer is not None
        if idempotent and self._seen(topic.log):
            return False
        if self._blocker(topic) is not None:
            return False
        submission = self._prepare(topic)
        assert submission is not None  # only ephemeral topics have none
        self.on_result = on_result
        logs.shards[self.log.shard].enqueue(submission, self._shared(self.end) if idempotent else self.end)
        return True

    # -- the outcome -------------------------------------------------------------------------------------------------

    def finish(self) -> Appended:
        """The answer to this write, after its commit."""
        submission, log = self.submission, self.log
        written_ms = synced_ms = 0.0
        if submission is not None:
            if not self.durable and (topic := self.appender.logs.catalog.by_id.get(log.topic_id)) is not None:
                self.appender.reservations.look_ahead(topic)
            written_ms = (submission.written_ns - submission.enqueued_ns) / 1e6
            if self.durable:
                synced_ms = (submission.synced_ns - submission.written_ns) / 1e6
        first_seq = self.first_seq
        return Appended(
            topic=self.name,
            first_seq=first_seq,
            last_seq=first_seq + self.count - 1,
            head_seq=log.head,
            count=self.count,
            created=self.created,
            wal_append_ms=written_ms,
            fsync_ms=synced_ms,
            throttle_wait_ms=(self.held_ns + self.behind_ns) / 1e6,
        )

    def end(self, outcome: Any, /) -> None:
        """Call `on_result` with the answer or the error, according to the outcome of the submission."""
        answer: Appended | Exception
        if isinstance(outcome, Exception):
            answer = outcome
        else:
            try:
                answer = self.finish()
            except (
                Exception
            ) as error:  # `run` would raise it; here the callbacks of later outcomes must still be called
                answer = error
        # The submission refers to this write. If the circle stayed, the request's bytes would stay until the garbage
        # collector runs, and every request would need fresh memory instead of its predecessor's.
        self.submission = None
        self.on_result(answer)

    def _shared(self, outcome: Outcome) -> Outcome:
        """Also pass the outcome to callers that wait for the same idempotency key or producer batch."""
        appender, topic_id = self.appender, self.log.topic_id
        if self.key is not None:
            keys, key_id = appender.logs.pending_keys, (topic_id, self.digest)
            waited_for = keys[key_id] = appender.logs.runtime.loop.create_future()
            outcome = partial(_both, outcome, waited_for, partial(keys.pop, key_id, None))
        if self.producer is not None:
            batches, sent = appender.producers.pending, (topic_id, self.first_seq)
            waited_for = batches[sent] = appender.logs.runtime.loop.create_future()
            outcome = partial(_both, outcome, waited_for, partial(batches.pop, sent, None))
        return outcome

    # -- checks ------------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        """Check everything that does not depend on the topic: names, sizes, counts."""
        appender, options, records = self.appender, self.appender.options, self.records
        if self.move is not None:
            assert isinstance(records, StoredBodies)  # a copy of what is in the log
            self.payloads = records.payloads
            self.total = total(self.payloads)
            return
        if self.name not in appender.logs.catalog.topics:
            check_address(self.name)
        if self.node is not None:
            check_text(self.node, "node", options.max_node_bytes)
        if self.key is not None:
            check_text(self.key, "idempotency_key", options.max_key_bytes)
            self.digest = key_digest(self.key)
        if self.producer is not None:
            appender.producers.check(self.producer)
        if self.expected_seq is not None and not 0 <= self.expected_seq <= MAX_U64:
            raise InvalidRequest("expected_seq must be a seq (0 or more).", field="expected_seq")
        if 0 < self.count <= _FEW and isinstance(records, PlainRecords):  # most writes
            self.payloads = array("I", map(len, records))
            self.total = sum(self.payloads)
            if self.count > options.max_batch_records or max(self.payloads) > options.max_record_bytes:
                check_plain(records, options)  # raises
        else:
            self.records, self.payloads, self.delayed = measured(records, options, appender.logs.now_ms)
            self.total = total(self.payloads)
        if self.key is not None:
            self.hash = hash_of(self.records, self.payloads, self.node)

    def _seen(self, log: Log) -> bool:
        """Whether this key or batch is in flight or known already. Raises the error of a producer's batch that is out
        of order."""
        appender = self.appender
        if self.producer is not None and appender.producers.known(log, self.producer, self.count) is not None:
            return True
        if self.key is None:
            return False
        logs = appender.logs
        window_ms = logs.catalog.by_id[log.topic_id].config.idempotency_window_ms
        return (log.topic_id, self.digest) in logs.pending_keys or (
            log.keys is not None and log.keys.find(self.digest, logs.now_ms(), window_ms) is not None
        )

    async def _known(self, topic: Topic) -> Appended | None:
        """The answer of an earlier write with the same key or producer batch; waits for one in flight."""
        log, logs = topic.log, self.appender.logs
        if self.producer is not None:
            sent = await self.appender.producers.answer(log, self.producer, self.count)
            if sent is not None:
                return self._deduped(log, sent.first_seq, self.count)
        if self.key is None:
            return None
        pending = logs.pending_keys.get((log.topic_id, self.digest))
        if pending is not None:
            await asyncio.shield(pending)  # its outcome is this write's outcome too, an error included
        window_ms = topic.config.idempotency_window_ms
        found = log.keys.find(self.digest, logs.now_ms(), window_ms) if log.keys else None
        if found is None:
            return None
        differs = found.hash != self.hash
        if differs and self.strict:
            raise IdempotencyConflict(first_seq=found.first_seq)
        return self._deduped(log, found.first_seq, found.count, payload_differs=differs)

    def _deduped(self, log: Log, first_seq: int, count: int, *, payload_differs: bool = False) -> Appended:
        return Appended(
            topic=self.name,
            first_seq=first_seq,
            last_seq=first_seq + count - 1,
            head_seq=log.head,
            count=count,
            deduped=True,
            payload_differs=payload_differs,
        )

    def _blocker(self, topic: Topic | None) -> Blocker | None:
        """None when the write can be enqueued now, else what to wait for. Raises the error that refuses the write.

        Everything is checked against the assigned view of the log, in the same step of the loop that assigns the seqs,
        so the answer is exact.
        """
        appender, logs = self.appender, self.appender.logs
        if logs.closing:
            raise ShuttingDown()
        if topic is None:
            return self._check_new_topic()
        topic_id = topic.topic_id
        if self.move is not None and topic_id != self.dest_id:
            raise TopicNotFound(self.name)
        config, log = topic.config, topic.log
        if self.delayed:
            self._check_type(config)
        if topic_id in logs.changing:
            return partial(_wait_done, logs.changing[topic_id])
        if self.key is not None and (topic_id, self.digest) in logs.pending_keys:
            return partial(_wait_done, logs.pending_keys[topic_id, self.digest])
        if self.expected_seq is not None:
            self._check_expected(log.assigned_head)
        capped = config.cap_records or config.cap_bytes or config.consumed_max_bytes
        if capped:
            try:
                check_caps(config, log, self.payloads, self.total)
            except TopicFull as full:
                if not appender.expiry.may_be_due(topic):
                    raise
                return partial(appender.expiry.make_room, topic, full)  # expired records take no room
        if self.key is not None or log.ephemeral or appender.options.max_total_bytes:
            check_limits(logs, config, self.total, has_key=self.key is not None)
        shard = logs.shards[log.shard]
        if shard.log.failed is not None or shard.log.full:
            shard.refuse_when_full()
        if shard.log.behind is not None and config.durability is not Durability.FSYNC and not log.ephemeral:
            shard.refuse_when_behind()
        if topic_id in logs.unannounced_losses:
            return partial(logs.announce_losses, log)
        self.over = over_caps(config, log, self.count, self.total) if capped else None
        if self.over is not None:
            eviction_plan = log.plan_eviction(*self.over)
            if not isinstance(eviction_plan, Eviction):
                return partial(appender.segments.load_to_evict, log, eviction_plan)
            self.eviction = eviction_plan
        if not shard.has_room(self.count + 3, self.total):
            return partial(self._wait_room, shard, self.count + 3)
        if config.durability is not Durability.FSYNC and log.assigned_head + self.count > log.reserved:
            return partial(appender.reservations.extend, log, self.count)
        routes = logs.catalog.routes
        if routes.out_of and (router := routes.behind(topic_id, log.assigned_head)) is not None:
            return self._wait_for(router, log.assigned_head)
        return None

    async def _wait_room(self, shard: Shard, frames: int) -> None:
        clock = self.appender.logs.clock
        began_ns = clock.monotonic_ns()
        await shard.wait_room(frames, self.total, self.held_ns)
        self.held_ns += clock.monotonic_ns() - began_ns

    def _wait_for(self, router: Router, head: int) -> Blocker | None:
        """How to wait for a router that is far behind. None if this write does not wait for it any longer."""
        left_ns = MAX_BEHIND_NS - self.behind_ns
        return partial(self._wait_behind, router, head, left_ns / 1e9) if left_ns > 0 else None

    async def _wait_behind(self, router: Router, head: int, left_s: float) -> None:
        logs = self.appender.logs
        began_ns = logs.clock.monotonic_ns()
        logs.catalog.routes.held_back += 1
        try:
            async with asyncio.timeout(left_s):
                await router.reach(head - (router.lag_limit or 0))
            self.behind_ns += logs.clock.monotonic_ns() - began_ns
        except TimeoutError:
            self.behind_ns = MAX_BEHIND_NS

    def _check_new_topic(self) -> Blocker | None:
        """The checks of a write that creates its topic."""
        if not self.create or is_address(self.name):
            self.appender.logs.check_elsewhere(self.name)
            raise TopicNotFound(self.name)
        appender, logs, config = self.appender, self.appender.logs, self._new_config()
        check_cleanup(config, "config.")
        check_partitions(logs.catalog, appender.options, self.name, config, None, "config.")
        self._check_type(config)
        self._check_expected(0)
        check_caps(config, None, self.payloads, self.total)
        check_limits(logs, config, self.total, has_key=self.key is not None)
        appender.topics.check_limit()
        if config.durability is Durability.EPHEMERAL or config.partitions > 1:
            # The records of an ephemeral topic never reach the log, and a topic of several partitions is several logs:
            # neither can be created in the batch of the records.
            return partial(self._make_topic, config)
        if config.dead_letter is not None and logs.neighbours is not None:
            return partial(self._make_topic, config)  # another cell may have the dead letter topic, and is asked first
        return None

    async def _make_topic(self, config: TopicConfig) -> None:
        if self.name not in self.appender.logs.catalog.topics:  # else another write made it: its config counts
            self.created = await self.appender.topics.put(self.name, config)

    def _check_type(self, config: TopicConfig) -> None:
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

    # -- the unit ----------------------------------------------------------------------------------------------------

    def _prepare(self, topic: Topic | None) -> Submission | None:
        """Assign the seqs and encode. The submission has to be enqueued; None: the write is published, in memory."""
        appender, logs = self.appender, self.appender.logs
        now = logs.now_ms()
        before: list[control.Control] = []
        if topic is None:
            self.created = True
            topic, creation = appender.topics.provisional(self.name, self._new_config())
            before.append(creation)
            if (first_reserve := appender.reservations.first(topic, self.count)) is not None:
                before.append(first_reserve)
            self.over = over_caps(topic.config, topic.log, self.count, self.total)
        log = topic.log
        self.log, self.first_seq = log, log.assigned_head + 1
        durable = self.durable = topic.config.durability is Durability.FSYNC
        node = self.node.encode() if self.node else b""
        head = Header(log.topic_id, self.first_seq, now, node, DURABLE if durable else 0)
        over = self.over
        if over is not None:
            self.apart = False
        moved = (self.move[0], self.move[1][0]) if self.move is not None and len(self.move[1]) == 1 else None
        around: Surroundings | None = None  # of an Append frame that needs no Batch frame, and of several `apart`
        trailing = self.trailing
        after: list[control.EvictWatermark] = []
        if over is None:
            if not self.apart and (
                self.count > 1 or before or trailing or self.key is not None or moved is not None or self.producer
            ):
                around = self._surroundings(head, before, trailing, moved)
            payload, appended = self._encode(head, more=bool(trailing), around=around)
            entry = log.reserve(appended)
        else:
            appends, appended = self._encode(head, more=True, around=None)
            entry = log.reserve(appended)
            eviction_plan = self.eviction
            if eviction_plan is None or eviction_plan.short:
                eviction_plan = log.plan_eviction(*over)  # some of the new records are evicted too
                assert isinstance(eviction_plan, Eviction), "evicting whole segments needs no details"
            after.append(eviction(topic.config, log, eviction_plan))
            log.assign_eviction(eviction_plan)
            appender.segments.look_ahead(log, eviction_plan.floor)
            around = self._surroundings(head, before, [*trailing, *after], moved)
            front, behind = around(len(appends))
            payload = b"".join((front, appends, behind))
        if self.producer is not None:
            appender.producers.assign(log, self.producer, self.count, self.first_seq, now)
        unit = around.unit(appended) if around else Unit(None, [AppendStep(log.topic_id, appended, 0)])
        if log.ephemeral:
            from_before = bool(after) and not log.in_memory_only
            logs.publisher.publish(unit, payload, entry)
            if from_before:
                _write_evictions(logs, log, after)
            return None
        self.submission = Submission(
            unit,
            payload,
            frames=around.frames if around else self.count,
            topic_id=log.topic_id,
            ts=now,
            needs_sync=durable or self.created or self.move is not None,
            hasten=self.hasten,
            generation=logs.shards[log.shard].generation,
            entry=entry,
            writers=self.writers,
        )
        return self.submission

    def _surroundings(
        self,
        head: Header,
        before: Sequence[control.Control],
        after: Sequence[control.Control],
        move: tuple[int, int] | None,
    ) -> Surroundings:
        return Surroundings(
            *(head, self.count),
            before=before,
            after=after,
            key=self.key,
            hash=self.hash,
            move=move,
            producer=self.producer,
        )

    def _encode(self, head: Header, *, more: bool, around: Surroundings | None) -> tuple[bytes, AppendedRecords]:
        """The Append frames, with the frames around them."""
        return encoded(self.records, head, self.payloads, more=more, apart=self.apart, around=around)


def _both(first: Outcome, second: asyncio.Future[Any], before: Callable[[], object], outcome: Any, /) -> None:
    """Call `before`, then pass an outcome on to `first` and to `second`; perhaps no caller waits for `second`."""
    before()
    resolve(second, outcome)
    if isinstance(outcome, Exception) and not second.cancelled():
        second.exception()  # marks it as retrieved, in case nobody waits
    first(outcome)


async def _wait_done(future: asyncio.Future[Any]) -> None:
    """Wait for the end of other work, whatever its outcome."""
    await asyncio.wait([future])


# -- caps and limits -------------------------------------------------------------------------------------------------


def check_caps(config: TopicConfig, log: Log | None, payloads: array[int], total_bytes: int) -> None:
    """Raises RecordTooLarge if the write can never fit, and TopicFull (discard "reject") if it does not fit now."""
    count, cap_records, cap_bytes = len(payloads), config.cap_records, config.cap_bytes
    if not cap_records and not cap_bytes and not config.consumed_max_bytes:
        return
    most = config.most_bytes
    if most and total_bytes > most and (longest := largest(payloads)) > most:
        raise _never_fits(longest, "cap_bytes" if most == cap_bytes else "consumed_max_bytes", most)
    if config.discard is not Discard.REJECT:
        return
    if cap_bytes and total_bytes > cap_bytes:
        raise _never_fits(total_bytes, "cap_bytes", cap_bytes)
    if cap_records and count > cap_records:
        raise RecordTooLarge(
            f"{count} records can never fit under cap_records {cap_records}.", field="records", max=cap_records
        )
    held, size = (log.assigned_count, log.assigned_bytes) if log else (0, 0)
    if (cap_records and held + count > cap_records) or (cap_bytes and size + total_bytes > cap_bytes):
        raise TopicFull(count=held, bytes=size, cap_records=cap_records, cap_bytes=cap_bytes)


def _never_fits(size_bytes: int, bound: str, max_bytes: int) -> RecordTooLarge:
    what = f"{size_bytes} bytes can never fit under {bound} {max_bytes}."
    return RecordTooLarge(what, field="records", max=max_bytes)


def over_caps(config: TopicConfig, log: Log, records: int, size_bytes: int) -> tuple[int, int] | None:
    """(records, bytes) by which the log would exceed its caps with this much more in it; None: it would not.

    The limit on records that wait for consumers is a cap like the others, but `discard: reject` does not apply to it.
    """
    cap_records, most_bytes = config.cap_records, config.most_bytes
    over_records = log.assigned_count + records - cap_records if cap_records else 0
    over_bytes = log.assigned_bytes + size_bytes - most_bytes if most_bytes else 0
    if over_records <= 0 and over_bytes <= 0:
        return None
    return over_records if over_records > 0 else 0, over_bytes if over_bytes > 0 else 0


def eviction(config: TopicConfig, log: Log, plan: Eviction) -> control.EvictWatermark:
    """The frame that evicts the oldest records, by the assigned view of the log.

    Records that all consumers have read do not count as lost to a cap: they are evicted as consumed.
    """
    cause = LossCause.CONSUMED if plan.floor <= consumed_floor(config, log) else LossCause.CAP
    return control.EvictWatermark(floors={cause: plan.floor}, jobs=None if log.queue is None else plan.records)


def check_limits(logs: Logs, config: TopicConfig, total_bytes: int, *, has_key: bool) -> None:
    """Raises LimitReached or StorageFull when the engine holds as much as it may."""
    usage, options = logs.catalog.usage, logs.options
    if has_key and _keys_taken(logs) >= options.max_idempotency_keys:
        raise LimitReached(
            "Too many idempotency keys are live.", limit="max_idempotency_keys", max=options.max_idempotency_keys
        )
    if options.max_total_bytes and usage.bytes + total_bytes > options.max_total_bytes:
        raise LimitReached("The broker holds as much as it may.", limit="max_total_bytes", max=options.max_total_bytes)
    ephemeral = config.durability is Durability.EPHEMERAL
    if ephemeral and usage.ephemeral_bytes + total_bytes > options.ephemeral_max_bytes:
        raise StorageFull(
            "The memory for ephemeral topics is full.", limit="ephemeral_max_bytes", max=options.ephemeral_max_bytes
        )


def _keys_taken(logs: Logs) -> int:
    """The number of keys in the table, and of keys of writes in flight that are not in it yet."""
    held, pending = logs.catalog.usage.keys, logs.pending_keys
    if held + len(pending) < logs.options.max_idempotency_keys:
        return held
    return held + sum(not done.done() for done in pending.values())


def _write_evictions(logs: Logs, log: Log, evictions: Sequence[control.EvictWatermark]) -> None:
    """Write to the log that records from before the topic was ephemeral are evicted: a restart must not bring them
    back."""
    again = [msgspec.structs.replace(each, jobs=None) for each in evictions]  # their jobs have been counted already
    controls = encode_controls(again, log.topic_id, logs.now_ms(), durable=False)
    done = logs.submit_controls(log, controls, frees=True, needs_sync=False)
    done.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody waits for it
