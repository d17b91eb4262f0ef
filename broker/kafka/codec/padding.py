"""Pads Metadata answers for librdkafka, which estimates the memory of a parsed answer from the answer's length.

librdkafka parses Metadata into a buffer of five times the answer's length. If that is too small, it fails with "Local:
Bad message format". In version 9 it is too small for topics of one partition with short names (38 bytes on the wire,
about 216 in memory), and for topics with an error (11 bytes and 128).
"""

from __future__ import annotations

from typing import Final

from broker.kafka.codec.wire import Writer

#: Only this version of Metadata needs padding: older ones are not compact, and newer ones contain topic ids.
PADDED_VERSION: Final = 9
#: Bytes of padding for each topic.
TOPIC_PADDING: Final = 24
#: A tag that Kafka does not use. Readers skip unknown tags.
_TAG: Final = 10_000


def padded(body: bytes, size: int) -> bytes:
    """Add an unknown tagged field of `size` zero bytes to a flexible message without tagged fields."""
    writer = Writer()
    for number in (1, _TAG, size):
        writer.varint(number)
    return body[:-1] + writer.done() + bytes(size)
