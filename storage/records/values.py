"""What goes into the engine and what comes out: plain values."""

from __future__ import annotations

import enum
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from storage.config import TopicConfig
from storage.format.binary import binary_value, is_binary
from storage.format.meta import meta_of
from storage.format.record import body_sizes, split_body


class NewRecord(msgspec.Struct):
    """A record to be appended.

    `data` and `meta` are valid JSON text, stored and given back byte for byte. The caller vouches for the
    JSON (the HTTP layer decodes whole bodies straight into this struct, which checks it); sizes are checked here.
    `deliver_at` is ms since the epoch, `delay_ms` ms from now; queues only, not both.
    """

    data: msgspec.Raw
    meta: msgspec.Raw | None = None
    tag: str | None = None
    node: str | None = None
    delay_ms: int | None = None
    deliver_at: int | None = None


class BinaryRecord(NewRecord):
    """A record of raw bytes: `data` is anything, stored and given back byte for byte. It has neither meta nor delay."""

    if TYPE_CHECKING:

        def __init__(self, data: bytes, *, tag: str | None = None, node: str | None = None) -> None: ...


class PlainRecords(list[msgspec.Raw]):
    """Records that are data alone: what most writes are made of, and the fastest to append."""

    __slots__ = ("_sizes",)

    def sizes(self) -> array[int]:
        """Bytes of each; looked at once, so nothing is added afterwards."""
        try:
            return self._sizes
        except AttributeError:
            alike = {*map(len, self)}  # as most are: then there is no need for a number each
            self._sizes = array("I", alike) * len(self) if len(alike) == 1 else array("I", map(len, self))
            return self._sizes


class PlainBinary(PlainRecords):
    """Records that are raw bytes alone."""

    __slots__ = ()


class StoredBodies:
    """Records as they will lie in the log: `bodies` are the data of their frames, `{"data":…,"ct":…,"h":…}` as JSON, or
    a MessagePack map as `storage.format.binary` has it.

    `tags` of each, UTF-8, b"" = none; None: there are none. `binary` holds a byte for each, 1 where the body is
    MessagePack and 0 where it is JSON; None: all are JSON. The caller vouches for both, and that no body has a
    `deliver_at`. Sizes and tags are checked by the write. What is given is looked at once: nothing of it may change.
    """

    __slots__ = ("binary", "bodies", "payloads", "tags")

    def __init__(
        self,
        bodies: list[bytes],
        tags: list[bytes] | None = None,
        binary: bytes | None = None,
        payloads: array[int] | None = None,
    ) -> None:
        """`payloads`: bytes that each counts for, what `storage.format.record.body_sizes` says; None: it is asked."""
        self.bodies = bodies
        self.tags = tags
        self.binary = binary
        self.payloads = body_sizes(bodies) if payloads is None else payloads

    def __len__(self) -> int:
        return len(self.bodies)


class ProducerBatch(NamedTuple):
    """Which batch of an idempotent producer a write is: its records have the sequence numbers from `base_sequence` on,
    of 31 bits; `epoch` is of 15 bits, `producer_id` of 63."""

    producer_id: int
    epoch: int
    base_sequence: int


class Appended(msgspec.Struct, kw_only=True):
    """The outcome of a write. Times are ms: waited for the log, for its sync (0 when none was needed), and before that
    for room in the log's queue, which lets nobody in while too much waits there.
    """

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
    """A record as stored. `body` is the stored JSON object: {"data":…} or {"data":…,"meta":…}, further keys behind; of
    raw bytes it is `storage.format.binary`'s. `ts` is ms since the epoch; no node and no tag are empty."""

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
        """What was appended, byte for byte: the raw bytes, or JSON text."""
        body = self.body
        return binary_value(body) if is_binary(body) else bytes(split_body(body).data)

    @property
    def value(self) -> Any:
        """What was appended: bytes, or what the JSON says."""
        return binary_value(self.body) if is_binary(self.body) else msgspec.json.decode(split_body(self.body).data)

    @property
    def meta(self) -> Any:
        """What the JSON of its meta says; None when it has none."""
        found = meta_of(self.body)
        return msgspec.json.decode(found) if found else None


class TagMatch(msgspec.Struct, frozen=True):
    """A tag predicate: equal to `text`, or beginning with it when `prefix`. Untagged records never match."""

    text: bytes
    prefix: bool = False

    def matches(self, tag: bytes) -> bool:
        """Whether a stored tag (b'' = none) fits."""
        if not tag:
            return False
        return tag.startswith(self.text) if self.prefix else tag == self.text


class LossCause(enum.StrEnum):
    """Why records are gone. The numbering on disk is by these names (storage.md §7)."""

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
    """What to read: records with seq > from_seq, at least one if there is any, up to `limit` and `max_bytes`."""

    from_seq: int = 0
    limit: int = 256
    max_bytes: int = 1 << 20
    exclude_nodes: frozenset[bytes] = frozenset()
    tag: TagMatch | None = None
    from_ts: int | None = None
    epoch: int | None = None
    skip_corrupt: bool = False
    routing: bool = False
    """A router reads: not counted as a read of the topic, hop counts wanted, and the loop is not held up for long."""
    #: Nothing beyond this seq is looked at; None: all there is.
    to_seq: int | None = None


class ReadResult(msgspec.Struct, kw_only=True):
    """`next_from_seq` is the last seq examined; records left out by filters advance it."""

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
    """A queue's figures now. `lost`: jobs lost to cap or ttl before they were acked, ever."""

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
    """A topic's consumers now. `lag`: seqs that the slowest of them has still to read."""

    count: int
    lag: int


class TopicState(msgspec.Struct, kw_only=True):
    """One topic as it is now (one partition's figures where there is one). Times are ms since the epoch."""

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


class DeletedRecords(msgspec.Struct, kw_only=True):
    """The outcome of a permanent delete."""

    topic: str
    deleted: int
    earliest_seq: int
    head_seq: int
    count: int
    bytes: int
