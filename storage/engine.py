"""The engine: a data directory opened by one process, owned by one event loop. It ties the parts together.

    async with Engine.open("/var/lib/topics") as engine:
        await engine.append("orders", {"id": 1})
        record = await engine.read_next("orders", "billing")

All methods belong to the loop that started the engine. What blocks runs on the writer threads and the I/O pool.
Source: storage.md; architecture.md (the path of one record).
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import islice
from typing import Any

import msgspec

from storage.backup.taking import Summary
from storage.config import TopicConfig
from storage.consumers.metrics import collect_consumers
from storage.embedded.entries import Value, one_record
from storage.embedded.face import Embedded
from storage.embedded.keyed import keyed_path
from storage.errors import NotReady, ShuttingDown
from storage.log.append import Write
from storage.log.contents import Contents
from storage.log.settling import Settling
from storage.log.together import Single
from storage.metric_table import Family
from storage.metrics import collect
from storage.options import Options
from storage.queues.metrics import collect_queues
from storage.reads.reader import Reader
from storage.records.partitions import split
from storage.records.values import (
    Appended,
    DeletedRecords,
    NewRecord,
    PlainRecords,
    ProducerBatch,
    ReadQuery,
    ReadResult,
    StoredBodies,
    StoredRecord,
    TagMatch,
    TopicState,
)
from storage.routers.metrics import collect_routers
from storage.segments.metrics import collect_segments
from storage.segments.view import SegmentsView, view_of
from storage.state.catalog import Topic


class Engine(Embedded):
    """See the module. `start` and `close` are inherited; `open` does both."""

    @classmethod
    @asynccontextmanager
    async def open(
        cls, path: str | os.PathLike[str], options: Options | None = None, **seams: Any
    ) -> AsyncGenerator[Engine]:
        """Start an engine for the length of a `with` block and close it cleanly behind it."""
        engine = cls(path, options, **seams)
        await engine.start()
        try:
            yield engine
        finally:
            await engine.close()

    @classmethod
    def keyed(
        cls, name: str, *, root: str | os.PathLike[str], options: Options | None = None, **seams: Any
    ) -> AbstractAsyncContextManager[Engine]:
        """`open` for the directory `name` below `root`: engines of one program that share nothing but that folder.

        A name is 1 to 64 characters from a-z 0-9 _ -; InvalidRequest for any other. The same one twice: AlreadyOpen.
        """
        return cls.open(keyed_path(root, name), options, **seams)

    # -- topics ------------------------------------------------------------------------------------------------------

    def state_of(self, topic: Topic) -> TopicState:
        """A topic's figures now, without what has expired and is only to be evicted. Of a queue's jobs these are still
        counted, until `let_expire` or the next round of the worker."""
        log = topic.log
        earliest, count, size = log.earliest_seq, log.count, log.bytes
        expired = self.expiry.due(topic, loaded=True)
        if expired:
            gone = log.held.totals(earliest, min(expired, log.head + 1), log.marks.live_floor)
            earliest, count, size = log.earliest_from(expired), count - gone[0], size - gone[1]
        return TopicState(
            topic=topic.name,
            topic_id=topic.topic_id,
            epoch=log.epoch,
            config=topic.config,
            head_seq=log.head,
            next_seq=log.head + 1,
            earliest_seq=earliest,
            evict_floor=log.marks.evict_floor,
            count=count,
            bytes=size,
            last_write_ts=log.last_write_ts,
            last_read_ts=topic.last_read_ts,
            queue=self.queues.figures_of(topic) if log.queue is not None else None,
            consumers=self.consumers.figures_of(topic),
        )

    def partitions(self, name: str) -> int:
        """How many partitions the topic has. Whatever takes a topic's name here takes the name of partition p, too, as
        `storage.records.partitions.address(name, p)` gives it; the name alone is partition 0. Raises TopicNotFound."""
        return 1 + len(self.topic(name).others)

    def state(self, name: str) -> TopicState:
        """A topic's figures now. Raises TopicNotFound."""
        return self.state_of(self.topic(name))

    def topics(self, prefix: str = "", after: str = "", limit: int = 100) -> list[TopicState]:
        """Topics by name, bytewise; names behind `after`. The figures are those of partition 0."""
        shown = (topic for topic in self.catalog.named(prefix, after) if not topic.provisional)
        return [self.state_of(topic) for topic in islice(shown, limit)]

    async def let_expire(self, names: Iterable[str]) -> bool:
        """Evict what has expired by now of these topics, all partitions, as far as log and segments let it: figures
        that are taken next agree with what a read gives. False: there was nothing. Topics that are not there are passed
        over; the address of a partition stands for its topic."""
        found = (self.catalog.topics.get(split(name)[0]) for name in names)
        return await self.expiry.let_expire([topic for topic in found if topic is not None])

    async def put_topic(
        self, name: str, config: TopicConfig | None = None, *, keep_partitions: bool = False
    ) -> tuple[TopicState, bool]:
        """Make the topic or replace its config. Durable on return. (state, whether it was made).

        `partitions` may grow, never shrink (TopicIncompatible); with `keep_partitions` that of a topic that is there
        stays as it is.
        """
        self.check_open()
        created = await self.admin.put(name, config or TopicConfig(), keep_partitions=keep_partitions)
        return self.state_of(self.topic(name)), created

    async def change_topic(self, name: str, changed: Callable[[TopicConfig], TopicConfig]) -> TopicState:
        """Give a topic the config that `changed` makes of the one it has; no other change comes between. Durable on
        return. Raises TopicNotFound, and as `changed` and `put_topic`."""
        self.check_open()
        await self.admin.alter(name, changed)
        return self.state_of(self.topic(name))

    async def delete_topic(self, name: str, if_empty: bool = False) -> bool:
        """Delete the topic, all its records and routers; False when absent. Raises TopicNotEmpty."""
        return await self.remove_topic(name, if_empty=if_empty) is not None

    async def remove_topic(self, name: str, *, if_empty: bool = False) -> list[str] | None:
        """As `delete_topic`: the names of the routers that went with the topic, None when absent."""
        self.check_open()
        return await self.admin.delete(name, if_empty=if_empty)

    # -- records -----------------------------------------------------------------------------------------------------

    async def append(
        self,
        name: str,
        records: Value | Sequence[NewRecord] | PlainRecords | StoredBodies,
        *,
        node: str | None = None,
        idempotency_key: str | None = None,
        idempotency_strict: bool = False,
        create: bool = True,
        config: TopicConfig | None = None,
        expected_seq: int | None = None,
        producer: ProducerBatch | None = None,
        hasten: bool = False,
    ) -> Appended:
        """Append one record, or records made beforehand, atomically. On return they are as durable as the topic's
        class says. Bytes are stored as they are, any other value as JSON; a list is taken for `NewRecord`s.

        `producer`: the batch is taken once, and only behind the one before it; one of that producer's last 5 batches
        there answers what it answered, `deduped`. Raises OutOfOrderSequence, InvalidProducerEpoch. `hasten`: what is
        acked before its sync is synced as soon as what else there is to write, not at the timer's turn.

        A cancelled call may still take effect. Raises RequestError and Unavailable subclasses; of these only
        StorageFailed leaves open whether the records are there.
        """
        self.check_open()
        return await Write(
            self,
            name,
            records if isinstance(records, PlainRecords | StoredBodies) else one_record(records),
            node=node,
            key=idempotency_key,
            strict=idempotency_strict,
            create=create,
            config=config,
            expected_seq=expected_seq,
            producer=producer,
            hasten=hasten,
        ).run()

    def append_now(
        self,
        name: str,
        records: Contents,
        settled: Callable[[Appended | Exception], None],
        *,
        node: str | None = None,
        idempotency_key: str | None = None,
        producer: ProducerBatch | None = None,
        hasten: bool = False,
    ) -> bool:
        """`append` without a task: True when the write is on its way, and `settled` will be called with its outcome.

        False: nothing was done, because something has to be waited for first (or the answer is known already): call
        `append`. Raises what stands against the write, and then nothing was done either.
        """
        self.check_open()
        write = Write(
            self,
            name,
            records,
            node=node,
            key=idempotency_key,
            strict=False,
            create=False,
            config=None,
            expected_seq=None,
            producer=producer,
            hasten=hasten,
        )
        return write.attempt(Settling(write, settled))

    def append_soon(
        self,
        name: str,
        data: msgspec.Raw,
        settled: Callable[[Appended | Exception], None],
        left: Callable[[], None],
        *,
        node: str | None = None,
    ) -> bool:
        """`append_now` of one record of data alone; while others are under way at the end of the loop's turn, with
        those that came in it. What `append_now` would say False to or raise then, `left` is called for.
        """
        self.check_open()
        return self.together.add(name, node, Single(data, settled, left))

    async def read(self, name: str, query: ReadQuery) -> ReadResult:
        """Records behind a cursor, and what was lost before them. Raises TopicNotFound, RecordCorrupt."""
        self._check_started()
        return await Reader(self).read(self.topic(name), query)

    async def read_one(self, name: str, seq: int) -> StoredRecord:
        """One record. Raises RecordNotFound (detail.reason), TopicNotFound, RecordCorrupt."""
        self._check_started()
        return await Reader(self).read_one(self.topic(name), seq)

    def segments_of(self, name: str) -> SegmentsView:
        """What the topic's segments hold and what is not in them yet, at one instant. Raises TopicNotFound.

        `storage.segments.download` gives the files of those that are sealed.
        """
        self._check_started()
        return view_of(self, self.topic(name))

    async def wait_beyond(self, name: str, seq: int, wait_ms: float) -> bool:
        """True as soon as head_seq > seq, False after `wait_ms`. Raises TopicNotFound, ShuttingDown."""
        self._check_started()
        return await self.publisher.wait(self.topic(name), seq, wait_ms)

    async def delete_records(
        self, name: str, before_seq: int | None = None, match: TagMatch | None = None
    ) -> DeletedRecords:
        """Delete records below a seq, or by tag, or both at once; silent and permanent."""
        self.check_open()
        return await self.admin.delete_records(name, before_seq, match)

    def touch(self, name: str) -> None:
        """Note that somebody has read the topic."""
        self.topic(name).last_read_ts = self.now_ms()

    async def backup(self, directory: str | os.PathLike[str], *, include_cold: bool = False) -> Summary:
        """Copy all there is, as of one instant, into a backup directory; durable on return. See `Backups.take`."""
        return await self.backups.take(directory, include_cold=include_cold)

    def metrics(self) -> list[Family]:
        """Everything the engine counts, as it is now."""
        others = [*collect_queues(self), *collect_routers(self), *collect_consumers(self)]
        return [*collect(self), *collect_segments(self), *others]

    def _check_started(self) -> None:
        if not self.ready:
            raise ShuttingDown() if self.closing else NotReady()
