"""The handlers of the Kafka port, one file for each area."""

from broker.kafka.calls import (
    admin,
    config_resources,
    configs,
    describe_topics,
    fetch,
    group_admin,
    groups,
    list_offsets,
    metadata,
    offsets,
    produce,
    producers,
    sasl,
    share,
    share_admin,
    versions,
)

__all__ = [
    "admin",
    "config_resources",
    "configs",
    "describe_topics",
    "fetch",
    "group_admin",
    "groups",
    "list_offsets",
    "metadata",
    "offsets",
    "produce",
    "producers",
    "sasl",
    "share",
    "share_admin",
    "versions",
]
