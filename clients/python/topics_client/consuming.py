"""Following a consumer: the next call, when to commit, and when to end. No I/O.

Source: docs/reference/api.md#consumers.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from topics_client import consumer_calls
from topics_client.consumer_values import ConsumerRead, ConsumerReadOptions, ConsumerState
from topics_client.following import LONG_POLL_MS
from topics_client.values import Record, Tombstone
from topics_client.wire import Call, Reply


class Consuming:
    """Makes the calls of a reader that follows. Until `is_over`, `call` returns the next one, whose value is the
    records to return.

    It is called when all returned records are done, so it commits them first. If the answer of a commit is lost, or the
    reader dies before it, the same records come again: none is skipped. With `shared` the cursor moves when records are
    returned, and nothing is committed: several readers then share them.

    It ends when no record has come for the `wait_ms` of the options; without it, never.
    """

    def __init__(
        self, topic: str, consumer: str, options: ConsumerReadOptions, *, shared: bool, now: Callable[[], float]
    ) -> None:
        self._shared = shared
        self._topic = topic
        self._consumer = consumer
        self._wait_ms = options.get("wait_ms")
        self._options: ConsumerReadOptions = {"include_tags": True, **options, "checkpoint": shared}
        self._now = now
        #: When the first read without a result began. None: the last read had one.
        self._idle_since_s: float | None = None
        self._done_seq: int | None = None
        #: Whether no more calls are to be made.
        self.is_over = False

    def call(self) -> Call[list[Record | Tombstone]]:
        """The next call to make."""
        if self._done_seq is not None:
            committing = consumer_calls.commit(
                self._topic, self._consumer, self._done_seq, self._options.get("partition")
            )
            return Call(request=committing.request, parse=lambda reply: self._committed(committing, reply))
        if self._idle_since_s is None:
            self._idle_since_s = self._now()
        options: ConsumerReadOptions = {**self._options, "wait_ms": min(self._left_ms(), LONG_POLL_MS)}
        reading = consumer_calls.read(self._topic, self._consumer, options)
        return Call(request=reading.request, parse=lambda reply: self._advance(reading, reply))

    def _committed(self, committing: Call[ConsumerState], reply: Reply) -> list[Record | Tombstone]:
        committing.parse(reply)
        self._done_seq = None
        return []

    def _left_ms(self) -> int:
        """How long to wait for a record."""
        if self._wait_ms is None or self._idle_since_s is None:
            return LONG_POLL_MS
        return max(0, math.ceil(self._wait_ms - 1000 * (self._now() - self._idle_since_s)))

    def _advance(self, reading: Call[ConsumerRead], reply: Reply) -> list[Record | Tombstone]:
        answer = reading.parse(reply)
        if not self._shared and answer.next_from_seq > answer.cursor_seq:
            # Skipped records too: otherwise each read would examine them again.
            self._done_seq = answer.next_from_seq
        gap = answer.tombstone
        if gap is not None or answer.records:
            self._idle_since_s = None
        elif answer.caught_up and not self._left_ms():
            self.is_over = self._done_seq is None
        return [gap, *answer.records] if gap is not None else list(answer.records)
