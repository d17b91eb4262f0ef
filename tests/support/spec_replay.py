"""Applies the batches of one shard to its logs, one after another. From the specification alone.

Readings, where the specification leaves a choice:

- A loss range of seqs not yet given out raises head to its end; it begins at head + 1 at the latest. So a jump in
  seq is either announced by a loss range before it, or leads exactly behind the last `reserved`.
- In an ephemeral log (its records meet the WAL only when its class changes) seqs below a floor are covered too.
- `ts` never goes backwards from Append to Append. (What an ephemeral log held in memory is written, with its own times,
  behind control frames that are younger.)
- The flag `durable` of an Append tells the class its log had then; for a log that is ephemeral it may be either.
- A floor is at most head + 1, bound_head at most what was ever given out, `reserved` never below head.
- At its creation the epoch of partition 0 is its topic_id.
- Retention by time is judged when reading; what is called live here may be expired.
- Records that are absorbed count as long as their Append is in the log; `spec_folders` then looks for them in segments.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.support.spec_consumers import Readers
from tests.support.spec_control import (
    APPEND,
    CHECKPOINT_MARK,
    CONFIG_UPDATE,
    CONSUMER,
    DELETE,
    EVICT_WATERMARK,
    HEAD_WATERMARK,
    LEASE,
    MOVED,
    ROUTER_CREATE,
    ROUTER_CURSOR,
    ROUTER_DELETE,
    SEGMENT,
    STATE,
    TOPIC_CREATE,
    TOPIC_DELETE,
    ControlViolation,
)
from tests.support.spec_frames import Frame, SpecViolation
from tests.support.spec_kept import Kept
from tests.support.spec_manifest import Manifest
from tests.support.spec_queue import Jobs
from tests.support.spec_routers import Routes
from tests.support.spec_wal import Batch

ANNOUNCED = frozenset({"cap", "ttl", "crash", "source_trim", "salvage"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A stored record: `data` and `meta` byte for byte, `extra` the other keys, `size` the bytes that it counts for."""

    seq: int
    ts: int
    node: bytes
    tag: bytes
    data: bytes
    meta: bytes | None
    extra: dict[str, Any]
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """What a Delete frame removes, by seq or by tag."""

    bound_head: int
    before_seq: int | None
    match: str | list[str] | None
    seqs: list[int] | None

    def removes(self, seq: int, tag: bytes) -> bool:
        chosen = seq in self.seqs if self.seqs is not None else self.before_seq is None or seq < self.before_seq
        return seq <= self.bound_head and chosen and (self.match is None or _matches(self.match, tag))


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """An idempotency key and the seqs of its write."""

    first_seq: int
    count: int
    ts: int
    hash: bytes


@dataclass(slots=True, kw_only=True)
class Log:
    """One log according to its frames. `head` is None until a frame sets it."""

    topic_id: int
    name: str
    topic: int
    partition: int
    partitions: int
    epoch: int
    config: dict[str, Any]
    head: int | None = 0
    reserved: int = 0
    last_append_ts: int | None = None
    #: False while only a snapshot knows the log and the replay has not reached the `as_of` of that snapshot.
    settled: bool = True
    config_known: bool = True
    #: False if its TopicCreate is no longer in the log. Then Appends of live records may be gone from it too.
    complete: bool = True
    manifest: Manifest = field(default_factory=Manifest)
    deletions: list[Deletion] = field(default_factory=list)
    #: The fields of the last section, until a frame of the log comes after it.
    last_section: dict[str, Any] | None = None
    floors: dict[str, int] = field(default_factory=dict)
    loss: set[tuple[int, int, str]] = field(default_factory=set)
    records: dict[int, Record] = field(default_factory=dict)
    keys: dict[str, Key] = field(default_factory=dict)
    jobs: Jobs = field(default_factory=Jobs)
    routes: Routes = field(default_factory=Routes)
    readers: Readers = field(default_factory=Readers)
    kept: Kept = field(default_factory=Kept)
    paused: bool = False

    @property
    def is_queue(self) -> bool:
        return self.config["type"] == "queue"

    @property
    def durability(self) -> str:
        return self.config["durability"]

    @property
    def floor(self) -> int:
        return max(self.floors.values(), default=1)

    @property
    def evict_floor(self) -> int:
        return max((floor for cause, floor in self.floors.items() if cause in ANNOUNCED), default=1)

    @property
    def promised_head(self) -> int:
        """The greatest seq for which an ack may have been sent, according to these bytes."""
        head = self.head or 0
        return head if self.durability == "fsync" else min(head, self.reserved)

    @property
    def highest_given_out(self) -> int:
        return max(self.head or 0, self.reserved)

    def deletes_say_gone(self, seq: int, tag: bytes) -> bool:
        """Whether a Delete that is still in the log removes a record."""
        return any(one.removes(seq, tag) for one in self.deletions)

    def drop_evicted(self) -> None:
        """Records below the floors are no longer live."""
        self.records = {seq: record for seq, record in self.records.items() if seq >= self.floor}


class Replay:
    """The logs of one shard. `apply` takes its batches in order, and `logs` is the result."""

    def __init__(self, logs: dict[int, Log] | None = None) -> None:
        self.logs = dict(logs or {})
        #: ids without a TopicCreate or section: logs that were deleted earlier. Their frames are skipped.
        self.orphans: set[int] = set()
        self.deleted: set[int] = set()
        #: What belongs to no log.
        self.kept = Kept()

    def apply(self, batch: Batch) -> None:
        for frame in batch.frames:
            if frame.type == TOPIC_CREATE:
                self._create(frame)
            elif frame.type == CHECKPOINT_MARK:
                self._mark(frame)
            elif frame.type == STATE and not frame.topic_id:
                self.kept.state(frame.fields or {})
            elif log := self._log_of(frame):
                log.last_section = None
                if frame.type == TOPIC_DELETE:
                    self._delete_log(log, frame)
                elif step := _STEPS.get(frame.type):
                    step(log, frame)
        self._remember_key(batch)
        self._remember_copy(batch)
        self._remember_producer(batch)
        self._route(batch)

    def _route(self, batch: Batch) -> None:
        """Check what the batch says of routers into its log. Copies come before the cursor that belongs to them."""
        hops: list[int] = []
        for frame in batch.frames:
            log = self.logs.get(frame.topic_id)
            if frame.type == APPEND:
                hops.append(frame.hops)
            elif log is not None and frame.type in (ROUTER_CREATE, ROUTER_DELETE, ROUTER_CURSOR):
                try:
                    log.routes.take(frame.type, frame.topic_id, frame.fields or {}, hops)
                except ControlViolation as error:
                    raise _wrong(frame, f"log {log.topic_id}: {error}") from error
                hops = []
        log = self.logs.get(batch.frames[0].topic_id)
        if any(hops) and log is not None and log.durability != "ephemeral":
            raise _wrong(batch.frames[0], "a routed copy without its router's cursor behind it")

    def _mark(self, frame: Frame) -> None:
        for topic_id, seq in frame.field("absorbed").items():
            log = self.logs.get(topic_id)
            # What was marked before a section was taken is in the section.
            if log is not None and log.settled:
                if log.last_section is not None and seq > log.last_section["absorbed"]:
                    log.last_section = None
                try:
                    log.manifest.mark(seq, log.head or 0)
                except ControlViolation as error:
                    raise _wrong(frame, f"log {topic_id}: {error}") from error

    def _log_of(self, frame: Frame) -> Log | None:
        if frame.topic_id == 0:
            return None
        if frame.topic_id not in self.logs:
            self.orphans.add(frame.topic_id)
        return self.logs.get(frame.topic_id)

    def _create(self, frame: Frame) -> None:
        if frame.topic_id in self.logs or frame.topic_id in self.orphans | self.deleted:
            raise _wrong(frame, f"topic_id {frame.topic_id} was in use before its TopicCreate")
        if frame.field("partition") == 0 and frame.field("epoch") != frame.topic_id:
            raise _wrong(frame, "the first epoch is the topic_id")
        names = ("name", "topic", "partition", "partitions", "epoch", "config")
        log = Log(topic_id=frame.topic_id, **{name: frame.field(name) for name in names})
        log.paused = frame.field("paused", False)
        log.jobs.lasting = bool(log.config.get("leases_durable"))
        self.logs[frame.topic_id] = log

    def _delete_log(self, log: Log, frame: Frame) -> None:
        if frame.field("name") != log.name:
            raise _wrong(frame, f"TopicDelete of {frame.field('name')!r}, but the log is {log.name!r}'s")
        del self.logs[log.topic_id]
        self.deleted.add(log.topic_id)

    def _remember_copy(self, batch: Batch) -> None:
        """The Batch names one copy; a Moved frame after them names several."""
        head = batch.head
        if head is None or head.topic_id not in self.logs:
            return
        appends = sum(frame.type == APPEND for frame in batch.frames)
        moved = [frame for frame in batch.frames if frame.type == MOVED]
        copies = [] if head.field("move") is None else [head.field("move")]
        copies += [[frame.field("source_id"), seq] for frame in moved for seq in frame.field("seqs")]
        if not copies:
            return
        if len(moved) > 1 or (moved and head.field("move") is not None):
            raise _wrong(head, "a batch says twice of what its Appends are copies")
        try:
            self.logs[head.topic_id].jobs.copies_of(copies, appends)
        except ControlViolation as error:
            raise _wrong(head, str(error)) from error

    def _remember_producer(self, batch: Batch) -> None:
        head = batch.head
        if head is None or head.field("producer") is None or head.topic_id not in self.logs:
            return
        count = sum(frame.type == APPEND for frame in batch.frames)
        try:
            self.logs[head.topic_id].kept.batch(head.field("producer"), head.field("first_seq", 0), count)
        except ControlViolation as error:
            raise _wrong(head, str(error)) from error

    def _remember_key(self, batch: Batch) -> None:
        head = batch.head
        if head is None or head.field("key") is None or head.topic_id not in self.logs:
            return
        count = sum(frame.type == APPEND for frame in batch.frames)
        self.logs[head.topic_id].keys[head.field("key")] = Key(
            first_seq=head.field("first_seq", 0), count=count, ts=head.ts, hash=head.field("hash")
        )


def _wrong(frame: Frame, reason: str) -> SpecViolation:
    return SpecViolation(frame.file, frame.offset, reason)


def _append(log: Log, frame: Frame) -> None:
    if frame.ts < (log.last_append_ts or 0):
        raise _wrong(frame, f"ts {frame.ts} goes back behind {log.last_append_ts}")
    if log.head is not None:
        if frame.seq <= log.head:
            raise _wrong(frame, f"seq {frame.seq} was given out before, head is {log.head}")
        _judge_jump(log, frame, log.head + 1)
    if log.config_known and log.durability != "ephemeral" and frame.durable != (log.durability == "fsync"):
        raise _wrong(frame, f"the flag durable does not fit class {log.durability}")
    log.head = frame.seq
    log.last_append_ts = frame.ts
    if frame.seq >= log.floor and frame.body is not None:
        body = frame.body
        log.records[frame.seq] = Record(
            seq=frame.seq,
            ts=frame.ts,
            node=frame.node,
            tag=frame.tag,
            data=body.data,
            meta=body.meta,
            extra=body.extra,
            size=body.size,
        )


def _judge_jump(log: Log, frame: Frame, expected: int) -> None:
    if frame.seq == expected or log.reserved == frame.seq - 1:
        return
    if log.durability == "ephemeral" and expected < frame.seq <= log.floor:
        return
    raise _wrong(frame, f"seq {frame.seq} where {expected} was due, and no loss range or reservation says why")


def _delete(log: Log, frame: Frame) -> None:
    bound, before = frame.field("bound_head"), frame.field("before_seq")
    if log.head is not None and bound > log.highest_given_out:
        raise _wrong(frame, f"bound_head {bound} lies ahead of every seq given out")
    deletion = Deletion(bound_head=bound, before_seq=before, match=frame.field("match"), seqs=frame.field("seqs"))
    log.deletions.append(deletion)
    if frame.field("ack") and (deletion.seqs is None or before is not None or deletion.match is not None):
        raise _wrong(frame, "an ack names its jobs by seq alone")
    if frame.field("ack") and len(set(deletion.seqs or [])) < len(deletion.seqs or []):
        raise _wrong(frame, "an ack names a job twice")
    log.jobs.delete(deletion.seqs if frame.field("ack") else None, None)
    for seq, record in list(log.records.items()):
        if deletion.removes(seq, record.tag):
            del log.records[seq]
    if before is not None and deletion.match is None and deletion.seqs is None:
        log.floors["delete"] = max(log.floors.get("delete", 1), min(before, bound + 1))


def _lease(log: Log, frame: Frame) -> None:
    event, rows = frame.field("event"), frame.field("jobs")
    if log.config_known and event not in ("dead", "released") and not log.is_queue:
        raise _wrong(frame, f"a Lease that says {event} in a log that is no queue")
    if log.head is not None and any(row[0] > log.highest_given_out for row in rows):
        raise _wrong(frame, f"a Lease of seqs that were never given out: {rows}")
    try:
        log.jobs.take(frame.fields or {}, frame.node, frame.ts)
    except ControlViolation as error:
        raise _wrong(frame, f"log {log.topic_id}: {error}") from error


def _consume(log: Log, frame: Frame) -> None:
    try:
        log.readers.take(frame.fields or {}, log.head, log.durability if log.config_known else "")
    except ControlViolation as error:
        raise _wrong(frame, f"log {log.topic_id}: {error}") from error
    log.kept.consumer(frame.fields or {})


def _keep(log: Log, frame: Frame) -> None:
    log.kept.state(frame.fields or {})


def _matches(match: str | list[str], tag: bytes) -> bool:
    if not tag:
        return False
    if isinstance(match, str):
        return tag == match.encode()
    _, operator, text = match
    return tag == text.encode() if operator == "Eq" else tag.startswith(text[:-1].encode())


def _evict(log: Log, frame: Frame) -> None:
    for cause, floor in frame.field("floors", {}).items():
        log.floors[cause] = max(log.floors.get(cause, 1), floor)
    for first, last, cause in sorted(frame.field("loss", [])):
        log.loss.add((first, last, cause))
        if log.head is not None:
            if first > log.head + 1:
                raise _wrong(frame, f"a loss range from {first} leaves a hole behind head {log.head}")
            log.head = max(log.head, last)
    _merge_loss(log)
    if log.head is not None and log.floor > log.highest_given_out + 1:
        raise _wrong(frame, f"a floor of {log.floor} lies ahead of every seq given out")
    log.drop_evicted()


def _merge_loss(log: Log) -> None:
    """Ranges that the evict floor has reached become part of the floor of their own cause."""
    while reached := {one for one in log.loss if one[0] <= log.evict_floor}:
        log.loss -= reached
        for _, last, cause in reached:
            log.floors[cause] = max(log.floors.get(cause, 1), last + 1)


def _reserve(log: Log, frame: Frame) -> None:
    reserved = frame.field("reserved")
    if log.head is not None and reserved < log.head:
        raise _wrong(frame, f"reserved {reserved} is below head {log.head}")
    log.reserved = reserved


def _segment(log: Log, frame: Frame) -> None:
    if not log.settled:
        return  # it is in the section
    try:
        log.manifest.take(frame.fields or {})
    except ControlViolation as error:
        raise _wrong(frame, str(error)) from error


def _configure(log: Log, frame: Frame) -> None:
    for name in ("name", "topic", "partition"):
        if frame.field(name) != getattr(log, name):
            raise _wrong(frame, f"a ConfigUpdate does not change {name}")
    if frame.field("partitions") < log.partitions:
        raise _wrong(frame, "partitions never shrink")
    log.config_known = True
    log.paused = frame.field("paused", log.paused)
    log.partitions, log.epoch, log.config = frame.field("partitions"), frame.field("epoch"), frame.field("config")
    lasting = bool(log.config.get("leases_durable"))
    if lasting != log.jobs.lasting:  # what leases there are is not in the log, or no longer
        log.jobs.lasting, log.jobs.partial = lasting, True


_STEPS = {
    APPEND: _append,
    DELETE: _delete,
    EVICT_WATERMARK: _evict,
    HEAD_WATERMARK: _reserve,
    CONFIG_UPDATE: _configure,
    SEGMENT: _segment,
    LEASE: _lease,
    CONSUMER: _consume,
    STATE: _keep,
}
