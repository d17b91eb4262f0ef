"""On a full disk the reserve took the number of the file prepared in advance. Closing then deleted that file, which was
the reserve."""

from __future__ import annotations

import asyncio
import errno

from storage import Durability, TopicConfig
from storage.errors import StorageFull
from tests.unit.storage.machine import Machine, outcome, record, records, seqs


async def test_frames_in_the_reserve_survive_a_clean_stop() -> None:
    async with Machine() as machine:
        engine = await machine.start()
        await engine.append("t", records(5), config=TopicConfig(durability=Durability.FSYNC))
        machine.disk.fail("allocate", errno=errno.ENOSPC, sticky=True)
        machine.disk.fail("pwritev", "*/wal-*.log", errno=errno.ENOSPC)
        refused, deleted = await asyncio.gather(
            outcome(engine.append("t", [record()])), engine.delete_records("t", before_seq=4)
        )
        assert isinstance(refused, StorageFull)
        assert deleted.deleted == 3

        machine.disk.clear_faults()
        engine = await machine.restart()
        assert await seqs(engine, "t") == [4, 5]
        await engine.append("t", [record()])
        assert await seqs(engine, "t") == [4, 5, 6]
