"""One write-ahead-log file: its frames and batches, and where and why it ends. From the specification alone.

Readings, where the specification leaves a choice:

- Batch.frames counts the frames that follow the Batch frame, Batch.bytes is their total size. Bit 3 is set on the
  Batch frame and on every frame of the batch but the last. Without a Batch frame there is no bit 3.
- first_seq is given exactly when Appends follow, and is the seq of the first. They are all of the log the Batch
  frame names, with seqs one after another.
- hash covers, for each Append of the batch in turn, node, tag, data and meta as stored (a write-level node counts
  as that of each record), each behind its length as u32; what is absent has length 0.
- A SyncPoint never lies within a batch, and its `offset` is 0 or the end of a batch. Behind an invalid frame one
  proves corruption only if the damage lies below its `offset`: between `offset` and `at` may lie what was written,
  but not yet synced.
- The one-file decoder takes an end without a valid frame as the end of the log. Whether a log may end there is
  judged with the other files in view (`spec_decoder`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import xxhash

from tests.support.spec_control import APPEND, BATCH, SYNC_POINT
from tests.support.spec_frames import BINARY, Frame, NotAFrame, SpecViolation, decode_frame

# Type 16, any flags, topic_id 0, seq 0: what follows the frame_len of a SyncPoint. The lookahead finds overlaps.
_SYNC_POINT_HEAD = re.compile(rb"(?=\x10[\x00-\xff]\x00{16})", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Batch:
    """What is applied together: a single frame, or a Batch frame (`head`) and the frames after it."""

    head: Frame | None
    frames: tuple[Frame, ...]

    @property
    def offset(self) -> int:
        return self.head.offset if self.head else self.frames[0].offset


@dataclass(frozen=True, slots=True, kw_only=True)
class WalFile:
    """A decoded file. `end`: where the last complete batch ends. `torn`: why nothing follows although there are bytes
    other than zero ('' if the file ends there, or only zeros follow)."""

    name: str
    number: int
    size: int
    batches: tuple[Batch, ...]
    end: int
    torn: str

    @property
    def frames(self) -> list[Frame]:
        """Every frame below `end`, Batch and SyncPoint frames included."""
        return [frame for batch in self.batches for frame in ((batch.head,) if batch.head else ()) + batch.frames]


def decode_wal_file(data: bytes, *, number: int, name: str = "wal") -> WalFile:
    """Decode a whole file. Raises SpecViolation for anything but a torn end."""
    batches: list[Batch] = []
    offset = 0
    boundaries = {0}
    reason = ""
    while offset < len(data):
        try:
            batch, end = _decode_batch(data, offset, name)
        except NotAFrame as error:
            reason = str(error)
            break
        _judge_sync_point(batch, number, boundaries)
        batches.append(batch)
        boundaries.add(end)
        offset = end
    if reason:
        _refuse_synced_damage(data, offset, number, name, reason)
    torn = reason if data[offset:].strip(b"\0") else ""
    return WalFile(name=name, number=number, size=len(data), batches=tuple(batches), end=offset, torn=torn)


def _decode_batch(data: bytes, offset: int, name: str) -> tuple[Batch, int]:
    """The batch at `offset` and its end. Raises NotAFrame if one of its frames is incomplete or invalid."""
    first = decode_frame(data, offset, name)
    if first.type != BATCH:
        if first.more:
            raise SpecViolation(name, offset, "bit 3 without a Batch frame before it")
        return Batch(None, (first,)), first.end
    frames: list[Frame] = []
    end = first.end
    while len(frames) < first.field("frames"):
        if end >= len(data):
            raise NotAFrame(f"a batch of {first.field('frames')} frames breaks off after {len(frames)}")
        frame = decode_frame(data, end, name)
        frames.append(frame)
        end = frame.end
    batch = Batch(first, tuple(frames))
    _judge_batch(batch, end - first.end)
    return batch, end


def _judge_batch(batch: Batch, size: int) -> None:
    head = batch.head
    assert head is not None
    if size != head.field("bytes"):
        raise SpecViolation(head.file, head.offset, f"Batch says {head.field('bytes')} bytes follow, {size} do")
    for place, frame in enumerate((head, *batch.frames)):
        last = place == len(batch.frames)
        if frame.more == last:
            raise SpecViolation(frame.file, frame.offset, "bit 3 does not agree with the length of the batch")
        if frame is not head and frame.type in (BATCH, SYNC_POINT):
            raise SpecViolation(frame.file, frame.offset, f"a frame of type {frame.type} within a batch")
    appends = [frame for frame in batch.frames if frame.type == APPEND]
    if head.field("first_seq") != (appends[0].seq if appends else None):
        raise SpecViolation(head.file, head.offset, "first_seq is not the seq of the first Append")
    for place, frame in enumerate(appends):
        if frame.topic_id != head.topic_id or frame.seq != appends[0].seq + place:
            raise SpecViolation(frame.file, frame.offset, "the Appends of a batch are one run of one log")
    textual = not any(frame.flags & BINARY for frame in appends)
    if textual and head.field("hash") not in (None, batch_hash(appends)):
        raise SpecViolation(head.file, head.offset, "hash is not that of the Appends")


def batch_hash(appends: list[Frame]) -> bytes:
    """xxh3_128 over node, tag, data and meta of each record, each after its length."""
    hasher = xxhash.xxh3_128()
    for frame in appends:
        assert frame.body is not None
        for part in (frame.node, frame.tag, frame.body.data, frame.body.meta or b""):
            hasher.update(len(part).to_bytes(4, "little") + part)
    return hasher.digest()


def _judge_sync_point(batch: Batch, number: int, boundaries: set[int]) -> None:
    frame = batch.frames[0]
    if frame.type != SYNC_POINT:
        return
    if frame.field("file") != number:
        raise SpecViolation(frame.file, frame.offset, f"SyncPoint of file {frame.field('file')} in file {number}")
    synced = frame.field("offset")
    if synced not in boundaries:
        raise SpecViolation(frame.file, frame.offset, f"SyncPoint's offset {synced} is no end of a batch")


def _refuse_synced_damage(data: bytes, damage: int, number: int, name: str, reason: str) -> None:
    """Try every offset after the damage for a SyncPoint that names the damaged place as synced."""
    for found in _SYNC_POINT_HEAD.finditer(data, damage + 5):
        offset = found.start() - 4
        try:
            frame = decode_frame(data, offset, name)
        except (NotAFrame, SpecViolation):
            continue  # not one of this file at this place; stale bytes may contain any
        if frame.field("file") == number and frame.field("offset") > damage:
            raise SpecViolation(name, damage, f"{reason}; yet the SyncPoint at {offset} says this was synced")
