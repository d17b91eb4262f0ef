"""Workloads in which segments move to a cold tier, a directory on the same disk. So every call to it is swept too."""

from __future__ import annotations

import msgspec

from tests.crash.cold_view import MOUNT
from tests.crash.segment_workloads import SEGMENTS, SHARDED
from tests.crash.workloads import DISK, FSYNC, with_class, workload
from tests.support.crash_session import Session

COLD = msgspec.structs.replace(SEGMENTS, cold_dir=MOUNT, hot_retain_segments=1)
COLD_SHARDED = msgspec.structs.replace(SHARDED, cold_dir=MOUNT, hot_retain_segments=0)


async def _settle(s: Session) -> None:
    await s.mark_flushed()
    await s.relocate()


@workload(COLD)
async def moving_to_the_cold_tier(s: Session) -> None:
    await s.append("f", 4, config=FSYNC)
    await s.append("f", 4, tag="t")
    await _settle(s)
    await s.append("f", 4)
    await _settle(s)
    await s.snapshot()
    await s.append("f", 4)
    await _settle(s)
    await s.snapshot()


@workload(COLD_SHARDED)
async def deleting_in_the_cold_tier(s: Session) -> None:
    for tag in ("x", "y", "x", "z"):
        await s.append("f", 2, tag=tag, config=FSYNC)
        await s.append("d", 2, tag=tag, config=DISK)
    await _settle(s)
    await s.together(s.remove("f", tag="x"), s.remove("d", tag="y"))
    await _settle(s)
    await s.snapshot()
    await s.remove("f", tag="y")
    await _settle(s)
    await s.snapshot()


@workload(COLD_SHARDED)
async def cold_segments_dropped(s: Session) -> None:
    for tag in ("x", "x", "y", "x"):
        await s.append("f", 2, tag=tag, config=FSYNC)
    await _settle(s)
    await s.remove("f", before_seq=6)
    await _settle(s)
    await s.snapshot()
    await s.snapshot()
    await s.remove("f", tag="x")
    await _settle(s)
    await s.append("f", 2)


@workload(COLD)
async def caps_and_the_cold_tier(s: Session) -> None:
    await s.put("f", with_class(FSYNC, cap_records=9))
    for _ in range(7):
        await s.append("f", 2)
        await _settle(s)
    await s.snapshot()
    await s.put("f", with_class(FSYNC, cap_records=4))
    await s.append("f", 1)
    await _settle(s)


@workload(COLD_SHARDED)
async def cold_topics_go(s: Session) -> None:
    await s.append("a", 6, config=FSYNC)
    await s.append("b", 5, config=DISK)
    await _settle(s)
    await s.drop("a")
    await s.append("a", 5, config=DISK)
    await _settle(s)
    await s.snapshot()
    await s.together(s.drop("b"), s.relocate(), s.mark_flushed())
    await s.snapshot()
    await _settle(s)


@workload(COLD)
async def moving_while_much_else_goes_on(s: Session) -> None:
    for _ in range(3):
        await s.append("f", 2, tag="x", config=FSYNC)
        await s.append("f", 2, tag="y")
    await s.mark_flushed()
    await s.together(s.relocate(), s.append("f", 4, tag="y"), s.remove("f", tag="x"), s.mark_flushed(), s.snapshot())
    await s.append("f", 4)
    await s.together(s.mark_flushed(), s.relocate(), s.remove("f", before_seq=7))
    await _settle(s)
