"""Workloads in which segments go because consumers have passed them. Registered in the same table as the others."""

from __future__ import annotations

from storage import Retention
from tests.crash.cold_workloads import COLD
from tests.crash.segment_workloads import SEGMENTS, SEGMENTS_TINY, SHARDED
from tests.crash.workloads import DISK, FSYNC, with_class, workload
from tests.support.crash_session import Session

CONSUMED = with_class(FSYNC, retention=Retention.CONSUMED)
CONSUMED_DISK = with_class(DISK, retention=Retention.CONSUMED)


@workload(SEGMENTS)
async def consumed_by_one(s: Session) -> None:
    await s.put("f", CONSUMED)
    await s.consume("f", "c")
    await s.append("f", 4)
    await s.append("f", 4)
    await s.take("f", "c", 5)
    await s.mark_flushed()
    await s.snapshot()
    await s.take("f", "c", 5)
    await s.commit("f", "c", 8)
    await s.mark_flushed()
    await s.append("f", 3)
    await s.take("f", "c")


@workload(SEGMENTS)
async def consumed_but_not_yet_for_good(s: Session) -> None:
    await s.put("d", CONSUMED_DISK)
    await s.consume("d", "c")
    await s.consume("d", "lazy", persist_every=1000)
    await s.append("d", 4)
    await s.append("d", 4)
    await s.take("d", "lazy", 9)
    await s.commit("d", "c", 8)
    await s.mark_flushed()
    await s.append("d", 2)
    await s.pass_time(1200)
    await s.mark_flushed()
    await s.snapshot()


@workload(SHARDED)
async def consumed_at_two_speeds(s: Session) -> None:
    for name, config in (("f", CONSUMED), ("d", CONSUMED_DISK)):
        await s.put(name, config)
        await s.consume(name, "slow")
        await s.consume(name, "strict", strictly=True)
    for _ in range(3):
        await s.together(s.append("f", 4), s.append("d", 4))
    await s.mark_flushed()
    await s.together(s.take("f", "strict", 9), s.take("d", "strict", 9), s.take("d", "slow", 2))
    await s.commit("f", "slow", 5)
    await s.pass_time(1200)
    await s.together(s.mark_flushed(), s.take("d", "slow", 4), s.append("d", 2))
    await s.commit("d", "slow", 9)
    await s.mark_flushed()
    await s.leave("f", "slow")
    await s.mark_flushed()
    await s.snapshot()


@workload(SEGMENTS_TINY)
async def consumed_and_trimmed(s: Session) -> None:
    await s.put("d", CONSUMED_DISK)
    await s.consume("d", "c", persist_every=1)
    for number in range(4):
        await s.append("d", 3, size=300)
        await s.take("d", "c", 3)
        await s.mark_flushed()
        if number:
            await s.snapshot()
    await s.append("d", 2)


@workload(SEGMENTS)
async def consumed_off_and_on(s: Session) -> None:
    await s.append("f", 6, config=FSYNC)
    await s.consume("f", "c")
    await s.commit("f", "c", 4)
    await s.mark_flushed()
    await s.together(s.put("f", CONSUMED), s.append("f", 4), s.commit("f", "c", 6))
    await s.mark_flushed()
    await s.put("f", FSYNC)
    await s.commit("f", "c", 10)
    await s.mark_flushed()
    await s.append("f", 2)
    await s.put("f", CONSUMED)
    await s.mark_flushed()


@workload(SEGMENTS)
async def consumed_and_bounded(s: Session) -> None:
    await s.put("f", with_class(CONSUMED, consumed_max_bytes=420))
    await s.consume("f", "c")
    for _ in range(3):
        await s.append("f", 4)
        await s.mark_flushed()
    await s.take("f", "c", 4)
    await s.append("f", 3, size=100)
    await s.commit("f", "c", 15)
    await s.append("f", 2, size=150)
    await s.mark_flushed()
    await s.put("f", with_class(CONSUMED, consumed_max_bytes=100))


@workload(SEGMENTS)
async def consumers_come_and_go(s: Session) -> None:
    await s.put("f", CONSUMED)
    await s.append("f", 5)
    await s.consume("f", "a")
    await s.commit("f", "a", 5)
    await s.mark_flushed()
    await s.together(s.leave("f", "a"), s.append("f", 4))
    await s.mark_flushed()
    await s.together(s.consume("f", "b"), s.mark_flushed())
    await s.take("f", "b", 9)
    await s.seek("f", "b", 2)
    await s.mark_flushed()
    await s.commit("f", "b", 9)
    await s.close()
    await s.start()
    await s.mark_flushed()
    await s.append("f", 2)


@workload(SEGMENTS)
async def consumed_topics_go(s: Session) -> None:
    for _ in range(2):
        await s.put("f", CONSUMED)
        await s.consume("f", "c")
        await s.append("f", 5)
        await s.mark_flushed()
        await s.together(s.commit("f", "c", 5), s.drop("f"))
    await s.mark_flushed()


@workload(COLD)
async def consumed_in_the_cold_tier(s: Session) -> None:
    await s.put("f", CONSUMED)
    await s.consume("f", "c")
    for _ in range(3):
        await s.append("f", 4)
        await s.mark_flushed()
    await s.relocate()
    await s.commit("f", "c", 5)
    await s.mark_flushed()
    await s.relocate()
    await s.snapshot()
    await s.commit("f", "c", 12)
    await s.together(s.relocate(), s.mark_flushed())
    await s.relocate()
