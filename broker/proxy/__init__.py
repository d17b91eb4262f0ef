"""The parts of Kafka's REST Proxy, over the same topics: formats, consumer instances and their groups."""

from broker.proxy import lags, media, polling, producing, records, topics, v3, v3_records
from broker.proxy.assignment import Partition
from broker.proxy.base_uri import base_of
from broker.proxy.cell_sources import CellSources
from broker.proxy.errors import (
    BadRequest,
    ClusterMissing,
    ConfigMissing,
    ConsumerMissing,
    GroupMissing,
    PartitionMissing,
    ProxyError,
    TopicMissing,
    TopicPartitionMissing,
    Unprocessable,
    answer_v2,
    answer_v3,
)
from broker.proxy.group_view import GroupView, MemberView, group_view
from broker.proxy.instance import config_of
from broker.proxy.instances import Instances, check_partitions
from broker.proxy.json_stream import Splitter
from broker.proxy.media import Format
from broker.proxy.membership import Member, count_of
from broker.proxy.polling import Limits, ProxyRead
from broker.proxy.records import Batch, ProducedRecord
from broker.proxy.v3 import V3, Lag
from broker.proxy.v3_records import Entry

__all__ = [
    "V3",
    "BadRequest",
    "Batch",
    "CellSources",
    "ClusterMissing",
    "ConfigMissing",
    "ConsumerMissing",
    "Entry",
    "Format",
    "GroupMissing",
    "GroupView",
    "Instances",
    "Lag",
    "Limits",
    "Member",
    "MemberView",
    "Partition",
    "PartitionMissing",
    "ProducedRecord",
    "ProxyError",
    "ProxyRead",
    "Splitter",
    "TopicMissing",
    "TopicPartitionMissing",
    "Unprocessable",
    "answer_v2",
    "answer_v3",
    "base_of",
    "check_partitions",
    "config_of",
    "count_of",
    "group_view",
    "lags",
    "media",
    "polling",
    "producing",
    "records",
    "topics",
    "v3",
    "v3_records",
]
