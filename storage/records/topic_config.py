"""A topic's settings, as an immutable value.

Numbers are clamped only here, so that the settings shown, stored and applied are the same.

Source: docs/reference/api.md#topics.
"""

from __future__ import annotations

import enum
from typing import Any

import msgspec

MAX_PRIORITY = 1000
MIN_LEASE_MS, MAX_LEASE_MS = 100, 86_400_000
MAX_CLAIM_JITTER_MS = 5000


class Durability(enum.StrEnum):
    """What an ack means: in memory only; no promise; survives the process; survives power loss."""

    EPHEMERAL = "ephemeral"
    MEMORY = "memory"
    DISK = "disk"
    FSYNC = "fsync"


class TopicType(enum.StrEnum):
    LOG = "log"
    QUEUE = "queue"


class Discard(enum.StrEnum):
    OLD = "old"
    REJECT = "reject"


class Retention(enum.StrEnum):
    ALL = "all"
    CONSUMED = "consumed"


class CleanupPolicy(enum.StrEnum):
    """The `cleanup.policy` of Kafka clients. COMPACT: no records are dropped, because compaction is not implemented.
    NONE: Kafka's empty list; no records are dropped either."""

    DELETE = "delete"
    COMPACT = "compact"
    BOTH = "compact,delete"
    NONE = "none"


class CompressionType(enum.StrEnum):
    """How Kafka clients get records. PRODUCER: as the producers of the partition compress theirs."""

    PRODUCER = "producer"
    UNCOMPRESSED = "uncompressed"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class TopicConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """One topic's settings, already clamped when made by `make`."""

    type: TopicType = TopicType.LOG
    ttl_ms: int = 0
    cap_records: int = 0
    cap_bytes: int = 0
    discard: Discard = Discard.OLD
    durability: Durability = Durability.DISK
    priority: int | None = None
    auto_priority: bool = True
    auto_create: bool = True
    dedupe_node: bool = True
    idempotency_window_ms: int = 120_000
    retention: Retention = Retention.ALL
    consumed_max_bytes: int = 0
    partitions: int = 1
    lease_ms: int = 30_000
    claim_jitter_ms: int = 0
    max_deliveries: int = 0
    dead_letter: str | None = None
    leases_durable: bool = False
    retry_backoff_ms: int = 0
    retry_backoff_max_ms: int = 3_600_000
    cleanup_policy: CleanupPolicy = CleanupPolicy.DELETE
    max_message_bytes: int = 0
    compression_type: CompressionType = CompressionType.PRODUCER

    @property
    def durable(self) -> bool:
        return self.durability is Durability.FSYNC

    @property
    def waiting_bytes(self) -> int:
        """The most live bytes that may wait for consumers; 0: no limit. `discard` does not apply: the oldest are
        deleted."""
        return self.consumed_max_bytes if self.retention is Retention.CONSUMED else 0

    @property
    def most_bytes(self) -> int:
        """The most live bytes, by the lower of both limits; 0: no limit."""
        if self.retention is Retention.ALL:
            return self.cap_bytes  # read at every write
        waiting = self.waiting_bytes
        return min(waiting, self.cap_bytes) if waiting and self.cap_bytes else waiting or self.cap_bytes

    def clamped(self) -> TopicConfig:
        """The same settings with every clamped number in its range."""
        priority = self.priority
        if priority is not None:
            priority = max(-MAX_PRIORITY, min(MAX_PRIORITY, priority))
        return msgspec.structs.replace(
            self,
            priority=priority,
            lease_ms=max(MIN_LEASE_MS, min(MAX_LEASE_MS, self.lease_ms)),
            claim_jitter_ms=max(0, min(MAX_CLAIM_JITTER_MS, self.claim_jitter_ms)),
        )

    def to_map(self) -> dict[str, Any]:
        """As stored in control frames and snapshots, and as echoed: every field by name."""
        return msgspec.to_builtins(self)

    @classmethod
    def from_map(cls, value: dict[str, Any]) -> TopicConfig:
        """Reads the result of `to_map`. Ignores unknown fields; missing ones get their defaults."""
        return msgspec.convert(value, cls)
