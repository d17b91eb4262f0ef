"""The broker settings that Kafka's tools read. Environment variables set them when the broker starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker.kafka.cluster import node_id
from broker.kafka.settings import Kind

if TYPE_CHECKING:
    from broker.kafka.node import Node


class BrokerSetting(NamedTuple):
    name: str
    kind: Kind
    value: str


def broker_settings(broker: Node, host: str, port: int) -> list[BrokerSetting]:
    """The settings by name. `host` and `port`: the advertised address."""
    ours = broker.settings
    protocol = f"{'SASL_' * (broker.gate is not None)}{'SSL' if ours.tls_cert else 'PLAINTEXT'}"
    return [
        BrokerSetting("advertised.listeners", Kind.STRING, f"{protocol}://{host}:{port}"),
        BrokerSetting("auto.create.topics.enable", Kind.BOOLEAN, "true"),
        BrokerSetting("broker.id", Kind.INT, str(node_id(broker))),
        BrokerSetting("compression.type", Kind.STRING, "producer"),
        BrokerSetting("connections.max.idle.ms", Kind.LONG, str(ours.kafka_idle_s * 1000)),
        BrokerSetting("default.replication.factor", Kind.INT, "1"),
        BrokerSetting("delete.topic.enable", Kind.BOOLEAN, "true"),
        BrokerSetting("log.cleanup.policy", Kind.LIST, "delete"),
        BrokerSetting("log.dirs", Kind.STRING, str(ours.data_dir.absolute())),
        BrokerSetting("log.message.timestamp.type", Kind.STRING, "CreateTime"),
        BrokerSetting("log.retention.bytes", Kind.LONG, "-1"),
        BrokerSetting("log.retention.ms", Kind.LONG, "-1"),
        BrokerSetting("message.max.bytes", Kind.INT, str(broker.engine.options.max_record_bytes)),
        BrokerSetting("min.insync.replicas", Kind.INT, "1"),
        BrokerSetting("num.partitions", Kind.INT, str(ours.kafka_auto_partitions)),
        BrokerSetting("offsets.retention.minutes", Kind.INT, "10080"),
        BrokerSetting("socket.request.max.bytes", Kind.INT, str(ours.kafka_max_request_bytes)),
    ]
