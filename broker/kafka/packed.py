"""Compresses batches for consumers in the partition's codec, each once for all that fetch the same records.

The key of the cache is a digest of the uncompressed bytes. A lookup uses the bytes that were just read, so the cache
needs no invalidation when records are deleted. The digest is keyed per process, and entries of different logs are
separate.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

import xxhash

from broker.kafka.codec import Buffer
from broker.kafka.codecs import ZSTD_SINCE
from broker.kafka.records import HEADER_SIZE, Codec, compressed
from broker.scheduling import Heavy

if TYPE_CHECKING:
    from broker.kafka.node import Node
    from storage.state import Topic

#: The most bytes in the cache. The least recently used batch is evicted first.
MAX_CACHED_BYTES: Final = 32 << 20
#: Larger batches are compressed on a thread.
_ON_LOOP_BYTES: Final = 16 << 10

_Key: TypeAlias = tuple[int, Codec, bytes]
Compress: TypeAlias = Callable[[Buffer, Codec], Buffer]


class Packed:
    """The cache of one broker. Belongs to the loop."""

    def __init__(self, heavy: Heavy, max_bytes: int = MAX_CACHED_BYTES) -> None:
        self._heavy = heavy
        self._max_bytes = max_bytes
        self._cache: OrderedDict[_Key, Buffer] = OrderedDict()
        self._coming: dict[_Key, asyncio.Task[Buffer]] = {}
        self._seed = secrets.randbits(64)
        #: Bytes in the cache.
        self.bytes = 0
        #: Lookups that compressed a batch, and lookups that found one in the cache or being compressed.
        self.made = self.found = 0

    async def get(self, topic_id: int, codec: Codec, batch: Buffer, compress: Compress) -> Buffer:
        """The result of `compress` for this batch, from the cache if possible."""
        key = (topic_id, codec, xxhash.xxh3_128_digest(batch, seed=self._seed))
        cached = self._cache.get(key)
        if cached is not None:
            self._cache.move_to_end(key)
            self.found += 1
            return cached
        if len(batch) <= _ON_LOOP_BYTES:
            self.made += 1
            return self._keep(key, compress(batch, codec))
        coming = self._coming.get(key)
        if coming is None:
            self.made += 1
            coming = self._coming[key] = asyncio.ensure_future(self._make(key, batch, compress))
        else:
            self.found += 1
        return await asyncio.shield(coming)

    async def _make(self, key: _Key, batch: Buffer, compress: Compress) -> Buffer:
        try:
            return self._keep(key, await self._heavy.run(compress, batch, key[1]))
        finally:
            del self._coming[key]

    def _keep(self, key: _Key, made: Buffer) -> Buffer:
        if len(made) <= self._max_bytes:
            self._cache[key] = made
            self.bytes += len(made)
            while self.bytes > self._max_bytes:
                self.bytes -= len(self._cache.popitem(last=False)[1])
        return made


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
