"""Room in an answer for clients that reckon what it needs in memory from its length.

librdkafka parses Metadata into a buffer of five times the answer's length, and fails with "Local: Bad message format"
where that is not enough. In version 9 it is not for topics of one partition with short names: each is 38 bytes on the
wire and about 216 in memory. Nor is it for topics that are refused: 11 and 128.
"""

from __future__ import annotations

from typing import Final

from broker.kafka.codec.wire import Writer

#: The version of Metadata that needs it: those before are not compact, those behind have topic ids.
PADDED_VERSION: Final = 9
#: In bytes, for each topic.
TOPIC_PADDING: Final = 24
#: A tag that Kafka gives to nothing. Readers pass over tags that they do not know.
_TAG: Final = 10_000


def padded(body: bytes, size: int) -> bytes:
    """A flexible message without tagged fields, as one with an unknown field of that many zero bytes."""
    writer = Writer()
    for number in (1, _TAG, size):
        writer.varint(number)
    return body[:-1] + writer.done() + bytes(size)
