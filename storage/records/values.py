"""Arguments and results of the engine: plain values."""

from __future__ import annotations

import enum
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from storage.format import binary_value, body_sizes, is_binary, meta_of, split_body
from storage.records.topic_config import TopicConfig


class NewRecord(msgspec.Struct):
    """A record to append.

    `data` and `meta` are valid JSON text, stored and returned byte for byte. The caller guarantees valid JSON (the
    HTTP layer decodes whole bodies into this struct, which checks it). Sizes are checked here. `deliver_at` is ms
    since the epoch, `delay_ms` is relative to now; for queues only, and not both.
    """

    data: msgspec.Raw
    meta: msgspec.Raw | None = None
    tag: str | None = None
    node: str | None = None
    delay_ms: int | None = None
    deliver_at: int | None = None


class BinaryRecord(NewRecord):
    """A record of raw bytes: `data` may be any bytes, stored and returned unchanged. It has neither meta nor delay."""

    if TYPE_CHECKING:

        def __init__(self, data: bytes, *, tag: str | None = None, node: str | None = None) -> None: ...


class PlainRecords(list[msgspec.Raw]):
    """Records with data only. Most writes are of this kind, which is the fastest to append."""

    __slots__ = ("_sizes",)

    def sizes(self) -> array[int]:
        """Bytes of each record; computed once, so no record may be added afterwards."""
        try:
            return self._sizes
        except AttributeError:
            uniform = {*map(len, self)}  # usually all sizes are equal: then no list of numbers is needed
            self._sizes = array("I", uniform) * len(self) if len(uniform) == 1 else array("I", map(len, self))
            return self._sizes


class PlainBinary(PlainRecords):
    """Records of raw bytes only."""

    __slots__ = ()


class StoredBodies:
    """Records as stored in the log: `bodies` are the data of their frames, `{"data":…,"ct":…,"h":…}` as JSON, or a
    MessagePack map as in `storage.format.binary`.

    `tags`: the tag of each record in UTF-8, b"" = none; None: no record has a tag. `binary` has a byte for each record,
    1 if the body is MessagePack and 0 if it is JSON; None: all are JSON. The caller guarantees both, and that no body
    has a `deliver_at`. The write checks sizes and tags. The contents must not change afterwards.
    """

    __slots__ = ("binary", "bodies", "payloads", "tags")

    def __init__(
        self,
        bodies: list[bytes],
        tags: list[bytes] | None = None,
        binary: bytes | None = None,
        payloads: array[int] | None = None,
    ) -> None:
        """`payloads`: the payload bytes of each record, as `storage.format.record.body_sizes` returns them; None: they
        are computed here."""
        self.bodies = bodies
        self.tags = tags
        self.binary = binary
        self.payloads = body_sizes(bodies) if payloads is None else payloads

    def __len__(self) -> int:
        return len(self.bodies)


class ProducerBatch(NamedTuple):
    """A write as a batch of an idempotent producer: its records have the sequence numbers from `base_sequence` on,
    of 31 bits; `epoch` has 15 bits, `producer_id` 63."""

    producer_id: int
    epoch: int
    base_sequence: int


class Appended(msgspec.Struct, kw_only=True):
    """The outcome of a write. Times are in ms: waiting for the log, waiting for its sync (0 when none was needed),
    and before that waiting for room in the log's queue, which admits nothing while it is full."""

    topic: str
    first_seq: int
    last_seq: int
    head_seq: int
    count: int
    created: bool = False
    deduped: bool = False
    payload_differs: bool = False
    wal_append_ms: float = 0.0
    fsync_ms: float = 0.0
    throttle_wait_ms: float = 0.0
    partition: int | None = None
    """Where the topic has several."""


class StoredRecord(NamedTuple):
    """A record as stored. `body` is the stored JSON object {"data":…} or {"data":…,"meta":…}, possibly with further
    keys; raw bytes are stored as in `storage.format.binary`. `ts` is ms since the epoch; no node or no tag is empty."""

    seq: int
    ts: int
    node: bytes
    tag: bytes
    body: bytes

    @property
    def binary(self) -> bool:
        """Whether it was appended as raw bytes."""
        return is_binary(self.body)

    @property
    def data(self) -> bytes:
        """The appended data, byte for byte: the raw bytes, or JSON text."""
        body = self.body
        return binary_value(body) if is_binary(body) else bytes(split_body(body).data)

    @property
    def value(self) -> Any:
        """The appended data: bytes, or the decoded JSON."""
        return binary_value(self.body) if is_binary(self.body) else msgspec.json.decode(split_body(self.body).data)

    @property
    def meta(self) -> Any:
        """The decoded meta; None when the record has none."""
        found = meta_of(self.body)
        return msgspec.json.decode(found) if found else None


class TagMatch(msgspec.Struct, frozen=True):
    """A tag predicate: equal to `text`, or with `text` as its beginning if `prefix`. Untagged records never match."""

    text: bytes
    prefix: bool = False

    def matches(self, tag: bytes) -> bool:
        """Whether a stored tag (b'' = none) matches."""
        if not tag:
            return False
        return tag.startswith(self.text) if self.prefix else tag == self.text


class LossCause(enum.StrEnum):
    """Why records are gone. These names stand for the numbers on disk (docs/reference/format.md#evictwatermark)."""

    CAP = "cap"
    TTL = "ttl"
    DELETE = "delete"
    CONSUMED = "consumed"
    CRASH = "crash"
    SOURCE_TRIM = "source_trim"
    SALVAGE = "salvage"


class Tombstone(msgspec.Struct, frozen=True, kw_only=True):
    """Announces a loss: seqs gap_from to gap_to (inclusive). `reason` is a LossCause value, 'mixed' or 'recreated'."""

    gap_from: int
    gap_to: int
    reason: str
    missed_estimate: int
    earliest_seq: int
    head_seq: int


class ReadQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The records to read: seq > from_seq, up to `limit` and `max_bytes`, but at least one if there is any."""

    from_seq: int = 0
    limit: int = 256
    max_bytes: int = 1 << 20
    exclude_nodes: frozenset[bytes] = frozenset()
    tag: TagMatch | None = None
    from_ts: int | None = None
    epoch: int | None = None
    skip_corrupt: bool = False
    routing: bool = False
    """A router reads: it does not count as a read of the topic, returns hop counts, and occupies the loop briefly."""
    #: The read ends at this seq; None: no bound.
    to_seq: int | None = None


class ReadResult(msgspec.Struct, kw_only=True):
    """`next_from_seq` is the last seq examined; records that filters exclude advance it too."""

    topic: str
    records: Sequence[StoredRecord]
    next_from_seq: int
    head_seq: int
    earliest_seq: int
    tombstone: Tombstone | None = None
    corrupt_seqs: list[int] | None = None
    records_scanned: int = 0
    cold_segments_read: int = 0
    bytes: int = 0
    """Of the records' bodies."""
    hops: dict[int, int] | None = None
    """By seq, of records that routers have copied; only for a router."""


class QueueFigures(msgspec.Struct, kw_only=True):
    """A queue's figures. `lost`: jobs that a cap or ttl has deleted before they were acked, since the queue exists."""

    ready: int
    in_flight: int
    delayed: int
    dead_lettered: int
    dead_pending: int
    lost: int
    paused: bool
    oldest_ready_age_ms: int | None
    waiting_claims: int


class ConsumerFigures(msgspec.Struct, kw_only=True):
    """The figures of a topic's consumers. `lag`: seqs that the slowest consumer has not read yet."""

    count: int
    lag: int


class TopicState(msgspec.Struct, kw_only=True):
    """One topic as it is now (one partition's figures where it has one). Times are ms since the epoch."""

    topic: str
    """The address: of a partition above 0, `name/partition`."""
    topic_id: int
    epoch: int
    config: TopicConfig
    head_seq: int
    next_seq: int
    earliest_seq: int
    evict_floor: int
    count: int
    bytes: int
    last_write_ts: int | None = None
    last_read_ts: int | None = None
    queue: QueueFigures | None = None
    consumers: ConsumerFigures | None = None


class PartitionStates(NamedTuple):
    """The states of the partitions of one topic by number, partition 0 first. `offline`: the partitions whose cell is
    away, with that cell."""

    states: dict[int, TopicState]
    offline: dict[int, int]


class DeletedRecords(msgspec.Struct, kw_only=True):
    """The outcome of a permanent delete."""

    topic: str
    deleted: int
    earliest_seq: int
    head_seq: int
    count: int
    bytes: int
