"""Workloads in which records move from the log to segments. Registered in the same table as the others."""

from __future__ import annotations

import msgspec

from tests.crash.workloads import DISK, FSYNC, MEMORY, SMALL, TINY, with_class, workload
from tests.support.crash_session import Session

SEGMENTS = msgspec.structs.replace(SMALL, segment_max_events=4, checkpoint_records=1)
SEGMENTS_TINY = msgspec.structs.replace(TINY, segment_max_events=5, checkpoint_records=1)
SHARDED = msgspec.structs.replace(SEGMENTS, wal_shards=2)


@workload(SEGMENTS)
async def absorbing_and_sealing(s: Session) -> None:
    await s.append("f", 3, config=FSYNC)
    await s.mark_flushed()
    await s.append("f", 2, meta=True)
    await s.append("d", 3, config=DISK)
    await s.mark_flushed()
    await s.append("f", 4, tag="t")
    await s.snapshot()
    await s.mark_flushed()
    await s.append("f", 1)


@workload(SEGMENTS_TINY)
async def trimming_behind_marks(s: Session) -> None:
    for number in range(4):
        await s.append("f", 3, size=400, config=FSYNC)
        await s.append("d", 1, size=300, config=DISK)
        await s.mark_flushed()
        if number:
            await s.snapshot()
    await s.append("f", 2)


@workload(SHARDED)
async def deleting_in_segments(s: Session) -> None:
    for tag in ("x", "y", "x", "z"):
        await s.append("f", 2, tag=tag, config=FSYNC)
        await s.append("d", 2, tag=tag, config=DISK)
    await s.mark_flushed()
    await s.append("f", 2, tag="x")
    await s.together(s.remove("f", tag="x"), s.remove("d", tag="y"))
    await s.mark_flushed()
    await s.snapshot()
    await s.remove("d", before_seq=3)
    await s.remove("f", before_seq=6, tag="y")
    await s.mark_flushed()
    await s.append("f", 1)


@workload(SEGMENTS)
async def segments_rewritten_and_dropped(s: Session) -> None:
    for tag in ("x", "x", "y", "x"):
        await s.append("f", 3, tag=tag, config=FSYNC)
    await s.mark_flushed()
    await s.remove("f", tag="x")
    await s.mark_flushed()
    await s.snapshot()
    await s.remove("f", before_seq=6)
    await s.mark_flushed()
    await s.append("f", 2)
    await s.snapshot()


@workload(SEGMENTS)
async def caps_and_segments(s: Session) -> None:
    await s.put("f", with_class(FSYNC, cap_records=6))
    for _ in range(4):
        await s.append("f", 3)
        await s.mark_flushed()
    await s.snapshot()
    await s.put("f", with_class(FSYNC, cap_records=2))
    await s.append("f", 1)
    await s.mark_flushed()


@workload(SHARDED)
async def topics_with_segments_go(s: Session) -> None:
    await s.append("a", 5, config=FSYNC)
    await s.append("b", 5, config=DISK)
    await s.mark_flushed()
    await s.drop("a")
    await s.append("a", 2, config=DISK)
    await s.mark_flushed()
    await s.snapshot()
    await s.drop("b")
    await s.mark_flushed()


@workload(SEGMENTS)
async def reserved_seqs_and_segments(s: Session) -> None:
    await s.append("d", 3, config=DISK)
    await s.append("m", 3, config=MEMORY)
    await s.mark_flushed()
    await s.pass_time(200)
    await s.append("d", 2)
    await s.together(s.append("m", 2), s.mark_flushed(), s.append("d"), s.snapshot())
    await s.append("m")


@workload(SEGMENTS)
async def several_segments_in_one_round(s: Session) -> None:
    await s.append("f", 2, config=FSYNC)
    await s.mark_flushed()
    await s.append("f", 9, tag="x")
    await s.append("f", 4, tag="y")
    await s.together(s.mark_flushed(), s.remove("f", tag="y"))
    await s.append("f", 10)
    await s.remove("f", before_seq=8)
    await s.together(s.mark_flushed(), s.append("f", 3), s.snapshot())
    await s.mark_flushed()
    await s.append("f", 1)
