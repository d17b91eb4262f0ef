"""A small segment of format version 1, as bytes: live and deleted frames, and seqs without a record. See README.md."""

from __future__ import annotations

from storage.format import idx_entry, segment_frame, wal_frame
from storage.format.wal_frame import FrameType

TS = 1_755_000_000_000
TOPIC_ID, FIRST_SEQ, END_SEQ = 7, 41, 49
DURABLE, MORE, BINARY = 4, 8, 16

#: seq → flags, node, tag, data. Seqs 41, 44, 45 and 48 have no record.
RECORDS: dict[int, tuple[int, bytes, bytes, bytes]] = {
    42: (0, b"", b"", b'{"data":null}'),
    43: (DURABLE | MORE, b"worker-1", b"orders", b'{"data":{"a": 1.10},"meta":{"k":"v"}}'),
    46: (7 << 5, b"", b"eu", '{"data":["ä",1e400]}'.encode()),
    47: (BINARY, b"n", b"", b"\x82\xa1k\xc0\xa1v\xc4\x02\x00\xff"),
}
DELETED = {43, 47}


def wal_frames() -> dict[int, bytes]:
    """The records as they were in the log."""
    return {
        seq: wal_frame.encode(FrameType.APPEND, flags, TOPIC_ID, seq, TS + seq, node, tag, data)
        for seq, (flags, node, tag, data) in RECORDS.items()
    }


def segment_files() -> dict[str, bytes]:
    """Name in v1/ → content, the files as they are once all deletions are flagged."""
    data, entries, ts = b"", b"", 0
    frames = wal_frames()
    for seq in range(FIRST_SEQ, END_SEQ):
        if seq not in frames:
            entries += idx_entry.pack(len(data), 0, ts, 0)
            continue
        frame = segment_frame.from_wal(frames[seq], 0, len(frames[seq]))
        if seq in DELETED:
            frame = frame[:-1] + bytes((segment_frame.DELETED,))
        ts = TS + seq
        flags = segment_frame.idx_flags(frame[4], seq in DELETED)
        entries += idx_entry.pack(len(data), len(frame), ts, flags)
        data += frame
    return {"segment.data.bin": data, "segment.idx.bin": entries}
