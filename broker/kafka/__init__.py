"""The Kafka port: serves the same topics by Kafka's wire protocol.

Source: docs/guides/kafka.md.
"""

from typing import TYPE_CHECKING

from broker.kafka import settings
from broker.kafka.broker_settings import BrokerSetting, broker_settings
from broker.kafka.changes import change
from broker.kafka.cluster import BROKER_ID, cluster_id, named_operations, topic_operations
from broker.kafka.codecs import Codecs
from broker.kafka.described import RECALL, Described
from broker.kafka.errors import ErrorCode
from broker.kafka.group_access import MAY_USE, deciding, may_use_group, require_consumer, require_group, usable_groups
from broker.kafka.mapping import NO_TIME, Headers, concatenated, to_kafka, to_stored
from broker.kafka.metrics import KafkaMetrics
from broker.kafka.names import GROUP_PREFIX, consumer_name, group_of
from broker.kafka.node import Cells, Node
from broker.kafka.packed import Packed
from broker.kafka.settings import InvalidConfig, Setting, is_compacted, key_missing
from broker.kafka.start import BoundPort, bind_port, listen_for_kafka

if TYPE_CHECKING:
    from broker.kafka.port import Port

__all__ = [
    "BROKER_ID",
    "GROUP_PREFIX",
    "MAY_USE",
    "NO_TIME",
    "RECALL",
    "BoundPort",
    "BrokerSetting",
    "Cells",
    "Codecs",
    "Described",
    "ErrorCode",
    "Headers",
    "InvalidConfig",
    "KafkaMetrics",
    "Node",
    "Packed",
    "Port",
    "Setting",
    "bind_port",
    "broker_settings",
    "change",
    "cluster_id",
    "concatenated",
    "consumer_name",
    "deciding",
    "group_of",
    "is_compacted",
    "key_missing",
    "listen_for_kafka",
    "may_use_group",
    "named_operations",
    "require_consumer",
    "require_group",
    "settings",
    "to_kafka",
    "to_stored",
    "topic_operations",
    "usable_groups",
]
