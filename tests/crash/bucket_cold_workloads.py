"""Workloads in which segments of a cell in a bucket move there: the next process, and the next machine, read them from
the objects of a base."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from storage.bucket import IN_BUCKET
from tests.crash.segment_workloads import SEGMENTS
from tests.crash.workloads import DISK, FSYNC, with_class
from tests.support.crash_run import Workload
from tests.support.crash_session import Session

COLD = msgspec.structs.replace(SEGMENTS, cold_dir=IN_BUCKET, hot_retain_segments=0)
WORKLOADS: dict[str, Workload] = {}


def workload(body: Callable[[Session], Awaitable[None]]) -> None:
    """Register a function under its own name."""
    WORKLOADS[body.__name__] = Workload(body.__name__, body, COLD)


async def _settle(s: Session) -> None:
    await s.mark_flushed()
    await s.snapshot()
    await s.relocate()


@workload
async def moving_and_deleting(s: Session) -> None:
    for tag in ("x", "y", "x", "z"):
        await s.append("f", 2, tag=tag, config=FSYNC)
        await s.append("d", 2, tag=tag, config=DISK)
    await _settle(s)
    await s.together(s.remove("f", tag="x"), s.remove("d", tag="y"))
    await s.append("f", 4, tag="y")
    await _settle(s)
    await s.remove("f", tag="y")
    await s.mark_flushed()
    await s.snapshot()
    await s.remove("d", before_seq=6)
    await _settle(s)


@workload
async def moving_between_bases(s: Session) -> None:
    await s.append("f", 8, config=FSYNC)
    await _settle(s)
    await s.append("f", 4)
    await s.mark_flushed()
    await s.relocate()
    await s.snapshot()
    await s.relocate()
    await s.append("f", 2)


@workload
async def capped_topics_move(s: Session) -> None:
    await s.put("f", with_class(FSYNC, cap_records=9))
    for _ in range(4):
        await s.append("f", 3)
        await _settle(s)
    await s.put("f", with_class(FSYNC, cap_records=4))
    await s.append("f", 1)
    await _settle(s)


@workload
async def moved_topics_go(s: Session) -> None:
    await s.append("a", 6, config=FSYNC)
    await s.append("b", 5, config=DISK)
    await _settle(s)
    await s.drop("a")
    await s.append("a", 5, config=DISK)
    await _settle(s)
    await s.together(s.drop("b"), s.relocate(), s.mark_flushed())
    await _settle(s)


@workload
async def moving_while_much_else_goes_on(s: Session) -> None:
    for _ in range(2):
        await s.append("f", 2, tag="x", config=FSYNC)
        await s.append("f", 2, tag="y")
    await s.mark_flushed()
    await s.snapshot()
    await s.together(s.relocate(), s.append("f", 4, tag="y"), s.remove("f", tag="x"), s.mark_flushed(), s.snapshot())
    await s.append("f", 4)
    await s.together(s.mark_flushed(), s.relocate(), s.remove("f", before_seq=7))
    await _settle(s)
