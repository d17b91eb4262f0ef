"""Segments beside a log that is written frame by frame, so that a test can damage exact bytes.

seq 1   live, with a tag            segment from 1, sealed      seq 5   live    segment from 5, active
seq 2   no record                                               seq 6   live
seq 3   deleted, and flagged
seq 4   live, with a node                                       seq 7   in the log alone
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from storage.format import control, idx_entry, segment_frame, tag_file
from storage.segments import names
from storage.segments.names import SegmentId
from tests.unit.format.hand_written import LOG, TS, append, controlled, create, data_dir

#: The Append frames of the records in segments.
FRAMES = {
    1: append(1, tag=b"red"),
    3: append(3),
    4: append(4, '{"data":1.10}', node=b"w-1", ts=TS + 4),
    5: append(5, ts=TS + 5),
    6: append(6, ts=TS + 6),
}
SEALED_BYTES = sum(len(FRAMES[seq]) for seq in (1, 3, 4))


def opened(first_seq: int) -> bytes:
    return controlled(
        control.Segment(first_seq=first_seq, end_seq=first_seq, event="opened", gen=0, live=0, data_bytes=0, tier="hot")
    )


def segment_event(
    event: str, *, first_seq: int = 1, end_seq: int = 5, gen: int = 0, data_bytes: int, tier: str = "hot"
) -> bytes:
    return controlled(
        control.Segment(
            first_seq=first_seq,
            end_seq=end_seq,
            event=event,
            gen=gen,
            live=2,
            live_bytes=5,
            data_bytes=data_bytes,
            tier=tier,
        )
    )


def mark(**absorbed: int) -> bytes:
    """A CheckpointMark; keywords are t1=seq for topic_id 1."""
    value = control.CheckpointMark(absorbed={int(name[1:]): seq for name, seq in absorbed.items()})
    return controlled(value, topic_id=0)


#: The log that describes all this. A test may replace a part of it.
PARTS = {
    "create": create(),
    "records": b"".join(FRAMES.get(seq, append(seq)) for seq in range(1, 5)),
    "deletes": controlled(control.Delete(bound_head=4, seqs=[2, 3])),
    "opened": opened(1),
    "mark": mark(t1=4),
    "sealed": segment_event("sealed", data_bytes=SEALED_BYTES),
    "opened behind": opened(5),
    "records behind": FRAMES[5] + FRAMES[6],
    "mark behind": mark(t1=6),
    "in the log": append(7, ts=TS + 7),
}


def log(**instead: bytes) -> bytes:
    """The frames of the log. A keyword replaces the part with that name (with _ for a space)."""
    other = {name.replace("_", " "): frames for name, frames in instead.items()}
    assert other.keys() <= PARTS.keys() | {"end"}
    return b"".join((PARTS | other).values())


def write_segment(
    root: Path, seqs: Collection[int], *, first_seq: int, end_seq: int, gen: int = 0, deleted: Collection[int] = ()
) -> SegmentId:
    """Put a segment's .data and .idx below `root`."""
    id = SegmentId(LOG, first_seq, gen)
    data, entries, ts = b"", b"", 0
    for seq in range(first_seq, end_seq):
        if seq not in seqs:
            entries += idx_entry.pack(len(data), 0, ts, 0)
            continue
        frame = segment_frame.from_wal(FRAMES[seq], 0, len(FRAMES[seq]))
        if seq in deleted:
            frame = frame[:-1] + bytes((segment_frame.DELETED,))
        ts = segment_frame.decode(frame).ts
        entries += idx_entry.pack(len(data), len(frame), ts, segment_frame.idx_flags(frame[4], seq in deleted))
        data += frame
    segment_path(root, id).parent.mkdir(parents=True, exist_ok=True)
    segment_path(root, id).write_bytes(data)
    segment_path(root, id, names.IDX).write_bytes(entries)
    return id


def segment_path(root: Path, id: SegmentId, ending: str = names.DATA) -> Path:
    return Path(names.path(str(root), id, ending))


def segmented(root: Path, frames: bytes | None = None) -> tuple[SegmentId, SegmentId]:
    """The directory of the table above."""
    data_dir(root, log() if frames is None else frames)
    sealed = write_segment(root, {1, 3, 4}, first_seq=1, end_seq=5, deleted={3})
    content = tag_file.encode(1, 0, SEALED_BYTES, [(b"red", 1)])
    segment_path(root, sealed, names.TAG).write_bytes(content)
    return sealed, write_segment(root, {5, 6}, first_seq=5, end_seq=7)
