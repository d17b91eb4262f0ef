"""The newest answer of a consumer over a clean stop: what is kept of it with the cursor, and taken from there. Pure.

A clean stop is no sign that an answer has arrived. So the cursor is written as it was before that answer, and behind
it, in the same batch, where the answer ended and for which attempt_key it was. The next process goes on behind the
answer for everybody but that key, to which it gives the same records again. docs/format.md has the bytes.
"""

from __future__ import annotations

import msgspec

from storage.format import control
from storage.state.consumers.attempts import KEPT_MS, Span
from storage.state.consumers.consumer import Awaited, Consumer
from storage.state.state_table import ATTEMPT, StateTable


class _Answer(msgspec.Struct, kw_only=True):
    consumer_id: int
    key: str
    cursor: int
    from_seq: int
    to_seq: int
    limit: int
    max_bytes: int


def remembered(consumer: Consumer, awaited: Awaited) -> control.State:
    """The frame that stands behind that of the cursor."""
    value = _Answer(
        consumer_id=consumer.consumer_id, key=awaited.key, cursor=consumer.confirmed_seq, **awaited.span._asdict()
    )
    return control.State(kind=ATTEMPT, key=consumer.name, value=msgspec.msgpack.encode(value))


def resume(consumer: Consumer, states: StateTable | None, head_seq: int, now_ms: int) -> None:
    """Take up the answer that the last stop found unconfirmed, if any: its key has the whole time from now on."""
    raw = states.get(ATTEMPT, consumer.name) if states is not None else None
    if raw is None:
        return
    kept = msgspec.msgpack.decode(raw, type=_Answer)
    same = (kept.consumer_id, kept.cursor) == (consumer.consumer_id, consumer.durable_seq)
    if same and kept.to_seq <= head_seq:  # salvage may have lost the end of the log
        span = Span(kept.from_seq, kept.to_seq, kept.limit, kept.max_bytes)
        consumer.resume(Awaited(kept.key, span, now_ms + KEPT_MS))


def has_one(states: StateTable | None, name: str) -> bool:
    """Whether a frame is needed to be rid of it, though the cursor is where it shall be."""
    return states is not None and states.get(ATTEMPT, name) is not None
