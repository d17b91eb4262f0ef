"""One write-ahead-log frame, decoded from the words of the storage specification alone.

Nothing of the package under test is imported here, so that a misunderstanding cannot be shared.

    0   frame_len u32 = 42 + node_len + tag_len + data_len     22  ts u64
    4   type u8                                                30  node_len u16
    5   flags u8                                               32  tag_len u16
    6   topic_id u64                                           34  data_len u32
    14  seq u64                                                38  node, tag, data, then xxh3 u64 over [4 .. here)

Two failures are kept apart. `NotAFrame`: length or checksum do not fit, which may be a torn write at the end of a log.
`SpecViolation`: the checksum is right, so the bytes were meant, and they are not as specified.

Readings, where the specification leaves a choice:

- The checksum is an integer like the others, so little-endian (xxhash's `digest()` would be big-endian).
- has_tag and has_node are set exactly when their length is not 0; an empty tag is no tag.
- `binary` (bit 4) and the hop count belong to Append frames; a control frame has neither, though its data is
  MessagePack.
- seq is 0 in every frame but Append (the source text: "0 for non-Append control frames"). Control frames carry no
  tag, and no node but in Lease (the holder).
- Frames "of no log" (topic_id 0) are SyncPoint and CheckpointMark, but for a mark that is of one log alone and in a
  batch of that log's; Batch carries the log of its Appends.
- The flag `durable` should be set on what is "always fsync class" (types 2 to 5, 9, Consumer put and delete). No
  reader concludes anything from it there, so a frame without it is read, with a `remark`. It is not judged on other
  control frames.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import xxhash

from tests.support.spec_control import (
    APPEND,
    BATCH,
    CHECKPOINT_MARK,
    CONFIG_UPDATE,
    CONSUMER,
    DELETE,
    EVICT_WATERMARK,
    LEASE,
    MOVED,
    ROUTER_CREATE,
    ROUTER_DELETE,
    STATE,
    SYNC_POINT,
    TOPIC_CREATE,
    TOPIC_DELETE,
    Body,
    ControlViolation,
    decode_binary,
    decode_body,
    decode_control,
)

HEADER_BYTES = 38
CHECKSUM_BYTES = 8
LEAST_FRAME_LEN = 42

HAS_TAG, HAS_NODE, DURABLE, MORE, BINARY = 1, 2, 4, 8, 16


class SpecViolation(Exception):
    """Bytes that are not as the specification says; names file, offset and reason."""

    def __init__(self, file: str, offset: int, reason: str) -> None:
        super().__init__(f"{file} at {offset}: {reason}")
        self.file, self.offset, self.reason = file, offset, reason


class NotAFrame(Exception):
    """Length or checksum do not fit: no frame begins here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A frame and where it is. `fields`: the map of a control frame. `body`: the parts of an Append.

    `remark`: a deviation from the specification that changes no meaning.
    """

    file: str
    offset: int
    size: int
    type: int
    flags: int
    topic_id: int
    seq: int
    ts: int
    node: bytes
    tag: bytes
    data: bytes
    fields: dict[str, Any] | None = None
    body: Body | None = None
    remark: str = ""

    @property
    def end(self) -> int:
        return self.offset + self.size

    @property
    def more(self) -> bool:
        return bool(self.flags & MORE)

    @property
    def durable(self) -> bool:
        return bool(self.flags & DURABLE)

    @property
    def hops(self) -> int:
        return self.flags >> 5

    def field(self, name: str, default: Any = None) -> Any:
        """A control field, or `default` if it is missing."""
        return (self.fields or {}).get(name, default)


def decode_frame(data: bytes, offset: int, file: str = "frame") -> Frame:
    """The frame that begins at `offset`. Raises NotAFrame or SpecViolation."""
    frame_len, node_len, tag_len, data_len = _checked_lengths(data, offset)
    node_at = offset + HEADER_BYTES
    tag_at = node_at + node_len
    data_at = tag_at + tag_len
    bare = Frame(
        file=file,
        offset=offset,
        size=4 + frame_len,
        type=data[offset + 4],
        flags=data[offset + 5],
        topic_id=_integer(data, offset + 6, 8),
        seq=_integer(data, offset + 14, 8),
        ts=_integer(data, offset + 22, 8),
        node=bytes(data[node_at:tag_at]),
        tag=bytes(data[tag_at:data_at]),
        data=bytes(data[data_at : data_at + data_len]),
    )
    try:
        return _judge(bare)
    except (ControlViolation, ValueError) as error:
        raise SpecViolation(file, offset, str(error)) from error


def _integer(data: bytes, offset: int, size: int) -> int:
    return int.from_bytes(data[offset : offset + size], "little")


def _checked_lengths(data: bytes, offset: int) -> tuple[int, int, int, int]:
    """(frame_len, node_len, tag_len, data_len), after checking that they fit each other, the file and the checksum."""
    left = len(data) - offset
    if left < 4:
        raise NotAFrame(f"{left} bytes are left, too few for a length")
    frame_len = _integer(data, offset, 4)
    if frame_len < LEAST_FRAME_LEN:
        raise NotAFrame(f"frame_len {frame_len} is less than an empty frame's")
    if frame_len > left - 4:
        raise NotAFrame(f"frame_len {frame_len} passes the end of the file")
    node_len, tag_len = _integer(data, offset + 30, 2), _integer(data, offset + 32, 2)
    data_len = _integer(data, offset + 34, 4)
    if frame_len != LEAST_FRAME_LEN + node_len + tag_len + data_len:
        raise NotAFrame(f"frame_len {frame_len} is not 42 + {node_len} + {tag_len} + {data_len}")
    end = offset + 4 + frame_len
    stored = _integer(data, end - CHECKSUM_BYTES, CHECKSUM_BYTES)
    found = xxhash.xxh3_64_intdigest(data[offset + 4 : end - CHECKSUM_BYTES], seed=0)
    if stored != found:
        raise NotAFrame(f"checksum {stored:016x} stored, {found:016x} found")
    return frame_len, node_len, tag_len, data_len


def _judge(bare: Frame) -> Frame:
    """The same frame with its data decoded, or `ControlViolation`."""
    if not APPEND <= bare.type <= MOVED:
        raise ControlViolation(f"unknown frame type {bare.type}")
    if bool(bare.flags & HAS_TAG) != bool(bare.tag):
        raise ControlViolation(f"has_tag does not fit a tag of {len(bare.tag)} bytes")
    if bool(bare.flags & HAS_NODE) != bool(bare.node):
        raise ControlViolation(f"has_node does not fit a node of {len(bare.node)} bytes")
    bare.node.decode("utf-8")
    bare.tag.decode("utf-8")
    return _judge_append(bare) if bare.type == APPEND else _judge_control(bare)


def _judge_append(bare: Frame) -> Frame:
    if bare.topic_id == 0 or bare.seq == 0:
        raise ControlViolation("an Append belongs to a log and has a seq")
    if bare.flags & BINARY:
        return dataclasses.replace(bare, body=decode_binary(bare.data))
    return dataclasses.replace(bare, body=decode_body(bare.data))


def _judge_control(bare: Frame) -> Frame:
    if bare.seq != 0:
        raise ControlViolation(f"seq {bare.seq} in a control frame")
    if bare.flags & ~(HAS_NODE | DURABLE | MORE):
        raise ControlViolation(f"flags {bare.flags:#04x} in a control frame")
    if bare.node and bare.type != LEASE:
        raise ControlViolation("a node in a control frame that is no Lease")
    of_no_log = bare.type == SYNC_POINT
    if of_no_log != (bare.topic_id == 0) and bare.type not in (BATCH, STATE, CHECKPOINT_MARK):
        raise ControlViolation(f"topic_id {bare.topic_id} in a frame of type {bare.type}")
    fields = decode_control(bare.type, bare.data)
    _judge_across_fields(bare, fields)
    always_durable = bare.type in (TOPIC_CREATE, TOPIC_DELETE, ROUTER_CREATE, ROUTER_DELETE, CONFIG_UPDATE, STATE)
    if bare.type == CONSUMER:
        always_durable = fields["event"] != "cursor"
    remark = ""
    if always_durable and not bare.durable:
        remark = f"a frame of type {bare.type} is always fsync class, but its flag durable is not set"
    elif bare.type == EVICT_WATERMARK and not fields.get("floors") and not fields.get("loss"):
        remark = "an EvictWatermark holds what is new, and here nothing is"
    return dataclasses.replace(bare, fields=fields, remark=remark)


def _judge_across_fields(frame: Frame, fields: dict[str, Any]) -> None:
    """What one control field says about another, or about the header."""
    kind = frame.type
    if kind in (TOPIC_CREATE, CONFIG_UPDATE):
        if fields["partition"] >= fields["partitions"]:
            raise ControlViolation("partition is not below partitions")
        if (fields["partition"] == 0) != (fields["topic"] == frame.topic_id):
            raise ControlViolation("topic is the topic_id of partition 0, and of no other")
    elif kind == DELETE and not fields.keys() & {"before_seq", "match", "seqs"}:
        raise ControlViolation("a Delete says what to delete")
    elif kind == CHECKPOINT_MARK and frame.topic_id and [*fields["absorbed"]] != [frame.topic_id]:
        raise ControlViolation("a mark in a log's own name is of that log alone")
    elif kind == BATCH and ("key" in fields) != ("hash" in fields):
        raise ControlViolation("key and hash come together")
    elif kind == SYNC_POINT:
        if fields["at"] != frame.offset:
            raise ControlViolation(f"SyncPoint says it lies at {fields['at']}")
        if fields["offset"] > fields["at"]:
            raise ControlViolation("SyncPoint calls bytes beyond itself synced")
