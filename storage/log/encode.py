"""Turns a write into the frames of one atomic batch. Pure.

Source: docs/reference/format.md#frames.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from storage.format import MORE, TYPE_OF, Batch, Control, FrameFlag, FrameType, encode, encode_control
from storage.log.submission import AppendStep, ControlStep, Step, Unit
from storage.records import AppendedRecords
from storage.state import LookedUp

DURABLE, BINARY = int(FrameFlag.DURABLE), int(FrameFlag.BINARY)
TAG, NODE = int(FrameFlag.HAS_TAG), int(FrameFlag.HAS_NODE)


class EncodedUnit(NamedTuple):
    """A unit and its bytes."""

    unit: Unit
    payload: bytes
    frames: int


class WriteHeader(NamedTuple):
    """What all Append frames of a write have in common."""

    topic_id: int
    first_seq: int
    ts: int
    durable: bool
    node: bytes


def assemble(
    appends: bytes,
    appended: AppendedRecords,
    head: WriteHeader,
    *,
    before: Sequence[Control] = (),
    after: Sequence[Control] = (),
    key: str | None = None,
    hash: bytes | None = None,
    move: tuple[int, int] | None = None,
    producer: tuple[int, int, int] | None = None,
    apart: bool = False,
) -> EncodedUnit:
    """Encode a write as a batch: a Batch frame, `before`, the Append frames, `after`.

    A single Append frame without key, move and producer needs no Batch frame; neither do the Append frames of several
    writes (`apart`).
    """
    frames = len(before) + len(appended.sizes) + len(after)
    if apart or (frames == 1 and key is None and move is None and producer is None):
        return EncodedUnit(Unit(None, [AppendStep(head.topic_id, appended, 0)]), appends, frames)
    leading = [_control(each, head, more=True) for each in before]
    trailing = [_control(each, head, more=index < len(after) - 1) for index, each in enumerate(after)]
    lead, trail = b"".join([frame for frame, _ in leading]), b"".join([frame for frame, _ in trailing])
    size = len(lead) + len(appends) + len(trail)
    batch = Batch(
        frames=frames, body_bytes=size, first_seq=head.first_seq, key=key, hash=hash, move=move, producer=producer
    )
    opening, _ = _control(batch, head, more=True)
    steps: list[Step] = [step for _, step in leading]
    steps.append(AppendStep(head.topic_id, appended, len(opening) + len(lead)))
    steps += [step for _, step in trailing]
    return EncodedUnit(Unit(batch, steps), b"".join((opening, lead, appends, trail)), frames + 1)


def encode_controls(
    values: Sequence[Control | LookedUp], topic_id: int, ts: int, *, durable: bool = True, nodes: Sequence[str] = ()
) -> EncodedUnit:
    """Encode control frames without records; several of them are an atomic batch. `nodes`: those of Lease frames."""
    if len(values) == 1:
        head = WriteHeader(topic_id, 0, ts, durable, nodes[0].encode() if nodes else b"")
        payload, step = _control(values[0], head, more=False)
        return EncodedUnit(Unit(None, [step]), payload, 1)
    heads = [WriteHeader(topic_id, 0, ts, durable, node.encode()) for node in nodes or [""] * len(values)]
    last = len(values) - 1
    frames = [_control(each, heads[index], more=index < last) for index, each in enumerate(values)]
    following = b"".join([frame for frame, _ in frames])
    batch = Batch(frames=len(frames), body_bytes=len(following))
    opening, _ = _control(batch, heads[0], more=True)
    return EncodedUnit(Unit(batch, [step for _, step in frames]), opening + following, len(frames) + 1)


# These frames have the durable flag in every durability class: topics, their settings, cursors of consumers and states
# are always synced before the ack.
_ALWAYS_DURABLE = frozenset(
    {
        FrameType.TOPIC_CREATE,
        FrameType.TOPIC_DELETE,
        FrameType.ROUTER_CREATE,
        FrameType.ROUTER_DELETE,
        FrameType.CONFIG_UPDATE,
        FrameType.CONSUMER,
        FrameType.STATE,
    }
)


def _control(value: Control | LookedUp, head: WriteHeader, *, more: bool) -> tuple[bytes, ControlStep]:
    """The frame of a value, and the step that applies it. The step of a Delete has the records that were looked up."""
    written = value.delete if isinstance(value, LookedUp) else value
    type_ = TYPE_OF[type(written)]
    durable = head.durable or type_ in _ALWAYS_DURABLE
    flags = (MORE if more else 0) | (DURABLE if durable else 0)
    node = head.node if type_ == FrameType.LEASE else b""
    frame = encode(type_, flags, head.topic_id, 0, head.ts, node, data=encode_control(written))
    return frame, ControlStep(type_, head.topic_id, head.ts, value, node.decode())
