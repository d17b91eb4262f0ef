"""The settings of a topic, in requests and answers.

Source: docs/reference/api.md#topics.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field

from schemas.fields import I32, U64, AnswerModel, ChangeModel, ConfigModel, Flag, NameOfTopic

TopicType = Literal["log", "queue"]
Discard = Literal["old", "reject"]
Durability = Literal["ephemeral", "memory", "disk", "fsync"]
Retention = Literal["all", "consumed"]
CleanupPolicy = Literal["delete", "compact", "compact,delete", "none"]
CompressionType = Literal["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"]
Partitions = Annotated[int, Field(strict=True, ge=1, le=1024)]

EXAMPLE_SETTINGS: dict[str, Any] = {"ttl_ms": 86_400_000, "cap_records": 1_000_000, "durability": "fsync"}
EXAMPLE_CONFIG: dict[str, Any] = {
    "type": "log",
    "ttl_ms": 86_400_000,
    "cap_records": 1_000_000,
    "cap_bytes": 0,
    "discard": "old",
    "durability": "fsync",
    "durable": True,
    "priority": None,
    "auto_priority": True,
    "auto_create": True,
    "dedupe_node": True,
    "idempotency_window_ms": 120_000,
    "retention": "all",
    "consumed_max_bytes": 0,
    "partitions": 1,
    "lease_ms": 30_000,
    "claim_jitter_ms": 0,
    "max_deliveries": 0,
    "dead_letter": None,
    "leases_durable": False,
    "retry_backoff_ms": 0,
    "retry_backoff_max_ms": 3_600_000,
    "cleanup_policy": "delete",
    "max_message_bytes": 0,
    "compression_type": "producer",
}


class _Settings(ConfigModel):
    type: TopicType = Field("log", description="It cannot be changed later.")
    ttl_ms: U64 = Field(0, description="Records older than this are deleted; 0 = never.")
    cap_records: U64 = Field(0, description="The most live records; 0 = no limit.")
    cap_bytes: U64 = Field(0, description="The most live bytes of data and meta; 0 = no limit.")
    discard: Discard = Field(
        "old", description="At a cap: delete the oldest records (old), or refuse the write (reject)."
    )
    durability: Durability | None = Field(
        None, description="The durability class: what an ack means. If omitted, `durable` decides."
    )
    durable: Flag = Field(False, description="true: class fsync, false: class disk. Ignored if `durability` is given.")
    priority: I32 | None = Field(None, description="Clamped to -1000 … 1000; null = automatic.")
    auto_priority: Flag = True
    auto_create: Flag = True
    dedupe_node: Flag = Field(True, description="Readers that name their node do not get records of that node.")
    idempotency_window_ms: U64 = Field(120_000, description="How long an idempotency key is remembered.")
    retention: Retention = "all"
    consumed_max_bytes: U64 = 0
    partitions: Partitions = Field(
        1, description="The number of partitions. It cannot be reduced. If omitted, it stays."
    )
    lease_ms: U64 = Field(30_000, description="Queues: the visibility timeout; clamped to 100 … 86 400 000.")
    claim_jitter_ms: U64 = Field(0, description="Queues: the longest random delay of a claim; clamped to 0 … 5000.")
    max_deliveries: U64 = Field(0, description="Queues: deliveries before a job moves to dead_letter; 0 = no limit.")
    dead_letter: NameOfTopic | None = Field(
        None, description="Queues: the dead letter topic, for jobs that were delivered too often."
    )
    leases_durable: Flag = False
    retry_backoff_ms: U64 = 0
    retry_backoff_max_ms: U64 = 3_600_000
    cleanup_policy: CleanupPolicy = Field(
        "delete", description="compact, none: nothing is deleted; without ttl_ms and caps."
    )
    max_message_bytes: U64 = Field(0, description="The largest batch of a Kafka producer; 0 = the broker's limit.")
    compression_type: CompressionType = Field(
        "producer", description="The codec of the batches that Kafka clients fetch."
    )


class TopicSettings(_Settings):
    """The new settings of a topic. Omitted fields return to their defaults, except partitions."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE_SETTINGS]})

    def resolved(self) -> dict[str, Any]:
        """All fields by name, with `durability` and without `durable`, as the storage engine stores them."""
        fields = self.model_dump(exclude={"durable"})
        if fields["durability"] is None:
            fields["durability"] = "fsync" if self.durable else "disk"
        return fields


class TopicChange(_Settings, ChangeModel):
    """Changes of a topic's settings. Omitted fields stay."""

    nullable: ClassVar[frozenset[str]] = frozenset({"priority", "dead_letter"})

    model_config = ConfigDict(json_schema_extra={"examples": [{"ttl_ms": 86_400_000}]})

    def applied_to(self, config: dict[str, Any]) -> dict[str, Any]:
        """The settings in `config` with these changes, in the form that the storage engine stores."""
        fields = config | self.model_dump(include=self.model_fields_set - {"durable"})
        # `durable` changes the class only if the current class does not match it.
        other = self.durable is not (config["durability"] == "fsync")
        if other and "durable" in self.model_fields_set and "durability" not in self.model_fields_set:
            fields["durability"] = "fsync" if self.durable else "disk"
        return fields


class TopicConfig(AnswerModel):
    """All settings of a topic as they are stored: clamped, with the durability class."""

    type: TopicType
    ttl_ms: int
    cap_records: int
    cap_bytes: int
    discard: Discard
    durability: Durability
    durable: bool
    priority: int | None
    auto_priority: bool
    auto_create: bool
    dedupe_node: bool
    idempotency_window_ms: int
    retention: Retention
    consumed_max_bytes: int
    partitions: int
    lease_ms: int
    claim_jitter_ms: int
    max_deliveries: int
    dead_letter: str | None
    leases_durable: bool
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    cleanup_policy: CleanupPolicy
    max_message_bytes: int
    compression_type: CompressionType
