"""An endless read of a consumer: the next call, and when to commit. No I/O.

Source: docs/reference/api.md#consumers.
"""

from __future__ import annotations

from topics_client import consumer_calls
from topics_client.consumer_values import ConsumerRead, ConsumerReadOptions, ConsumerState
from topics_client.following import LONG_POLL_MS
from topics_client.values import Record, Tombstone
from topics_client.wire import Call, Reply


class Consuming:
    """Makes the calls of an endless read: `call` returns the next one, whose value is the records to hand out.

    It is called when all records handed out are done, so it commits them first. When the answer of a commit is lost,
    or the reader dies before it, the same records come again: none is skipped. With `shared` the cursor moves when
    records are handed out, and nothing is committed: several readers then share them.
    """

    def __init__(self, topic: str, consumer: str, options: ConsumerReadOptions, *, shared: bool) -> None:
        self._shared = shared
        self._topic = topic
        self._consumer = consumer
        self._options: ConsumerReadOptions = {
            "wait_ms": LONG_POLL_MS,
            "include_tags": True,
            **options,
            "checkpoint": shared,
        }
        self._done_seq: int | None = None

    def call(self) -> Call[list[Record | Tombstone]]:
        """The next call to make."""
        if self._done_seq is not None:
            committing = consumer_calls.commit(
                self._topic, self._consumer, self._done_seq, self._options.get("partition")
            )
            return Call(request=committing.request, parse=lambda reply: self._committed(committing, reply))
        reading = consumer_calls.read(self._topic, self._consumer, self._options)
        return Call(request=reading.request, parse=lambda reply: self._advance(reading, reply))

    def _committed(self, committing: Call[ConsumerState], reply: Reply) -> list[Record | Tombstone]:
        committing.parse(reply)
        self._done_seq = None
        return []

    def _advance(self, reading: Call[ConsumerRead], reply: Reply) -> list[Record | Tombstone]:
        answer = reading.parse(reply)
        if not self._shared and answer.next_from_seq > answer.cursor_seq:
            # Skipped records too: they would be examined again each time.
            self._done_seq = answer.next_from_seq
        gap = answer.tombstone
        return [gap, *answer.records] if gap is not None else list(answer.records)
