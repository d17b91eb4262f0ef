"""Iterating over a durable consumer: what is read next, what was handled, and what is committed when. No I/O.

Source: docs/reference/api.md#consumers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any, Literal, TypeAlias, TypeVar

from topics_client import calls, consumer_calls
from topics_client.calls import ReadOptions
from topics_client.consumer_values import ConsumerState
from topics_client.errors import ConsumerNotFound, EpochConflict, InvalidRequest, NotFound, TopicsError
from topics_client.following import Follower
from topics_client.listening import Listen, Listening, Position, Stream
from topics_client.values import Record, Tombstone, TopicState, Watched
from topics_client.wire import Call

T = TypeVar("T")

#: When the position is stored: after each record, after the records of one answer, or when `commit` is called.
CommitMode: TypeAlias = Literal["record", "batch", "manual"]
#: Where a new consumer begins.
Start: TypeAlias = "Literal['earliest', 'head'] | int"
Item: TypeAlias = "Record | Tombstone"

#: Steps to take. Each is answered with its value, or with the error that it raised.
Step: TypeAlias = "Call[Any] | Listen | Stream"
Steps: TypeAlias = Generator[Step, Any, T]

#: How often to check whether the topic has more partitions.
PARTITIONS_S = 60.0
#: Without a stream, several partitions are waited for one after the other, for this long together, and at least.
_ROUND_MS, _LEAST_MS = 1000, 100


class PartitionCursor:
    """The position in one partition."""

    def __init__(self, partition: int, epoch: int, seq: int, follower: Follower) -> None:
        self.partition = partition
        #: The epoch of the topic that the position belongs to.
        self.epoch = epoch
        self.follower = follower
        self.handled_seq = seq
        self.committed_seq = seq
        #: Whether a read may return records at once.
        self.is_behind = True
        #: The topic was created again, without the consumer.
        self.is_gone = False

    def handle_all(self) -> None:
        """Every item was handled, and so were records that were skipped because they are deleted or not selected.
        Otherwise they would be examined again after a restart."""
        if not self.is_gone:
            self.handled_seq = max(self.handled_seq, self.follower.from_seq)


class Reading:
    """The state of an iteration, between the caller and the broker.

    An item is handled when the next one is requested, or when it is committed. Only handled items are ever committed.
    After any failure the items that were not committed come again, and none is skipped. Partitions take turns until
    none has stored records left; then the broker pushes new ones.

    `begin`, `next_item`, `commit` and `leave` return generators of steps to take. The error of a step is thrown in.
    After an error new generators are made: the whole state is in this object.
    """

    def __init__(
        self,
        topic: str,
        consumer: str,
        mode: CommitMode,
        start: Start,
        options: ReadOptions,
        now: Callable[[], float],
    ) -> None:
        self._topic = topic
        self._consumer = consumer
        self._mode = mode
        self._start: Start = start
        #: None: all partitions.
        self._partition = options.get("partition")
        self._options: ReadOptions = options
        self._now = now
        self._listening = Listening(topic, options, now)
        self._asked_s = 0.0
        #: By partition, the one that is read next first.
        self._cursors: dict[int, PartitionCursor] = {}
        self._items: deque[Item] = deque()
        #: Returned to the caller, and not known to be handled.
        self._given: Item | None = None

    @property
    def committed(self) -> dict[int, int]:
        """By partition: a new reader of this consumer continues after this seq."""
        return {number: self._cursors[number].committed_seq for number in sorted(self._cursors)}

    def begin(self) -> Steps[None]:
        """Find the positions of the consumer, and create it if it does not exist."""
        if self._cursors:
            return
        # Before the positions: if the topic is created again in between, they are known to belong to another epoch.
        state = yield from self._ask_state()
        cursors: dict[int, PartitionCursor] = {}
        for number in self._numbers(state):
            cursors[number] = yield from self._find(state, number, self._start)
        self._cursors = cursors

    def next_item(self, *, may_listen: bool = True) -> Steps[Item]:
        """The next record or loss. Waits for it. Everything returned before is handled. Without `may_listen` it does
        not wait for a stream."""
        yield from self.begin()
        if self._given is not None:
            self._handle(self._given)
        while True:
            yield from self._make_again()
            if self._mode == "record" or (self._mode == "batch" and not self._items):
                yield from self._store_all()
            if self._items:
                self._given = self._items.popleft()
                return self._given
            yield from self._fetch(may_listen=may_listen)
            if not self._items:
                self._handle_all()

    def commit(self, item: Item | None) -> Steps[None]:
        """Store the position after this item, or after all returned items."""
        if item is None:
            if self._given is not None:
                self._handle(self._given)
            yield from self._store_all()
            return
        yield from self.begin()
        cursor = self._cursors.get(item.partition)
        if cursor is None:
            raise InvalidRequest(f"Partition {item.partition} is not read here.", detail={"field": "partition"})
        yield from self._store(cursor, _last_seq(item))

    def leave(self) -> Steps[None]:
        """Store what was handled, unless the caller commits by itself. The last returned item may not have been
        handled."""
        if self._listening.is_open:
            self._listening.closed()
            yield Stream.CLOSE
        if self._mode != "manual":
            yield from self._store_all()

    # -- what was handled ----------------------------------------------------------------------------------------------

    def _handle(self, item: Item) -> None:
        self._given = None
        cursor = self._cursors.get(item.partition)
        if cursor is not None:
            if isinstance(item, Tombstone) and item.reason == "recreated":
                cursor.handled_seq = cursor.committed_seq = 0
                cursor.is_gone = True
            else:
                cursor.handled_seq = max(cursor.handled_seq, _last_seq(item))
        if not self._items:
            self._handle_all()

    def _handle_all(self) -> None:
        for cursor in self._cursors.values():
            cursor.handle_all()

    def _store_all(self) -> Steps[None]:
        for cursor in [*self._cursors.values()]:
            if not cursor.is_gone:
                yield from self._store(cursor, cursor.handled_seq)

    def _store(self, cursor: PartitionCursor, seq: int) -> Steps[None]:
        if seq > cursor.committed_seq:
            # A conflict: the topic was deleted and created again. The next read reports that.
            with suppress(EpochConflict):
                yield consumer_calls.commit(self._topic, self._consumer, seq, cursor.partition or None, cursor.epoch)
            cursor.committed_seq = seq

    # -- partitions ----------------------------------------------------------------------------------------------------

    def _numbers(self, state: TopicState) -> list[int]:
        return [*range(len(state.partitions) or 1)] if self._partition is None else [self._partition]

    def _ask_state(self) -> Generator[Step, Any, TopicState]:
        state: TopicState = yield calls.state(self._topic)
        self._asked_s = self._now()
        return state

    def _find(self, state: TopicState, number: int, start: Start) -> Generator[Step, Any, PartitionCursor]:
        """The consumer in this partition. It is created if it does not exist."""
        try:
            found: ConsumerState = yield consumer_calls.get(self._topic, self._consumer, number or None)
        except ConsumerNotFound:
            found = yield self._put(number, start)
        return self._cursor_at(state, number, found.cursor_seq)

    def _cursor_at(self, state: TopicState, number: int, seq: int) -> PartitionCursor:
        epoch = state.of(number).epoch
        options: ReadOptions = {**self._options, "epoch": epoch, "partition": number or None}
        return PartitionCursor(number, epoch, seq, Follower(self._topic, seq, options))

    def _put(self, number: int, start: Start) -> Call[Any]:
        return consumer_calls.put(self._topic, self._consumer, {"start": start, "partition": number or None})

    def _make_again(self) -> Steps[None]:
        """A topic that was created again is read from its beginning, with a consumer that is created again too."""
        gone = [cursor.partition for cursor in self._cursors.values() if cursor.is_gone]
        if not gone:
            return
        state = yield from self._ask_state()
        for number in gone:
            if number in self._numbers(state):
                yield self._put(number, "earliest")
                self._cursors[number] = self._cursor_at(state, number, 0)
            else:
                del self._cursors[number]

    def _look_for_partitions(self) -> Steps[bool]:
        """Add new partitions, and drop those of an earlier topic. True if there were any."""
        state = yield from self._ask_state()
        numbers = self._numbers(state)
        gone = self._cursors.keys() - numbers
        for number in gone:
            del self._cursors[number]
        added = [number for number in numbers if number not in self._cursors]
        for number in added:
            # All its records came after the consumer was created.
            self._cursors[number] = yield from self._find(state, number, "earliest")
        if gone or added:
            self._listening.forget_session()
            yield from self._hang_up()
        return bool(gone)

    # -- what comes next -----------------------------------------------------------------------------------------------

    def _fetch(self, *, may_listen: bool) -> Steps[None]:
        """One step: some items, or none. No earlier item is left."""
        if self._partition is None and self._now() - self._asked_s >= PARTITIONS_S:
            yield from self._look_for_partitions()
        listens = may_listen and self._listening.is_possible
        if self._listening.is_open and not listens:
            yield from self._hang_up()
        behind = next((cursor for cursor in self._cursors.values() if cursor.is_behind), None)
        if behind is not None:
            yield from self._read(behind, 0 if listens or len(self._cursors) > 1 else None)
        elif listens:
            yield from self._listen()
        else:
            several = len(self._cursors) > 1 and "wait_ms" not in self._options
            wait_ms = max(_LEAST_MS, _ROUND_MS // len(self._cursors)) if several else None
            yield from self._read(next(iter(self._cursors.values())), wait_ms)

    def _read(self, cursor: PartitionCursor, wait_ms: int | None) -> Steps[None]:
        # The other partitions come first next time.
        self._cursors[cursor.partition] = self._cursors.pop(cursor.partition)
        try:
            found: list[Item] = yield cursor.follower.call(wait_ms)
        except InvalidRequest as error:
            if error.detail.get("field") != "partition" or not (yield from self._look_for_partitions()):
                raise
            return
        self._items.extend(found)
        cursor.is_behind = not cursor.follower.is_caught_up

    def _listen(self) -> Steps[None]:
        """What the broker pushes next. Anything but records is left to reads, which report it in their way."""
        listening = self._listening
        try:
            if not listening.is_open:
                if not listening.has_session:
                    yield listening.session(sorted(self._cursors))
                yield listening.open(
                    {each.partition: Position(each.epoch, each.follower.from_seq) for each in self._cursors.values()}
                )
            piece: bytes | None = yield Stream.PIECE
            if piece is not None:
                for event in listening.feed(piece):
                    if not self._take(event):
                        yield from self._hang_up()
                        return
                return
            listening.broken()
        except TopicsError as error:
            listening.broken(session_is_gone=isinstance(error, NotFound) and listening.has_session)
        self._read_again()

    def _take(self, event: Watched) -> bool:
        """False: a read has to find out what this is."""
        if event.kind == "caught-up":
            return True
        cursor = self._cursors.get(event.partition)
        if event.kind != "record" or cursor is None or event.from_seq != cursor.follower.from_seq:
            return False
        cursor.follower.advance(event.to_seq)
        self._items.extend(event.records)
        return True

    def _hang_up(self) -> Steps[None]:
        """The next records come from reads."""
        if self._listening.is_open:
            self._listening.closed()
            yield Stream.CLOSE
        self._read_again()

    def _read_again(self) -> None:
        for cursor in self._cursors.values():
            cursor.is_behind = True


def _last_seq(item: Item) -> int:
    if isinstance(item, Record):
        return item.seq
    # That a topic was created again is not a position in it.
    return 0 if item.reason == "recreated" else item.gap_to
