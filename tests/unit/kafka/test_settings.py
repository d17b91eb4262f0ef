"""Kafka's settings of a topic, and the broker's own."""

from __future__ import annotations

import pytest

from broker.kafka import settings
from broker.kafka.settings import SETTINGS, InvalidConfig, Operation
from storage import CleanupPolicy, CompressionType, Durability, TopicConfig

PLAIN = TopicConfig()


def shown(config: TopicConfig) -> dict[str, str]:
    return {name: settings.value_of(setting, config, 1 << 20) for name, setting in SETTINGS.items()}


def test_new_topic_has_all_defaults() -> None:
    assert all(settings.is_default(setting, PLAIN) for setting in SETTINGS.values())
    assert settings.with_values([(name, setting.default) for name, setting in SETTINGS.items()], PLAIN) == PLAIN


@pytest.mark.parametrize(
    ("name", "value", "field", "ours"),
    [
        ("retention.ms", "86400000", "ttl_ms", 86_400_000),
        ("retention.bytes", "1000", "cap_bytes", 1000),
        ("max.message.bytes", "5000", "max_message_bytes", 5000),
        ("cleanup.policy", "compact", "cleanup_policy", CleanupPolicy.COMPACT),
        ("cleanup.policy", "delete,compact", "cleanup_policy", CleanupPolicy.BOTH),
        ("compression.type", "zstd", "compression_type", CompressionType.ZSTD),
        ("compression.type", "uncompressed", "compression_type", CompressionType.UNCOMPRESSED),
        ("cleanup.policy", "", "cleanup_policy", CleanupPolicy.NONE),
        ("topics.durability", "fsync", "durability", Durability.FSYNC),
    ],
)
def test_kafka_settings_map_to_topic_settings_and_back(name: str, value: str, field: str, ours: object) -> None:
    made = settings.with_values([(name, value)], PLAIN)
    assert getattr(made, field) == ours
    assert sorted(shown(made)[name].split(",")) == sorted(value.split(","))
    assert not settings.is_default(SETTINGS[name], made)
    assert settings.with_values([(name, None)], made) == PLAIN


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "0"), ("retention.ms", "-2"), ("retention.ms", "a day"), ("retention.bytes", "0"),
        ("retention.ms", str(1 << 63)), ("max.message.bytes", str(1 << 31)), ("cleanup.policy", "none"),
        ("cleanup.policy", "keep"), ("topics.durability", "maybe"), ("topics.type", "stream"),
        ("message.timestamp.type", "LogAppendTime"), ("min.insync.replicas", "2"), ("segment.ms", "soon"),
        ("preallocate", "1"), ("min.cleanable.dirty.ratio", "half"), ("compression.type", "brotli"), ("colour", "red"),
    ],
)  # fmt: skip
def test_invalid_values_are_refused(name: str, value: str) -> None:
    with pytest.raises(InvalidConfig, match=name):
        settings.with_values([(name, value)], PLAIN)


@pytest.mark.parametrize(
    ("name", "value"), [("segment.ms", "1000"), ("compression.zstd.level", "7"), ("flush.ms", "1")]
)
def test_tuning_settings_are_accepted_and_ignored(name: str, value: str) -> None:
    assert settings.with_values([(name, value)], PLAIN) == PLAIN


def test_alter_configs_resets_omitted_kafka_settings_and_keeps_other_settings() -> None:
    before = settings.with_values(
        [("retention.ms", "5"), ("retention.bytes", "6"), ("topics.durability", "fsync")], PLAIN
    )
    after = settings.replaced([("retention.ms", "7")], before)
    assert (after.ttl_ms, after.cap_bytes, after.durability) == (7, 0, Durability.FSYNC)


def test_incremental_changes_are_applied_in_order() -> None:
    operations = [
        ("retention.ms", Operation.SET, "5"),
        ("cleanup.policy", Operation.APPEND, "compact"),
        ("retention.ms", Operation.DELETE, None),
    ]
    both = settings.altered(operations, PLAIN)
    assert (both.ttl_ms, both.cleanup_policy) == (0, CleanupPolicy.BOTH)
    assert settings.altered([("cleanup.policy", Operation.SUBTRACT, "delete")], both).cleanup_policy == "compact"


@pytest.mark.parametrize("operation", [Operation.APPEND, Operation.SUBTRACT, 9])
def test_only_lists_are_added_to(operation: int) -> None:
    with pytest.raises(InvalidConfig):
        settings.altered([("retention.ms", operation, "5")], PLAIN)
