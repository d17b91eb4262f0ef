"""A topic was created again because its first creation had failed with its shard. When it was deleted, the first one
came back.

Of two live logs with one name the higher id wins. Each recovery left the other one out, but never deleted it.
"""

from __future__ import annotations

import msgspec
import pytest

from storage import Durability, TopicConfig
from storage.state.catalog import shard_of
from tests.support.crash_check import End
from tests.support.crash_run import SMALL, Cut, succeed
from tests.support.crash_session import Session
from tests.support.sim_disk import Loss, SimDisk

FSYNC = TopicConfig(durability=Durability.FSYNC)
OPTIONS = msgspec.structs.replace(SMALL, wal_shards=2)


@pytest.mark.parametrize("shard", [0, 1])
@pytest.mark.parametrize("cut", [Cut(End.KILL), Cut(End.POWER, Loss.DROP)], ids=["kill", "power"])
async def test_a_topic_superseded_by_a_later_topic_of_the_same_name_stays_deleted(shard: int, cut: Cut) -> None:
    first = Session(SimDisk(), OPTIONS)
    await first.start()
    ids = 0
    while ids == 0 or shard_of(ids, 2) != shard or shard_of(ids + 1, 2) != shard:
        ids += 1  # the last of these keeps the log of that shard; the next one must fail in it
        await first.append(f"kept-{ids}", config=FSYNC)
    first.disk.fail("datasync")
    await first.append("t", 2, config=FSYNC)
    assert [index for index, _ in first.engine.failed_shards] == [shard]
    await first.append("t", 3, config=FSYNC)
    second = await succeed(first, Cut(End.KILL), orderly=False)
    assert second.engine.state("t").count == 3
    await second.drop("t")
    await second.snapshot()
    await second.snapshot()
    await succeed(second, cut)
