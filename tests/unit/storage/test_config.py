"""Topic settings: clamped in one place, stored and read back field by field."""

from __future__ import annotations

import pytest

from storage import Discard, Durability, Retention, TopicConfig, TopicType

BOUNDS = [
    ("priority", -1001, -1000),
    ("priority", -1000, -1000),
    ("priority", 1000, 1000),
    ("priority", 1001, 1000),
    ("priority", None, None),
    ("lease_ms", 99, 100),
    ("lease_ms", 100, 100),
    ("lease_ms", 86_400_000, 86_400_000),
    ("lease_ms", 86_400_001, 86_400_000),
    ("claim_jitter_ms", -1, 0),
    ("claim_jitter_ms", 5000, 5000),
    ("claim_jitter_ms", 5001, 5000),
]


@pytest.mark.parametrize(("field", "given", "kept"), BOUNDS)
def test_numbers_are_clamped_to_their_range(field: str, given: int | None, kept: int | None) -> None:
    assert getattr(TopicConfig(**{field: given}).clamped(), field) == kept


def test_clamping_is_idempotent_and_changes_only_values_out_of_range() -> None:
    config = TopicConfig(ttl_ms=5, cap_records=2, cap_bytes=10**12, lease_ms=1)
    clamped = config.clamped()
    assert clamped == TopicConfig(ttl_ms=5, cap_records=2, cap_bytes=10**12, lease_ms=100)
    assert clamped.clamped() == clamped


def test_default_settings_equal_the_documented_defaults() -> None:
    assert TopicConfig().to_map() == {
        "type": "log",
        "ttl_ms": 0,
        "cap_records": 0,
        "cap_bytes": 0,
        "discard": "old",
        "durability": "disk",
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


def test_a_config_is_restored_from_its_map() -> None:
    config = TopicConfig(
        type=TopicType.QUEUE,
        discard=Discard.REJECT,
        durability=Durability.MEMORY,
        retention=Retention.CONSUMED,
        priority=-7,
        dead_letter="dead",
    )
    assert TopicConfig.from_map(config.to_map()) == config


def test_unknown_fields_of_a_config_map_are_ignored() -> None:
    assert TopicConfig.from_map({"ttl_ms": 9, "of_a_later_version": [1]}) == TopicConfig(ttl_ms=9)


def test_only_fsync_is_durable() -> None:
    assert [each for each in Durability if TopicConfig(durability=each).durable] == [Durability.FSYNC]
