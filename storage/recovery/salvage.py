"""How recovery handles damage under TOPICS_RECOVERY=salvage.

It gives up as little as possible, and reports every loss. It resumes only where frames chain to the end of the file or
to the next damage. The gap becomes loss ranges (cause salvage). Every log of the shard gets a new epoch, because
nobody can know what its tail lost. Each piece of damage is logged with file and offsets.

Source: docs/reference/guarantees.md#recovery.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

import kernel
from storage.format import MORE, FrameType, encode, wal_frame
from storage.log import CHUNK_BYTES, AppendStep, ControlStep, Step
from storage.platform import File, FileSystem
from storage.records import LossCause
from storage.state import LossRange

if TYPE_CHECKING:
    from storage.recovery.recovery import Report
    from storage.state import Log

_log = structlog.get_logger("storage")


class Salvage:
    """Collects the damage and the losses."""

    def __init__(self, fs: FileSystem, report: Report) -> None:
        self._fs = fs
        self._report = report
        #: Shards with damage.
        self.shards: set[int] = set()
        self.shard = 0
        self._ownerless: dict[int, tuple[int, int]] = {}

    def damage(self, path: str, offset: int, what: str) -> None:
        """Synced bytes cannot be read."""
        self.shards.add(self.shard)
        _log.error("wal_damage", file=path, offset=offset, what=what)

    def ownerless(self, steps: list[Step]) -> None:
        """Frames of an unknown log: a later frame deletes its topic, or its TopicCreate is lost."""
        for step in steps:
            if isinstance(step, AppendStep):
                first_seq, _ = self._ownerless.get(step.topic_id, (step.appended.first_seq, 0))
                self._ownerless[step.topic_id] = (first_seq, step.appended.last_seq)
            elif isinstance(step, ControlStep) and step.type == FrameType.TOPIC_DELETE:
                self._ownerless.pop(step.topic_id, None)

    def report_ownerless(self) -> None:
        """Report the logs given up as a whole, because the frame that created them is lost."""
        for topic_id, (first_seq, last_seq) in self._ownerless.items() if self.shards else ():
            _log.error("log_lost", topic_id=topic_id, first_seq=first_seq, last_seq=last_seq)

    def losses(self, log: Log) -> list[LossRange]:
        """Seqs of a replayed log that should exist and do not: neither lost before nor deleted (deleted records still
        have entries)."""
        if log.shard not in self.shards:
            return []
        log.recount()
        found: list[LossRange] = []
        for first, last in log.tail.gaps(max(log.marks.live_floor, log.held.flushed + 1), log.head + 1):
            for start, end, _ in [*log.marks.loss, (last + 1, last + 1, "")]:
                if first < min(start, last + 1):
                    found.append((first, min(start, last + 1) - 1, str(LossCause.SALVAGE)))
                first = max(first, end + 1)
        for first, last, _ in found:
            _log.error("records_lost", topic_id=log.topic_id, first_seq=first, last_seq=last)
        return found

    def loose(self, steps: list[Step]) -> None:
        """The frames of a batch whose end is damaged. The whole batch is given up, because a batch is atomic."""
        for step in steps:
            if isinstance(step, ControlStep):
                _log.error("control_frame_lost", topic_id=step.topic_id, type=FrameType(step.type).name)
            elif isinstance(step, AppendStep):
                appended = step.appended
                _log.error(
                    "records_given_up", topic_id=step.topic_id, first_seq=appended.first_seq, last_seq=appended.last_seq
                )

    def resume(self, file: File, path: str, start: int, batch_end: int) -> int | None:
        """The offset after `start` where whole units begin again; None when this file has no more.

        `batch_end`: where the damaged batch would have ended, 0 = unknown.
        """
        size = file.size()
        offset = max(start + 1, batch_end)
        while offset < size:
            data = file.pread(min(CHUNK_BYTES * 2, size - offset), offset)
            if not data:
                break
            found = _first_unit(data, last=offset + len(data) >= size)
            if found is not None:
                skipped = offset + found - start
                self._report.salvaged_bytes += skipped
                _log.error("wal_skipped", file=path, offset=start, bytes=skipped)
                return offset + found
            offset += max(1, min(CHUNK_BYTES, len(data)))
        self._report.salvaged_bytes += size - start
        _log.error("wal_skipped", file=path, offset=start, bytes=size - start)
        return None


def filler(size: int) -> bytes:
    """A frame of exactly `size` bytes without effect. It replaces damage, so that all later offsets stay.

    It is an EvictWatermark of no log, without floors; the padding is in its node, or under a key that is ignored.
    """
    if size <= wal_frame.OVERHEAD + 256:
        return encode(FrameType.EVICT_WATERMARK, 0, 0, 0, 0, node=b"\0" * (size - wal_frame.OVERHEAD - 1), data=b"\x80")
    room = size - wal_frame.OVERHEAD - len(b"\x81\xa3pad\xc6") - 4
    return encode(
        FrameType.EVICT_WATERMARK, 0, 0, 0, 0, data=b"\x81\xa3pad\xc6" + room.to_bytes(4, "big") + bytes(room)
    )


def _first_unit(data: bytes, *, last: bool) -> int | None:
    """Where in `data` a unit begins: a frame with a chain of frames after it, and not inside a batch."""
    stop = len(data) - wal_frame.OVERHEAD if last else min(len(data) - wal_frame.OVERHEAD, CHUNK_BYTES)
    at = 0
    while at <= stop:
        # A frame's first eight bytes are a length, whose upper byte is nearly always 0, and a type of 1 to 17.
        if not 1 <= data[at + 4] <= 17:
            at += 1
            continue
        frames, end, _ = kernel.scan(data, start=at)
        if not frames:
            at += 1
            continue
        inside = True
        for number, (offset, *_, type_, flags, _, _) in enumerate(frames):
            if type_ == FrameType.BATCH or (inside and type_ == FrameType.SYNC_POINT) or not inside:
                return offset
            if not flags & MORE:
                # The end of a batch whose beginning is lost, or a single frame. A first frame alone counts as a
                # single frame.
                if not number:
                    return offset
                inside = False
        at = max(end, at + 1)
    return None
