"""The wire codec: decodes and encodes declared messages, by version. Pure, no I/O."""

from broker.kafka.codec.padding import PADDED_VERSION, TOPIC_PADDING, padded
from broker.kafka.codec.schema import (
    Bool,
    Bytes,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    NullableString,
    Part,
    Since,
    String,
    Until,
    Uuid,
    decode,
    encode,
    flexible,
)
from broker.kafka.codec.wire import Buffer, Malformed, Reader

__all__ = [
    "PADDED_VERSION",
    "TOPIC_PADDING",
    "Bool",
    "Buffer",
    "Bytes",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "Malformed",
    "Message",
    "NullableString",
    "Part",
    "Reader",
    "Since",
    "String",
    "Until",
    "Uuid",
    "decode",
    "encode",
    "flexible",
    "padded",
]
