"""The columns of a record, as in Spark's source for Kafka. Pure; needs pyarrow, not pyspark."""

from __future__ import annotations

import pyarrow as pa

#: Values of `timestampType`, as in Kafka: the time that a client gave, and the commit time.
CREATE_TIME, LOG_APPEND_TIME = 0, 1

TIMESTAMP = pa.timestamp("us", tz="UTC")
HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))

_BASE = [
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", TIMESTAMP),
    pa.field("timestampType", pa.int32()),
]
_OURS = [pa.field("seq", pa.int64()), pa.field("node", pa.string()), pa.field("meta", pa.string())]
_HEADERS_FIELD = pa.field("headers", HEADERS)

_DDL = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
    "seq": "bigint",
    "node": "string",
    "meta": "string",
}


def arrow_schema(*, headers: bool = False) -> pa.Schema:
    """The columns that are declared to Spark, in that order, without typed ones."""
    return pa.schema([*_BASE, *([_HEADERS_FIELD] if headers else []), *_OURS])


def ddl_of(name: str) -> str:
    """The type of one of these columns, in Spark's DDL."""
    return _DDL[name]
