"""The engine for programs without an event loop: every call waits for its answer. Source: storage.md §9.

    with BlockingEngine.open("/var/lib/app") as engine:
        engine.append("orders", {"id": 1})
        record = engine.read_next("orders", "billing")

It has an event loop on a thread of its own, so that any number of threads may call at the same time. What a call does,
returns and raises is what the method of that name of `storage.Engine` does.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Literal

from storage.config import TopicConfig
from storage.consumers.values import Consistency, ConsumerState, Start
from storage.embedded.background import BackgroundLoop
from storage.embedded.batch import Record, RecordBatch, records_in
from storage.embedded.entries import Entry, Value
from storage.embedded.following import MAX_BYTES, MAX_RECORDS
from storage.embedded.keyed import keyed_path
from storage.engine import Engine
from storage.errors import ShuttingDown
from storage.metric_table import Family
from storage.options import Options
from storage.records import (
    Appended,
    DeletedRecords,
    NewRecord,
    PlainRecords,
    ReadQuery,
    ReadResult,
    StoredRecord,
    TagMatch,
    TopicState,
)


class BlockingEngine:
    """See the module. `open` starts one; `close`, or the end of a `with` block, stops it cleanly.

    A program that ends without `close` leaves what a killed one leaves: everything that was acked, and the next start
    recovers. A process forked from this one cannot use it: OtherProcess.
    """

    def __init__(self, path: str | os.PathLike[str], options: Options | None = None, **seams: Any) -> None:
        """Opens the directory. Raises OpenError, DataError, OSError."""
        self.engine = Engine(path, options, **seams)
        """What it runs; it belongs to the loop's thread."""
        self._background = BackgroundLoop(self.engine.start, self.engine.close)
        self._run, self._call = self._background.run, self._background.call

    @classmethod
    def open(cls, path: str | os.PathLike[str], options: Options | None = None, **seams: Any) -> BlockingEngine:
        """Open a data directory. Raises AlreadyOpen, AlreadyLocked, OpenError, DataError, OSError."""
        return cls(path, options, **seams)

    @classmethod
    def keyed(
        cls, name: str, *, root: str | os.PathLike[str], options: Options | None = None, **seams: Any
    ) -> BlockingEngine:
        """`open` for the directory `name` below `root`."""
        return cls(keyed_path(root, name), options, **seams)

    def __enter__(self) -> BlockingEngine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Finish what is under way, snapshot, release the directory; calls that come meanwhile get ShuttingDown."""
        self._background.stop()

    # -- topics ------------------------------------------------------------------------------------------------------

    def put_topic(self, name: str, config: TopicConfig | None = None) -> tuple[TopicState, bool]:
        """Make the topic or replace its config. Durable on return. (state, whether it was made)."""
        return self._run(partial(self.engine.put_topic, name, config))

    def delete_topic(self, name: str, if_empty: bool = False) -> bool:
        """Delete the topic with its records and consumers; False when absent. Raises TopicNotEmpty."""
        return self._run(partial(self.engine.delete_topic, name, if_empty))

    def state(self, name: str) -> TopicState:
        """A topic's figures now. Raises TopicNotFound."""
        return self._call(self.engine.state, name)

    def topics(self, prefix: str = "", after: str = "", limit: int = 100) -> list[TopicState]:
        """Topics by name, bytewise; names behind `after`."""
        return self._call(self.engine.topics, prefix, after, limit)

    def metrics(self) -> list[Family]:
        """Everything the engine counts, as it is now."""
        return self._call(self.engine.metrics)

    # -- records -----------------------------------------------------------------------------------------------------

    def append(
        self,
        name: str,
        records: Value | Sequence[NewRecord] | PlainRecords,
        *,
        node: str | None = None,
        idempotency_key: str | None = None,
        idempotency_strict: bool = False,
        create: bool = True,
        config: TopicConfig | None = None,
        expected_seq: int | None = None,
    ) -> Appended:
        """Append one record. On return it is as durable as the topic's class says.

        An interrupt (Ctrl-C) while it waits leaves open whether the record is there; so does StorageFailed.
        """
        return self._run(
            partial(
                self.engine.append,
                name,
                records,
                node=node,
                idempotency_key=idempotency_key,
                idempotency_strict=idempotency_strict,
                create=create,
                config=config,
                expected_seq=expected_seq,
            )
        )

    def append_batch(
        self,
        topic: str,
        entries: Iterable[Entry],
        *,
        node: str | None = None,
        idempotency_key: str | None = None,
        create: bool = True,
        config: TopicConfig | None = None,
        expected_seq: int | None = None,
    ) -> Appended:
        """Append several entries, all or none."""
        return self._run(
            partial(
                self.engine.append_batch,
                topic,
                entries,
                node=node,
                idempotency_key=idempotency_key,
                create=create,
                config=config,
                expected_seq=expected_seq,
            )
        )

    def read(self, name: str, query: ReadQuery) -> ReadResult:
        """Records behind a seq, without a consumer."""
        return self._run(partial(self.engine.read, name, query))

    def read_one(self, name: str, seq: int) -> StoredRecord:
        """One record. Raises RecordNotFound (detail.reason), TopicNotFound, RecordCorrupt."""
        return self._run(partial(self.engine.read_one, name, seq))

    def wait_beyond(self, name: str, seq: int, wait_ms: float) -> bool:
        """True as soon as head_seq > seq, False after `wait_ms`."""
        return self._run(partial(self.engine.wait_beyond, name, seq, wait_ms))

    def delete_records(self, name: str, before_seq: int | None = None, match: TagMatch | None = None) -> DeletedRecords:
        """Delete records below a seq, or by tag, or both at once; silent and permanent."""
        return self._run(partial(self.engine.delete_records, name, before_seq, match))

    # -- consumers ---------------------------------------------------------------------------------------------------

    def read_next(
        self, topic: str, consumer: str, *, checkpoint: bool = True, wait_ms: float = 0, skip_corrupt: bool = False
    ) -> Record | None:
        """The next record of a consumer, None when there is none (after `wait_ms`)."""
        work = partial(
            self.engine.read_next, topic, consumer, checkpoint=checkpoint, wait_ms=wait_ms, skip_corrupt=skip_corrupt
        )
        return self._run(work)

    def read_batch(
        self,
        topic: str,
        consumer: str,
        max_bytes: int = MAX_BYTES,
        *,
        max_records: int = MAX_RECORDS,
        checkpoint: bool = True,
        wait_ms: float = 0,
        skip_corrupt: bool = False,
    ) -> RecordBatch:
        """The next records of a consumer."""
        return self._run(
            partial(
                self.engine.read_batch,
                topic,
                consumer,
                max_bytes,
                max_records=max_records,
                checkpoint=checkpoint,
                wait_ms=wait_ms,
                skip_corrupt=skip_corrupt,
            )
        )

    def peek(self, topic: str, consumer: str, *, skip_corrupt: bool = False) -> Record | None:
        """What `read_next` would give; moves nothing."""
        return self._run(partial(self.engine.peek, topic, consumer, skip_corrupt=skip_corrupt))

    def follow(
        self,
        topic: str,
        consumer: str,
        *,
        wait_ms: float | None = None,
        max_bytes: int = MAX_BYTES,
        skip_corrupt: bool = False,
    ) -> Iterator[Record]:
        """Records one by one, for a single reader; ends when none comes for `wait_ms` (None: never).

        The one in hand when the loop ends comes again, unless the consumer is strictly_at_once.
        """
        following = self.engine.following(
            topic, consumer, wait_ms=wait_ms, max_bytes=max_bytes, skip_corrupt=skip_corrupt
        )
        while (batch := self._run(following.next)) is not None:
            passed = 0
            try:
                for record in records_in(batch):
                    yield record
                    passed = record.seq
            except GeneratorExit:
                with suppress(ShuttingDown):  # then they come again
                    self._run(partial(following.leave, passed))
                raise
            self._run(partial(following.done, batch))

    def unread(self, topic: str, consumer: str) -> int:
        """How many live records are behind the cursor; all there are, when there is no such consumer."""
        return self._call(self.engine.unread, topic, consumer)

    def put_consumer(
        self,
        topic: str,
        consumer: str,
        *,
        consistency: Consistency = Consistency.AT_LEAST_ONCE,
        persist_every: int = 1000,
        start: Start = "earliest",
    ) -> ConsumerState:
        """Make a consumer, or replace its settings (then `start` does not count). Durable on return."""
        work = partial(
            self.engine.put_consumer, topic, consumer, consistency=consistency, persist_every=persist_every, start=start
        )
        return self._run(work)

    def consumer_state(self, topic: str, consumer: str) -> ConsumerState:
        """Raises TopicNotFound, ConsumerNotFound."""
        return self._call(self.engine.consumer_state, topic, consumer)

    def list_consumers(self, topic: str, prefix: str = "", after: str = "", limit: int = 100) -> list[ConsumerState]:
        """By name, bytewise; names behind `after`."""
        return self._call(self.engine.list_consumers, topic, prefix, after, limit)

    def delete_consumer(self, topic: str, consumer: str) -> bool:
        """False when there is none. Durable on return."""
        return self._run(partial(self.engine.delete_consumer, topic, consumer))

    def commit(self, topic: str, consumer: str, seq: int) -> ConsumerState:
        """Everything up to `seq`, inclusive, is done with. Durable on return."""
        return self._run(partial(self.engine.commit, topic, consumer, seq))

    def seek(
        self,
        topic: str,
        consumer: str,
        *,
        seq: int | None = None,
        ts: int | None = None,
        to: Literal["earliest", "head"] | None = None,
    ) -> ConsumerState:
        """Put the cursor elsewhere; exactly one of `seq` (counts as done), `ts` (ms) and `to`. Durable on return."""
        return self._run(partial(self.engine.seek, topic, consumer, seq=seq, ts=ts, to=to))
