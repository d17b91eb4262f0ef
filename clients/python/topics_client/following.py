"""Following a topic: the reader's position, and the next call. No I/O."""

from __future__ import annotations

from topics_client import calls
from topics_client.calls import ReadOptions
from topics_client.values import Diff, Record, Tombstone, TopicState
from topics_client.wire import Call, Reply

#: How long the broker may hold one call. More than its own limit would gain nothing.
LONG_POLL_MS = 25_000


class Follower:
    """Makes the calls of an endless read: `call` returns the next one, whose value is the records to return.

    Every read sends the topic's epoch, so that a topic that was deleted and created again is noticed even when its
    new records reach beyond the old position. A gap comes as a Tombstone before the records after it.
    """

    def __init__(self, topic: str, from_seq: int, options: ReadOptions) -> None:
        self._topic = topic
        self._from_seq = from_seq
        self._epoch = options.get("epoch")
        self._options: ReadOptions = {"wait_ms": LONG_POLL_MS, "include_tags": True, **options}
        #: Whether the last answer reached the end.
        self.is_caught_up = False

    @property
    def from_seq(self) -> int:
        """The last seq examined. Continuing from here repeats nothing."""
        return self._from_seq

    def advance(self, seq: int) -> None:
        """Everything up to this seq has arrived in another way."""
        self._from_seq = seq

    def call(self, wait_ms: int | None = None) -> Call[list[Record | Tombstone]]:
        """The next call to make. The broker may hold it for this long, unless the options say otherwise."""
        if self._epoch is None:
            known = calls.state(self._topic)
            return Call(request=known.request, parse=lambda reply: self._learn(known.parse(reply)))
        options: ReadOptions = {**self._options, "epoch": self._epoch}
        if wait_ms is not None:
            options["wait_ms"] = wait_ms
        following = calls.read(self._topic, self._from_seq, options)
        return Call(request=following.request, parse=lambda reply: self._advance(following, reply))

    def _learn(self, state: TopicState) -> list[Record | Tombstone]:
        self._epoch = state.of(self._options.get("partition")).epoch
        return []

    def _advance(self, following: Call[Diff], reply: Reply) -> list[Record | Tombstone]:
        diff = following.parse(reply)
        gap = diff.tombstone
        if gap is not None and gap.reason == "recreated":
            # Its records are requested again, with the new epoch. If the topic were recreated once more before that
            # epoch is known, continuing from next_from_seq would silently skip records of the third topic.
            self._from_seq = 0
            self._epoch = None
            self.is_caught_up = False
            return [gap]
        self._from_seq = diff.next_from_seq
        self.is_caught_up = diff.caught_up
        return [gap, *diff.records] if gap is not None else list(diff.records)
