"""The logs of an engine, as its parts use them: their state (the catalog), and a way to write control frames."""

from __future__ import annotations

import asyncio
from typing import Any

from storage.errors import NotMine, NotReady, ShuttingDown, TopicNotFound
from storage.format import control
from storage.log.encode import EncodedUnit, encode_controls
from storage.log.fetch import WalFetcher
from storage.log.publisher import Publisher, TailCache
from storage.log.submission import Submission
from storage.log.validation import check_address
from storage.log.writer import Shard
from storage.platform import Neighbours, Runtime
from storage.records import TopicConfig, split
from storage.state import Catalog, Log, LossRange, Topic, leases_durable


class Logs:
    """Owns the shards and the catalog. All methods belong to the engine's loop."""

    catalog: Catalog
    cache: TailCache
    publisher: Publisher
    wal_files: WalFetcher

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.options = runtime.options
        self.clock = runtime.clock
        self.now_ms = runtime.now_ms
        self.monotonic_ms = runtime.monotonic_ms
        self.shards: list[Shard] = []
        #: `ready`: recovery is over and the engine has not stopped. `closing`: it has begun to stop.
        self.ready = False
        self.closing = False
        #: By topic_id: loss ranges that a full disk had no room to announce, written before anything else of that log.
        self.unannounced_losses: dict[int, list[LossRange]] = {}
        #: By topic_id: a change of the topic in progress; writes wait for it.
        self.changing: dict[int, asyncio.Future[Any]] = {}
        #: By topic_id and digest of the idempotency key: writes in flight.
        self.pending_keys: dict[tuple[int, bytes], asyncio.Future[int | None]] = {}
        #: The set of cells that this engine is one of; None: it is alone.
        self.neighbours: Neighbours | None = None
        self.adopt(Catalog(1))

    def adopt(self, catalog: Catalog) -> None:
        """Serve this catalog from now on: an empty one before recovery, the recovered one after it."""
        self.catalog = catalog
        self.cache = TailCache(self.options.tail_cache_bytes)
        self.publisher = Publisher(catalog, self.cache)

    # -- state -------------------------------------------------------------------------------------------------------

    def check_started(self) -> None:
        """Raises NotReady before recovery is over, ShuttingDown after the stop."""
        if not self.ready:
            raise ShuttingDown() if self.closing else NotReady()

    def check_open(self) -> None:
        """Raises NotReady before recovery is over, ShuttingDown once the stop has begun."""
        if not self.ready or self.closing:
            raise ShuttingDown() if self.closing else NotReady()

    def topic(self, name: str) -> Topic:
        """The partition with that address, readable. Raises TopicNotFound, InvalidRequest."""
        topic = self.catalog.topics.get(name)
        if topic is None or topic.provisional:
            check_address(name)
            self.check_elsewhere(name)
            raise TopicNotFound(name)
        return topic

    def check_elsewhere(self, name: str) -> None:
        """Raises NotMine for a partition that is in another cell, and NotReady for one of another cell's topic of which
        that cell has not said yet whether it counts."""
        title, partition = split(name)
        root = self.catalog.topics.get(title)
        placement = None if root is None else root.placement
        if placement is not None and 0 < partition < len(placement.cells):
            cell = placement.cells[partition]
            if cell != self.catalog.cell:
                raise NotMine(name, cell)
        if name in self.catalog.uncounted:
            raise NotReady()

    @property
    def failed_shards(self) -> list[tuple[int, int | None]]:
        """(shard, errno) of each shard that has stopped."""
        return [(shard.index, shard.log.failed.errno) for shard in self.shards if shard.log.failed is not None]

    def shard_is_open(self, index: int) -> bool:
        """Whether new topics may go to this shard."""
        return self.shards[index].log.failed is None or len(self.failed_shards) == len(self.shards)

    def syncs_leases(self, config: TopicConfig) -> bool:
        """Whether what becomes of a queue's jobs is synced before it is answered, although its class is not fsync."""
        return self.options.sync_leases and leases_durable(config)

    # -- writing -----------------------------------------------------------------------------------------------------

    def submit_controls(
        self, log: Log, encoded: EncodedUnit, *, frees: bool = False, generation: int = -1, needs_sync: bool = True
    ) -> asyncio.Future[int | None]:
        """Enqueue control frames of a log. As internal frames, they may use the reserved tenth of the queue and are
        never refused."""
        return self.submit_unit(
            self.shards[log.shard], log.topic_id, encoded, frees=frees, generation=generation, needs_sync=needs_sync
        )

    def submit_unit(
        self,
        shard: Shard,
        topic_id: int,
        encoded: EncodedUnit,
        *,
        frees: bool = False,
        generation: int = -1,
        needs_sync: bool = True,
    ) -> asyncio.Future[int | None]:
        """Enqueue a unit that assigns no seqs."""
        submission = Submission(
            encoded.unit,
            encoded.payload,
            frames=encoded.frames,
            topic_id=topic_id,
            ts=self.now_ms(),
            needs_sync=needs_sync,
            frees=frees,
            internal=True,
            generation=generation,
        )
        return shard.submit(submission)

    async def announce_losses(self, log: Log) -> None:
        """Write the losses that a full disk had no room for at the start. Raises StorageFull when it still has none."""
        losses = self.unannounced_losses.get(log.topic_id)
        if losses is None:
            return  # another write was faster
        frame = encode_controls([control.EvictWatermark(loss=losses)], log.topic_id, self.now_ms())
        await self.submit_controls(log, frame, frees=True)
        self.unannounced_losses.pop(log.topic_id, None)
