"""An iteration over a durable consumer: what is read next, what was handled, and what is committed when. No I/O.

Source: docs/reference/api.md#consumers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from contextlib import suppress
from typing import Any, Literal, TypeAlias

from topics_client import calls, consumer_calls
from topics_client.calls import ReadOptions
from topics_client.consumer_values import ConsumerState
from topics_client.errors import ConsumerNotFound, EpochConflict
from topics_client.following import Follower
from topics_client.values import Record, Tombstone, TopicState
from topics_client.wire import Call

#: When the position is stored: after each record, after the records of one answer, or when `commit` is called.
CommitMode: TypeAlias = Literal["record", "batch", "manual"]
#: Where a new consumer begins.
Start: TypeAlias = "Literal['earliest', 'head'] | int"
Item: TypeAlias = "Record | Tombstone"

#: Calls to make; each is answered with its value, or with what it raised.
Steps: TypeAlias = Generator[Call[Any], Any, Item]


class Reading:
    """What there is between the caller and the broker.

    An item is handled when the next one is asked for, or when it is committed; only what was handled is ever committed.
    After any failure the items that were not committed come again, and none is skipped.

    `begin`, `next_item`, `commit` and `leave` return generators of calls to make, and throw in what a call raised.
    After an error they are made anew: everything that counts is in this object.
    """

    def __init__(self, topic: str, consumer: str, mode: CommitMode, start: Start, options: ReadOptions) -> None:
        self._topic = topic
        self._consumer = consumer
        self._mode = mode
        self._start: Start = start
        self._partition = options.get("partition")
        self._options: ReadOptions = options
        self._follower: Follower | None = None
        self._items: deque[Item] = deque()
        #: Given to the caller, and not known to be handled.
        self._given: Item | None = None
        self._handled_seq = 0
        self._committed_seq = 0
        #: Of the topic in which the position is.
        self._epoch = 0
        #: The topic was made again, without the consumer.
        self._is_gone = False

    @property
    def committed_seq(self) -> int:
        """A new reader of this consumer goes on after it."""
        return self._committed_seq

    def begin(self) -> Generator[Call[Any], Any, None]:
        """Looks where the consumer stands; makes it if there is none."""
        if self._follower is not None:
            return
        # Before the position: should the topic be made again in between, the position is known to be of another epoch.
        state: TopicState = yield calls.state(self._topic)
        try:
            found: ConsumerState = yield consumer_calls.get(self._topic, self._consumer, self._partition)
        except ConsumerNotFound:
            found = yield self._put(self._start)
        self._handled_seq = self._committed_seq = found.cursor_seq
        self._epoch = state.of(self._partition).epoch
        options: ReadOptions = {**self._options, "epoch": self._epoch}
        self._follower = Follower(self._topic, found.cursor_seq, options)

    def next_item(self) -> Steps:
        """The next record or loss; waits for it. What was given before is handled."""
        yield from self.begin()
        assert self._follower is not None
        if self._given is not None:
            self._handle(self._given)
        while True:
            if self._is_gone:
                self._epoch = yield from self._ask_epoch()
                yield self._put("earliest")
                self._is_gone = False
            if self._mode == "record" or (self._mode == "batch" and not self._items):
                yield from self._store(self._handled_seq)
            if self._items:
                self._given = self._items.popleft()
                return self._given
            self._items.extend((yield self._follower.call()))
            if not self._items:
                # Records were passed over, as deleted or not asked for. They would be examined again after a restart.
                self._handled_seq = max(self._handled_seq, self._follower.from_seq)

    def commit(self, item: Item | None) -> Generator[Call[Any], Any, None]:
        """Stores the position after this one, or after the one given last."""
        if item is not None:
            yield from self._store(_last_seq(item))
            return
        if self._given is not None:
            self._handle(self._given)
        if not self._is_gone:
            yield from self._store(self._handled_seq)

    def leave(self) -> Generator[Call[Any], Any, None]:
        """Stores what was handled, unless the caller does this by hand. The one given last may not have been."""
        if self._mode != "manual" and not self._is_gone:
            yield from self._store(self._handled_seq)

    def _handle(self, item: Item) -> None:
        self._given = None
        if isinstance(item, Tombstone) and item.reason == "recreated":
            self._handled_seq = self._committed_seq = 0
            self._is_gone = True
            return
        self._handled_seq = max(self._handled_seq, _last_seq(item))
        if not self._items and self._follower is not None:
            # With what was passed over behind the last record.
            self._handled_seq = max(self._handled_seq, self._follower.from_seq)

    def _store(self, seq: int) -> Generator[Call[Any], Any, None]:
        if seq > self._committed_seq:
            # A conflict: it went with a topic that was deleted and made again, of which the next read tells.
            with suppress(EpochConflict):
                yield consumer_calls.commit(self._topic, self._consumer, seq, self._partition, self._epoch)
            self._committed_seq = seq

    def _ask_epoch(self) -> Generator[Call[Any], Any, int]:
        state: TopicState = yield calls.state(self._topic)
        return state.of(self._partition).epoch

    def _put(self, start: Start) -> Call[Any]:
        return consumer_calls.put(self._topic, self._consumer, {"start": start, "partition": self._partition})


def _last_seq(item: Item) -> int:
    if isinstance(item, Record):
        return item.seq
    # That a topic was made again is no position in it.
    return 0 if item.reason == "recreated" else item.gap_to
