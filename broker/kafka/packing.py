"""Compresses the batches for consumers of a partition in the partition's codec."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from broker.kafka.codec import Buffer
from broker.kafka.codecs import ZSTD_SINCE
from broker.kafka.records import HEADER_SIZE, Codec, compressed

if TYPE_CHECKING:
    from broker.kafka.node import Node
    from storage.state import Topic

#: Smaller batches are not compressed.
_LEAST_BYTES: Final = HEADER_SIZE + 256


async def packed(broker: Node, topic: Topic, batches: Sequence[Buffer], fetch_version: int | None) -> list[Buffer]:
    """Compress the batches that become smaller. `fetch_version` None: the client supports zstd."""
    codec = broker.kafka_codecs.of(topic)
    if codec is Codec.ZSTD and fetch_version is not None and fetch_version < ZSTD_SINCE:
        codec = Codec.GZIP
    if codec is Codec.NONE:
        return [*batches]
    found: list[Buffer] = []
    for batch in batches:
        worth = len(batch) >= _LEAST_BYTES
        found.append(await broker.kafka_packed.get(topic.topic_id, codec, batch, compressed) if worth else batch)
    return found
