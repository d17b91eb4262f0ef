"""Chooses the codec in which consumers of a partition receive batches.

It is the codec that the topic's compression.type names. For `producer`, the default, it is the codec that a producer
last used for the partition; it is stored with the log and survives restarts. Uncompressed batches do not change it,
because clients send small batches uncompressed, whatever their settings.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING, Final

import structlog

from broker.kafka.records import Codec
from storage import CompressionType, StorageError
from storage.state import CODEC, PRODUCER

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage import Engine
    from storage.state import Topic

_log = structlog.get_logger("broker.kafka")

#: The least time between two changes of a stored codec, if producers of a partition use different codecs.
CHANGES_APART_S: Final = 60.0
#: Partitions whose last change is remembered. Beyond that, those that may change again are forgotten.
_MAX_CHANGES: Final = 10_000
#: Fetch supports zstd since this version (KIP-110). Older clients get gzip, which all languages have.
ZSTD_SINCE: Final = 10
_FIXED: Final = {
    CompressionType.UNCOMPRESSED: Codec.NONE,
    CompressionType.GZIP: Codec.GZIP,
    CompressionType.SNAPPY: Codec.SNAPPY,
    CompressionType.LZ4: Codec.LZ4,
    CompressionType.ZSTD: Codec.ZSTD,
}


class Codecs:
    """The codecs of an engine's partitions. Belongs to the loop."""

    def __init__(self, engine: Engine, now_s: Callable[[], float] = monotonic) -> None:
        self._engine = engine
        self._now_s = now_s
        self._changed_s: dict[int, float] = {}
        self._writing: dict[int, asyncio.Task[None]] = {}

    def of(self, topic: Topic) -> Codec:
        """The codec for consumers that fetch from the partition."""
        fixed = _FIXED.get(topic.config.compression_type)
        return self._of_producers(topic) if fixed is None else fixed

    def sent(self, topic: Topic, codec: int) -> None:
        """Note that a producer has sent a batch in that codec."""
        if codec == Codec.NONE or codec == self._of_producers(topic):
            return
        number, now = topic.topic_id, self._now_s()
        if number in self._writing or now - self._changed_s.get(number, -CHANGES_APART_S) < CHANGES_APART_S:
            return
        if len(self._changed_s) >= _MAX_CHANGES:
            self._changed_s = {each: at for each, at in self._changed_s.items() if now - at < CHANGES_APART_S}
        self._changed_s[number] = now
        writing = asyncio.ensure_future(self._keep(topic, Codec(codec)))
        self._writing[number] = writing
        writing.add_done_callback(lambda _: self._writing.pop(number, None))

    async def wait_written(self) -> None:
        """Wait until every change noted so far is written or abandoned."""
        while self._writing:
            await asyncio.wait([*self._writing.values()])

    def _of_producers(self, topic: Topic) -> Codec:
        states = topic.log.states
        name = None if states is None else states.get(CODEC, PRODUCER)
        return Codec.NONE if name is None else Codec[name.decode().upper()]

    async def _keep(self, topic: Topic, codec: Codec) -> None:
        try:
            await self._engine.states.put_of_log(topic, CODEC, PRODUCER, codec.name.lower().encode())
        except StorageError as error:
            # The records are stored; consumers get them in the previous codec.
            _log.info("kafka_codec_not_saved", topic=topic.name, codec=codec.name.lower(), reason=str(error))
