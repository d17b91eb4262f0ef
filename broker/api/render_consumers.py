"""The answers to consumers; records are copied as bytes, as in `render`.

Source: docs/reference/api.md#consumers.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

import msgspec

from broker.content import Shape, quoted, render
from storage.records import split

if TYPE_CHECKING:
    from storage.state.consumers import ConsumerRead, ConsumerState


def read(consumer: str, done: ConsumerRead, shape: Shape, started: float, text: bytes | None = None) -> bytes:
    """The answer to a read: that of a diff, and the consumer's cursor. `text`: the records, if already rendered."""
    more = b',"consumer":%b,"cursor_seq":%d,"unread":%d%b' % (
        quoted(consumer),
        done.cursor_seq,
        done.unread,
        b',"repeated":true' if done.repeated else b"",
    )
    return render.diff(done.result, shape, started, more, text)


def entry(state: ConsumerState) -> dict[str, Any]:
    """A consumer, in the form that all answers use."""
    topic, partition = split(state.topic)
    return {
        "topic": topic,
        **({"partition": partition} if partition else {}),
        "consumer": state.consumer,
        "consistency": state.config.consistency.value,
        "persist_every": state.config.persist_every,
        "cursor_seq": state.cursor_seq,
        "durable_seq": state.durable_seq,
        "unread": state.unread,
        "lag": state.lag,
    }


def state(state: ConsumerState, started: float) -> bytes:
    """The answer to a commit."""
    elapsed_ms = (perf_counter() - started) * 1000
    return b'%b,"performance":{"server_total_ms":%.3f}}' % (msgspec.json.encode(entry(state))[:-1], elapsed_ms)
