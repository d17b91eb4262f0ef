"""The data of control frames: one MessagePack map with named keys each. Unknown keys are ignored.

Optional fields are left out when they are None. docs/reference/format.md lists every field; a test compares. Frame
types that nothing writes yet are declared with the feature that writes them.

Source: docs/reference/format.md#frames.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from storage.format.wal_frame import FrameType


class Control(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of all control frames."""


class TopicCreate(Control, frozen=True):
    """A log is created. `topic` is the topic_id of its topic's partition 0."""

    name: str
    topic: int
    partition: int
    partitions: int
    epoch: int
    config: dict[str, Any]
    paused: bool | None = None


class ConfigUpdate(Control, frozen=True):
    """A topic's settings are replaced; `epoch` may be renewed by salvage or restore. Absent paused = unchanged.

    `renewed_at`: the epoch is renewed, and this was the log's head then.
    """

    name: str
    topic: int
    partition: int
    partitions: int
    epoch: int
    config: dict[str, Any]
    paused: bool | None = None
    renewed_at: int | None = None


class TopicDelete(Control, frozen=True):
    """The log is gone, with its records, consumers, jobs and routers."""

    name: str


class Delete(Control, frozen=True):
    """Permanent, silent removal of the seqs up to `bound_head`, inclusive, that match every given predicate.

    `match` is ["tag", "Eq", text] or ["tag", "Glob", text + "*"].
    """

    bound_head: int
    before_seq: int | None = None
    match: list[str] | None = None
    seqs: list[int] | None = None
    ack: bool | None = None


class EvictWatermark(Control, frozen=True):
    """Floors by cause (lowest seq not lost to it) and loss ranges [from, to, cause]; merged by max and union.

    `jobs`: for a queue, the number of unacked jobs that are removed with them.
    """

    floors: dict[str, int] | None = None
    loss: list[tuple[int, int, str]] | None = None
    jobs: int | None = None


class HeadWatermark(Control, frozen=True):
    """No seq up to `reserved` is assigned a second time. The last frame of this type in the log wins."""

    reserved: int


class Lease(Control, frozen=True):
    """Jobs of a queue changed: `event` is claimed, released, extended, acked, expired or dead.

    `jobs` are [seq, lease_id, deadline, deliveries, ready_at, forgiven], the values from here on: lease_id 0 = not
    leased, ready_at 0 = at once; times are ms since the epoch. The frame's node holds the claimed jobs. `dead`: a move
    to the log `dest_id` is open from here to the Delete of the job; `released` of such a job cancels the move.
    """

    event: str
    jobs: list[tuple[int, int, int, int, int, int]]
    attempt_key: str | None = None
    dest_id: int | None = None
    reason: str | None = None


class CheckpointMark(Control, frozen=True):
    """Records of these logs, all of the frame's own shard, up to these seqs are in segments, synced."""

    absorbed: dict[int, int]


class Segment(Control, frozen=True):
    """A change of a segment. `event` is opened, sealed, tier, rewritten or dropped.

    `bytes` (here `data_bytes`) is the length of .data, `live` the number of live records; times are ms since the epoch.
    `packed` (here `packed_bytes`) is the length of the .zdata that replaces it; None: it is not packed.
    """

    first_seq: int
    end_seq: int
    event: str
    gen: int
    live: int
    data_bytes: int = msgspec.field(name="bytes")
    tier: str
    live_bytes: int | None = None
    packed_bytes: int | None = msgspec.field(default=None, name="packed")


class Batch(Control, frozen=True):
    """Opens an atomic batch: `frames` frames of `bytes` bytes in total (here `body_bytes`) follow it.

    `key` is the idempotency key as sent, `hash` xxh3_128 over u32-LE-length-prefixed node, tag, data, meta of each
    record as sent; `first_seq` only if Appends follow. `move` is [source topic_id, seq] of the record that this batch
    copies: it is remembered until the source's record is deleted for good. `producer` is [producer id, epoch, sequence
    of the first record] of the idempotent producer that sent the batch.
    """

    frames: int
    body_bytes: int = msgspec.field(name="bytes")
    first_seq: int | None = None
    key: str | None = None
    hash: bytes | None = None
    move: tuple[int, int] | None = None
    producer: tuple[int, int, int] | None = None


class RouterCreate(Control, frozen=True):
    """In dest's log: a router is created, or an existing one gets another definition (then the cursor stays).

    `source_cursor`: the router does not copy records of the source up to here. `source_epoch`: that of a source in
    another cell, for a new router.
    """

    router_id: int
    name: str
    definition: dict[str, Any]
    source_id: int
    dest_id: int
    source_cursor: int
    source_epoch: int | None = None


class RouterDelete(Control, frozen=True):
    """In dest's log: the router is gone."""

    router_id: int


class RouterCursor(Control, frozen=True):
    """In dest's log, in the batch of the copies: records of the source up to `source_seq` are done.

    `source_epoch`: a source in another cell has this epoch from here on.
    """

    router_id: int
    source_seq: int
    source_epoch: int | None = None


class Consumer(Control, frozen=True):
    """A named reader of the log changed. `event` is put, cursor or delete.

    `put` creates it, with its cursor at `seq`, or, without `seq`, gives an existing one another `config`. `cursor`: its
    cursor is at `seq` from here on, and everything up to there is done.
    """

    consumer_id: int
    name: str
    event: str
    config: dict[str, Any] | None = None
    seq: int | None = None


class State(Control, frozen=True):
    """A small value by kind and key, of the frame's log, or of the engine with topic_id 0. None: it is deleted."""

    kind: str
    key: str
    value: bytes | None = None


class Moved(Control, frozen=True):
    """In a batch of copies, after them: the records of the log `source_id` that they are copies of, in order.

    The same as `Batch.move`, which is for one record. A version that does not know this frame refuses the log: if it
    skipped the frame, it would copy the records again after a crash.
    """

    source_id: int
    seqs: list[int]


class SyncPoint(Control, frozen=True):
    """All bytes below `offset` in WAL file `file` were durable when this frame was written at `at` of that file."""

    file: int
    at: int
    offset: int


CONTROL: dict[FrameType, type[Control]] = {
    FrameType.TOPIC_CREATE: TopicCreate,
    FrameType.TOPIC_DELETE: TopicDelete,
    FrameType.ROUTER_CREATE: RouterCreate,
    FrameType.ROUTER_DELETE: RouterDelete,
    FrameType.DELETE: Delete,
    FrameType.EVICT_WATERMARK: EvictWatermark,
    FrameType.CHECKPOINT_MARK: CheckpointMark,
    FrameType.CONFIG_UPDATE: ConfigUpdate,
    FrameType.SEGMENT: Segment,
    FrameType.HEAD_WATERMARK: HeadWatermark,
    FrameType.LEASE: Lease,
    FrameType.BATCH: Batch,
    FrameType.ROUTER_CURSOR: RouterCursor,
    FrameType.CONSUMER: Consumer,
    FrameType.SYNC_POINT: SyncPoint,
    FrameType.STATE: State,
    FrameType.MOVED: Moved,
}
TYPE_OF: dict[type[Control], FrameType] = {struct: type_ for type_, struct in CONTROL.items()}

_encoder = msgspec.msgpack.Encoder()
_decoders: dict[int, msgspec.msgpack.Decoder[Any]] = {
    int(type_): msgspec.msgpack.Decoder(struct) for type_, struct in CONTROL.items()
}


class UnknownFrameType(ValueError):
    """A valid frame of a type this version does not know: written by a newer one."""


#: The MessagePack map of a control frame.
encode_control: Callable[[Control], bytes] = _encoder.encode


def decode_control(type_: int, data: bytes) -> Any:
    """The control value in a verified frame. Raises UnknownFrameType, or msgspec.DecodeError."""
    decoder = _decoders.get(type_)
    if decoder is None:
        raise UnknownFrameType(f"frame type {type_} is not known to this version")
    return decoder.decode(data)
