"""The values of calls: records to append, records read, and the answers of the broker."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec

from topics_client.errors import InvalidRequest, NotReady, TopicsError


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRecord:
    """A record to append. `data` and `meta` are Python values, or `bytes` that already are JSON text (stored byte for
    byte).

    `delay_ms` and `deliver_at` (ms since the epoch) are for queues, and exclude each other.
    """

    data: Any
    tag: str | None = None
    node: str | None = None
    meta: Any = None
    delay_ms: int | None = None
    deliver_at: int | None = None


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A record as stored. `ts` is ms since the epoch; `data_raw` and `meta_raw` are the JSON text as it was written.
    `partition`: its partition, in reads, consumers and watches."""

    seq: int
    ts: int
    node: str | None = None
    tag: str | None = None
    data_raw: bytes = b"null"
    meta_raw: bytes | None = None
    partition: int = 0

    @property
    def data(self) -> Any:
        """The decoded value. It is decoded at each access. Integers of any size are exact; 1e400 becomes inf."""
        # The standard library's decoder on purpose: msgspec refuses numbers beyond a float's range.
        return json.loads(self.data_raw)

    @property
    def meta(self) -> Any:
        """The decoded meta, None if there is none."""
        return None if self.meta_raw is None else json.loads(self.meta_raw)

    def to_json(self) -> bytes:
        """The record on one line, as the broker writes it; `data` and `meta` byte for byte except for line breaks.

        A raw line break can only stand between tokens in valid JSON, so a space there means the same.
        """
        parts = [b'{"$seq":%d,"$ts":%d' % (self.seq, self.ts)]
        if self.node is not None:
            parts.append(b',"$node":' + msgspec.json.encode(self.node))
        if self.tag is not None:
            parts.append(b',"$tag":' + msgspec.json.encode(self.tag))
        parts.append(b',"data":' + one_line(self.data_raw))
        if self.meta_raw is not None:
            parts.append(b',"meta":' + one_line(self.meta_raw))
        return b"".join(parts) + b"}"


class Job(Record, frozen=True, kw_only=True):
    """A leased record of a queue. Ack or nack it before `deadline` (ms since the epoch, the broker's clock).
    `deliveries`: how often it was delivered, this time included."""

    lease_id: str
    deadline: int
    deliveries: int

    def to_json(self) -> bytes:
        """The job on one line, as the broker writes it."""
        lease = b',"lease_id":%b,"deadline":%d' % (msgspec.json.encode(self.lease_id), self.deadline)
        seq, comma, rest = super().to_json().partition(b",")
        labels, data, payload = rest.partition(b',"data":')
        return seq + lease + comma + labels + b',"deliveries":%d' % self.deliveries + data + payload


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs that a claim returned, and how many more can be claimed."""

    topic: str
    jobs: list[Job]
    ready: int


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of an ack, nack or extend: for how many jobs it was carried out, and which seqs were skipped because
    they are not (or no longer) leased to the caller. They are skipped with `skip_lost`; otherwise LeaseLost is raised.
    After a repeated call, the jobs of the first attempt are among them.

    `deadlines` of an extend, by seq.
    """

    topic: str
    count: int
    skipped: list[int]
    ready: int
    in_flight: int
    deadlines: dict[int, int] = {}


class JobSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A job in a list. `state`: ready, leased (by `node`, until `deadline`), delayed (until `ready_at`) or dead."""

    seq: int = msgspec.field(name="$seq")
    state: str
    deliveries: int
    node: str | None = None
    deadline: int | None = None
    ready_at: int | None = None


class JobPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of a list of jobs; `next_cursor` is set when more follow."""

    jobs: list[JobSummary]
    next_cursor: str | None = None


class Paused(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a queue is paused."""

    topic: str
    paused: bool


class Purged(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs a purge deleted."""

    purged: int


class Redriven(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs a redrive moved (or, in a dry run, would move), and how many jobs of the queue are left there."""

    moved: int
    remaining: int


def one_line(raw: bytes) -> bytes:
    """The same JSON without line breaks."""
    if b"\n" in raw or b"\r" in raw:
        return raw.replace(b"\r", b" ").replace(b"\n", b" ")
    return raw


class Tombstone(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Seqs `gap_from` to `gap_to` (inclusive) of a partition are gone; `missed_estimate` is an upper bound of the loss.

    `reason` "recreated" means that the topic was deleted and created again: the next records start at seq 1.
    """

    gap_from: int
    gap_to: int
    reason: str
    missed_estimate: int
    earliest_seq: int
    head_seq: int
    partition: int = 0


class Watched(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a watched topic.

    `kind`: record (`records` after `from_seq`, up to and including `to_seq`; `corrupt_seqs` of them are damaged and
    left out), tombstone (`tombstone` names the missing seqs), caught-up (what follows is live), topic-deleted (no more
    events of this topic), error (`error` says why this topic cannot be read; the other topics continue, and a transient
    error is tried again). `id` is the position after it in all topics.
    """

    topic: str
    kind: str
    head_seq: int
    partition: int = 0
    records: list[Record] = []
    corrupt_seqs: list[int] = []
    tombstone: Tombstone | None = None
    from_seq: int = 0
    to_seq: int = 0
    id: str = ""
    error: TopicsError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """One answer of `read`. Continue from `next_from_seq`; `lag` is how many seqs are left to examine."""

    topic: str
    records: list[Record]
    next_from_seq: int
    head_seq: int
    earliest_seq: int
    caught_up: bool
    lag: int
    tombstone: Tombstone | None = None
    corrupt_seqs: list[int] | None = None


class Appended(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of an append. `deduped`: an append with the same key was stored before, and these are its seqs.

    `payload_differs`: the stored append had other records; the records of this call were not stored.
    """

    topic: str
    first_seq: int
    last_seq: int
    head_seq: int
    count: int
    created: bool = False
    deduped: bool = False
    payload_differs: bool = False
    #: The partition of the records, in a topic with several.
    partition: int | None = None

    @property
    def seqs(self) -> range:
        """The seqs of this write, in the order of the records."""
        return range(self.first_seq, self.last_seq + 1)


class PartitionState(msgspec.Struct, frozen=True, kw_only=True):
    """One partition of a topic as it is now. Seqs count from 1 in each."""

    partition: int
    epoch: int
    head_seq: int
    earliest_seq: int
    next_seq: int
    count: int
    bytes: int
    last_write_ts: int | None = None


class OfflinePartition(msgspec.Struct, frozen=True, kw_only=True):
    """A partition whose cell is away."""

    partition: int
    cell: int


class TopicState(msgspec.Struct, frozen=True, kw_only=True):
    """One topic as it is now. Times are ms since the epoch. A topic that is created again under its name has another
    `epoch`.

    `queue`: figures of a queue. `consumers`: how many a log has, if any, and the lag of the slowest. `partitions`: set
    if there are several; `count` and `bytes` are of all of them, the seqs and the epoch those of partition 0.
    `offline_partitions`: those of a cell that is away, if the state need not be complete. They are missing in
    `partitions`, `count` and `bytes`.
    """

    topic: str
    type: str
    epoch: int
    head_seq: int
    earliest_seq: int
    next_seq: int
    count: int
    bytes: int
    config: dict[str, Any]
    effective_priority: int | None = None
    last_write_ts: int | None = None
    last_read_ts: int | None = None
    queue: dict[str, Any] | None = None
    consumers: dict[str, Any] | None = None
    partitions: list[PartitionState] = []
    offline_partitions: list[OfflinePartition] = []

    def of(self, partition: int | None) -> PartitionState:
        """One partition, 0 unless given. Raises InvalidRequest for one that does not exist, NotReady for one that is
        offline."""
        for each in self.partitions:
            if each.partition == (partition or 0):
                return each
        for offline in self.offline_partitions:
            if offline.partition == partition:
                raise NotReady(
                    f"Partition {partition} of {self.topic} is in cell {offline.cell}, which cannot be reached now.",
                    status=503,
                    detail={"cell": offline.cell, "outcome": "none"},
                )
        if partition:
            raise InvalidRequest(f"{self.topic} has no partition {partition}.", detail={"field": "partition"})
        return PartitionState(
            partition=0,
            epoch=self.epoch,
            head_seq=self.head_seq,
            earliest_seq=self.earliest_seq,
            next_seq=self.next_seq,
            count=self.count,
            bytes=self.bytes,
            last_write_ts=self.last_write_ts,
        )


class QueueSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of a queue in a list. `oldest_ready_age_ms`: None when no job is ready."""

    ready: int
    in_flight: int
    delayed: int
    paused: bool
    oldest_ready_age_ms: int | None = None


class TopicSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One topic in a list. `queue`: set for queues; older brokers leave it out."""

    topic: str
    type: str
    head_seq: int
    earliest_seq: int
    count: int
    bytes: int
    durable: bool
    effective_priority: int | None = None
    partitions: int = 1
    queue: QueueSummary | None = None


class TopicPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of a list of topics; `next_cursor` is set when more follow."""

    topics: list[TopicSummary]
    next_cursor: str | None = None


class TopicPut(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of `put_topic`; `config` has every field, as stored."""

    topic: str
    created: bool
    config: dict[str, Any]


class TopicDeleted(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of `delete_topic`; `deleted` is False when it did not exist."""

    topic: str
    deleted: bool
    routers_removed: list[str] = []


class RecordsDeleted(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of `delete_records`; `count` and `bytes` are what remains in the topic."""

    topic: str
    deleted: int
    earliest_seq: int
    head_seq: int
    count: int
    bytes: int


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The process answers. `cluster_id` may be missing while it starts. `kernel` is compiled or python; older brokers
    leave it out. `set_id`: that of a set of cells; `cell`: the cell that answers, None at the gateway."""

    status: str
    version: str
    uptime_ms: int
    cluster_id: str | None = None
    kernel: str | None = None
    set_id: str | None = None
    cell: int | None = None


class Takeover(msgspec.Struct, frozen=True, kw_only=True):
    """The process that will own a cell of a cluster next. `state`: waiting (for the end of the present owner), taking
    (what is in the bucket), or recovering. `since_ms`: when that began, in milliseconds since 1970, by the clock of
    `node`. `progress`: the share of the log that it has replayed."""

    node: str
    state: str
    since_ms: int = 0
    progress: float = 0.0


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One cell of a set. `state`: ready, starting or down, as it was found last. `restarts`: how often its process was
    started again since the start of the set. `http`: the URL for clients that go to it directly, `kafka`: host:port for
    Kafka clients; None if it has no such port. In a cluster, `node` owns it, and `generation` grows when the owner
    changes; None if no owner is known. `takeover`: the process that will own it next; None if there is none. `wanted`:
    the node at which an operator wants it."""

    cell: int
    state: str
    restarts: int = 0
    http: str | None = None
    kafka: str | None = None
    node: str | None = None
    generation: int | None = None
    takeover: Takeover | None = None
    wanted: str | None = None


class ClusterNode(msgspec.Struct, frozen=True, kw_only=True):
    """One node of a cluster. `state`: alive, draining, drained or silent. `age_ms`: time since the node that answered
    saw a sign of life of it. `cells`: the numbers of those that it owns. `http`: host:port of its gateway, if it is
    known. `drain`: an operator wants it to have no cells. `formats`: of the bucket, those that it reads."""

    node: str
    state: str
    age_ms: int = 0
    cells: list[int] = []
    http: str | None = None
    version: str | None = None
    drain: bool | None = None
    formats: list[int] | None = None


class Gateway(msgspec.Struct, frozen=True, kw_only=True):
    """One gateway of a set. `restarts`: how often its process was started again since the start of the set."""

    gateway: int
    restarts: int = 0


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """The cells of a set, or of a cluster. `home_cells`: their number N, which decides the home cell of a name. `node`:
    the node of the cluster that answered, `nodes`: all of them; None and empty without a cluster. `plan`: the number of
    the last order to move a cell or drain a node."""

    set_id: str
    home_cells: int
    cells: list[Cell]
    gateways: list[Gateway] = []
    node: str | None = None
    nodes: list[ClusterNode] = []
    plan: int | None = None


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """The broker has recovered and serves."""

    status: str
    wal_replay_complete: bool = True
    topics: int = 0


class TopicSettings(TypedDict, total=False):
    """Settings of a topic. An omitted setting gets its default, also for an existing topic."""

    type: str
    ttl_ms: int
    cap_records: int
    cap_bytes: int
    discard: str
    durability: str
    durable: bool
    priority: int | None
    auto_priority: bool
    auto_create: bool
    dedupe_node: bool
    idempotency_window_ms: int
    retention: str
    consumed_max_bytes: int
    partitions: int
    lease_ms: int
    claim_jitter_ms: int
    max_deliveries: int
    dead_letter: str | None
    leases_durable: bool
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    cleanup_policy: str
    max_message_bytes: int
    compression_type: str
