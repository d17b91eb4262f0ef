"""Workloads in which segments are packed, deleted from, moved and dropped. Registered in the same table as the
others."""

from __future__ import annotations

import msgspec

from storage import CompressionType
from tests.crash.cold_view import MOUNT
from tests.crash.segment_workloads import SEGMENTS, SHARDED
from tests.crash.workloads import DISK, FSYNC, with_class, workload
from tests.support.crash_session import Session

PACKED = msgspec.structs.replace(SEGMENTS, segment_pack_bytes=1)
PACKED_SHARDED = msgspec.structs.replace(SHARDED, segment_pack_bytes=1)
PACKED_COLD = msgspec.structs.replace(PACKED, cold_dir=MOUNT, hot_retain_segments=1)
ZSTD = with_class(FSYNC, compression_type=CompressionType.ZSTD)
LZ4 = with_class(DISK, compression_type=CompressionType.LZ4)
#: Records that compress well.
SIZE = 300


@workload(PACKED)
async def packing(s: Session) -> None:
    await s.append("z", 5, size=SIZE, config=ZSTD)
    await s.mark_flushed()
    await s.append("z", 4, size=SIZE, tag="t")
    await s.append("plain", 4, size=SIZE, config=FSYNC)
    await s.mark_flushed()
    await s.snapshot()
    await s.append("z", 4, size=SIZE, meta=True)
    await s.mark_flushed()
    await s.append("z", 1)


@workload(PACKED_SHARDED)
async def deleting_in_packed_segments(s: Session) -> None:
    for tag in ("x", "y", "x", "z"):
        await s.append("z", 2, size=SIZE, tag=tag, config=ZSTD)
        await s.append("l", 2, size=SIZE, tag=tag, config=LZ4)
    await s.mark_flushed()
    await s.together(s.remove("z", tag="y"), s.remove("l", tag="z"))
    await s.mark_flushed()
    await s.snapshot()
    await s.remove("z", before_seq=3)
    await s.remove("l", before_seq=6, tag="y")
    await s.mark_flushed()
    await s.append("z", 1)


@workload(PACKED)
async def packed_segments_rewritten_and_dropped(s: Session) -> None:
    for tag in ("x", "x", "y", "x", "y", "y"):
        await s.append("z", 2, size=SIZE, tag=tag, config=ZSTD)
    await s.mark_flushed()
    await s.remove("z", tag="x")
    await s.mark_flushed()
    await s.snapshot()
    await s.put("z", FSYNC)
    await s.append("z", 4, size=SIZE, tag="v")
    await s.remove("z", before_seq=11, tag="y")
    await s.mark_flushed()
    await s.remove("z", before_seq=6)
    await s.mark_flushed()
    await s.snapshot()


@workload(PACKED)
async def deleted_before_they_are_packed(s: Session) -> None:
    await s.append("z", 3, size=SIZE, tag="x", config=ZSTD)
    await s.append("z", 5, size=SIZE, tag="y")
    await s.together(s.mark_flushed(), s.remove("z", before_seq=3), s.append("z", 2, size=SIZE, tag="y"))
    await s.together(s.mark_flushed(), s.remove("z", tag="y", before_seq=6), s.snapshot())
    await s.mark_flushed()


@workload(PACKED_COLD)
async def packed_segments_move(s: Session) -> None:
    for tag in ("x", "y", "y"):
        await s.append("z", 2, size=SIZE, tag="x", config=ZSTD)
        await s.append("z", 2, size=SIZE, tag=tag)
    await s.mark_flushed()
    await s.remove("z", before_seq=2, tag="x")
    await s.mark_flushed()
    await s.relocate()
    await s.snapshot()
    await s.remove("z", before_seq=6, tag="x")
    await s.mark_flushed()
    await s.relocate()
    await s.append("z", 4, size=SIZE)
    await s.together(s.mark_flushed(), s.relocate(), s.snapshot())
    await s.relocate()


@workload(msgspec.structs.replace(PACKED, segment_max_events=3))
async def caps_and_packed_segments(s: Session) -> None:
    await s.put("z", with_class(ZSTD, cap_records=7))
    for _ in range(4):
        await s.append("z", 3, size=SIZE)
        await s.mark_flushed()
    await s.snapshot()
    await s.put("z", with_class(ZSTD, cap_records=2))
    await s.append("z", 1)
    await s.mark_flushed()
