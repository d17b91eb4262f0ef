"""Keeps a consumer's newest answer across a clean stop. Pure.

A clean stop does not mean that the answer has arrived. So the cursor is written as it was before that answer. A second
frame in the same batch says where the answer ended and which attempt_key it had. The next process continues after the
answer for all reads except one with that key, which gets the same records again. docs/reference/format.md has the
bytes.
"""

from __future__ import annotations

import msgspec

from storage.format import control
from storage.state.consumers.attempts import ANSWER_TTL_MS, AnswerRange
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
    """The frame that follows the cursor frame."""
    value = _Answer(
        consumer_id=consumer.consumer_id, key=awaited.key, cursor=consumer.confirmed_seq, **awaited.range._asdict()
    )
    return control.State(kind=ATTEMPT, key=consumer.name, value=msgspec.msgpack.encode(value))


def resume(consumer: Consumer, states: StateTable | None, head_seq: int, now_ms: int) -> None:
    """Restore the answer that was unconfirmed at the last stop, if any. Its key may be used for its full time again."""
    raw = states.get(ATTEMPT, consumer.name) if states is not None else None
    if raw is None:
        return
    entry = msgspec.msgpack.decode(raw, type=_Answer)
    same = (entry.consumer_id, entry.cursor) == (consumer.consumer_id, consumer.durable_seq)
    if same and entry.to_seq <= head_seq:  # salvage may have lost the end of the log
        range_ = AnswerRange(entry.from_seq, entry.to_seq, entry.limit, entry.max_bytes)
        consumer.resume(Awaited(entry.key, range_, now_ms + ANSWER_TTL_MS))


def has_one(states: StateTable | None, name: str) -> bool:
    """Whether the log has an unconfirmed answer, so that a frame must clear it even if the cursor does not move."""
    return states is not None and states.get(ATTEMPT, name) is not None
