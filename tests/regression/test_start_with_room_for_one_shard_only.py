"""A new directory on a disk with room for only the first shard's file could not be opened a second time."""

from __future__ import annotations

import msgspec

from storage import Durability, TopicConfig
from storage.state.catalog import shard_of
from tests.support.crash_run import SMALL
from tests.support.crash_session import Session
from tests.support.sim_disk import SimDisk

OPTIONS = msgspec.structs.replace(SMALL, wal_shards=2)


async def test_records_of_the_only_shard_with_room_survive_a_restart() -> None:
    disk = SimDisk(capacity_bytes=OPTIONS.wal_file_bytes + OPTIONS.wal_reserve_bytes + 1000)
    first = Session(disk, OPTIONS)
    await first.start()
    assert [shard.log.full for shard in first.engine.shards] == [False, True]
    taken = 0
    for number in range(4):
        answer = await first.append(f"t{number}", config=TopicConfig(durability=Durability.FSYNC))
        taken += answer is not None
        assert (answer is not None) == (shard_of(number + 1, 2) == 0)
    assert taken
    second = Session(disk.process_kill(), OPTIONS)
    await second.start()
    assert sum(state.count for state in second.engine.topics()) == taken
