"""A shard stopped just after a snapshot had noted its position. The snapshot then saved old sections with the new
position.

Frames acked in between were before the position from which the next start replays, and in no section.
"""

from __future__ import annotations

from collections.abc import Callable

from storage import Durability, TopicConfig
from tests.support.crash_check import End
from tests.support.crash_run import SMALL, Cut, succeed
from tests.support.crash_session import Session
from tests.support.fake_clock import FakeClock
from tests.support.sim_disk import Loss, SimDisk


class TrappedClock(FakeClock):
    """Does something when the time is read next."""

    trap: Callable[[], object] | None = None

    def wall_ns(self) -> int:
        trap, self.trap = self.trap, None
        if trap is not None:
            trap()
        return super().wall_ns()


async def test_acked_writes_survive_a_shard_failure_during_a_snapshot() -> None:
    clock = TrappedClock()
    session = Session(SimDisk(), SMALL, clock=clock)
    await session.start()
    await session.append("d", config=TopicConfig(durability=Durability.DISK))
    await session.remove("d", before_seq=2)
    await session.snapshot()
    await session.put("made", TopicConfig(durability=Durability.FSYNC))
    await session.append("d")
    await session.remove("d", before_seq=3)
    session.disk.fail("datasync")
    clock.trap = session.engine.shards[0].log.sync
    await session.snapshot()
    assert len(session.engine.failed_shards) == 1
    await succeed(session, Cut(End.POWER, Loss.DROP), orderly=False)
