"""The kinds of requests, and the versions that the broker serves.

A kind without a handler is not advertised. Headers and bodies of flexible versions have tagged fields (KIP-482).
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple


class ApiKey(enum.IntEnum):
    """Kinds of requests."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    INCREMENTAL_ALTER_CONFIGS = 44
    OFFSET_DELETE = 47
    DESCRIBE_CLUSTER = 60
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


#: Higher than any version.
NEVER: Final = 1 << 15


class Api(NamedTuple):
    """The versions of one kind: from `first` to `last`, inclusive, and the first flexible version."""

    key: ApiKey
    first: int
    last: int
    flexible_since: int


#: Produce is advertised, and handled, from 0 on: librdkafka before 2.6 would otherwise fall back to old formats or send
#: batches uncompressed. The call answers versions 0 to 2 with UNSUPPORTED_VERSION.
APIS: Final[dict[int, Api]] = {
    api.key: api
    for api in (
        Api(ApiKey.PRODUCE, 0, 9, 9),
        Api(ApiKey.FETCH, 4, 18, 12),
        Api(ApiKey.LIST_OFFSETS, 1, 11, 6),
        Api(ApiKey.METADATA, 0, 13, 9),
        Api(ApiKey.OFFSET_COMMIT, 2, 9, 8),
        Api(ApiKey.OFFSET_FETCH, 1, 9, 6),
        Api(ApiKey.FIND_COORDINATOR, 0, 6, 3),
        Api(ApiKey.JOIN_GROUP, 0, 9, 6),
        Api(ApiKey.HEARTBEAT, 0, 4, 4),
        Api(ApiKey.LEAVE_GROUP, 0, 5, 4),
        Api(ApiKey.SYNC_GROUP, 0, 5, 4),
        Api(ApiKey.DESCRIBE_GROUPS, 0, 6, 5),
        Api(ApiKey.LIST_GROUPS, 0, 5, 3),
        Api(ApiKey.SASL_HANDSHAKE, 0, 1, NEVER),
        Api(ApiKey.API_VERSIONS, 0, 4, 3),
        Api(ApiKey.CREATE_TOPICS, 2, 7, 5),
        Api(ApiKey.DELETE_TOPICS, 1, 6, 4),
        Api(ApiKey.DELETE_RECORDS, 0, 2, 2),
        Api(ApiKey.INIT_PRODUCER_ID, 0, 5, 2),
        Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4, 4),
        Api(ApiKey.DESCRIBE_CONFIGS, 1, 4, 4),
        Api(ApiKey.ALTER_CONFIGS, 0, 2, 2),
        Api(ApiKey.DESCRIBE_LOG_DIRS, 1, 5, 2),
        Api(ApiKey.SASL_AUTHENTICATE, 0, 2, 2),
        Api(ApiKey.CREATE_PARTITIONS, 0, 3, 2),
        Api(ApiKey.DELETE_GROUPS, 0, 2, 2),
        Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, 1),
        Api(ApiKey.OFFSET_DELETE, 0, 0, NEVER),
        # kafka-python 3.0 needs fields that only version 1 has.
        Api(ApiKey.DESCRIBE_CLUSTER, 0, 2, 0),
        Api(ApiKey.LIST_CONFIG_RESOURCES, 0, 1, 0),
        Api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 0, 0),
        Api(ApiKey.SHARE_GROUP_HEARTBEAT, 1, 1, 0),
        Api(ApiKey.SHARE_GROUP_DESCRIBE, 1, 1, 0),
        Api(ApiKey.SHARE_FETCH, 1, 2, 0),
        Api(ApiKey.SHARE_ACKNOWLEDGE, 1, 2, 0),
        Api(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 0, 1, 0),
        Api(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, 0, 0),
        Api(ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, 0, 0),
    )
}
