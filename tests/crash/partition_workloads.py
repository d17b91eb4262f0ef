"""Topics of several partitions: created, written to, grown, changed, deleted and created again. Registered in
`WORKLOADS`.

Partitions are in several shards, so every one of these steps can be interrupted in the middle.
"""

from __future__ import annotations

import msgspec

from tests.crash.workloads import DISK, EPHEMERAL, FSYNC, TINY, with_class, workload
from tests.support.crash_run import SMALL
from tests.support.crash_session import Session

THREE_SHARDS = msgspec.structs.replace(SMALL, wal_shards=3)


@workload(THREE_SHARDS)
async def partitions_come_and_go(s: Session) -> None:
    await s.put("t", with_class(FSYNC, partitions=3))
    await s.together(s.append("t", 2), s.append("t/1"), s.append("t/2", 3, tag="x"))
    await s.put("t", with_class(FSYNC, partitions=5))
    await s.together(*(s.append(name) for name in ("t/4", "t/3", "t/1")))
    await s.put("t", with_class(FSYNC, partitions=5, cap_records=2))
    await s.append("t/4", 3)
    await s.drop("t")
    await s.put("t", with_class(DISK, partitions=2))
    await s.together(s.append("t/1", 2), s.append("t"))


@workload(THREE_SHARDS)
async def partitions_and_snapshots(s: Session) -> None:
    await s.put("t", with_class(DISK, partitions=3))
    await s.together(s.append("t"), s.append("t/1", 2, key="k"), s.snapshot(), s.append("t/2"))
    await s.together(s.put("t", with_class(DISK, partitions=4)), s.snapshot())
    await s.append("t/3", 2)
    await s.together(s.snapshot(), s.append("t/3"), s.drop("t"))
    await s.together(s.put("t", with_class(FSYNC, partitions=2)), s.snapshot())
    await s.append("t/1", 2, key="another")
    await s.snapshot()
    await s.remove("t/1", before_seq=2)


@workload(THREE_SHARDS)
async def partitions_change_class(s: Session) -> None:
    await s.put("t", with_class(EPHEMERAL, partitions=3))
    await s.together(s.append("t", 2), s.append("t/1", 3), s.append("t/2"))
    await s.put("t", with_class(DISK, partitions=3))
    await s.together(s.append("t/1"), s.append("t/2", 2))
    await s.put("t", with_class(FSYNC, partitions=4))
    await s.together(s.append("t/1", 2), s.append("t/3"))
    await s.put("t", with_class(EPHEMERAL, partitions=4))
    await s.append("t/2", 2)
    await s.close()
    await s.start()
    await s.append("t/3", 2)


@workload(msgspec.structs.replace(TINY, wal_shards=2))
async def partitions_on_a_full_disk(s: Session) -> None:
    await s.put("t", with_class(FSYNC, partitions=2))
    await s.append("t/1", 2)
    s.disk.capacity_bytes = s.disk.used_bytes + 300
    for partitions in (3, 4, 5):
        await s.append("t/1", size=400)
        await s.put("t", with_class(FSYNC, partitions=partitions))
    await s.put("u", with_class(DISK, partitions=3))
    await s.drop("t")
    s.disk.capacity_bytes = None
    await s.pass_time(700)
    await s.put("t", with_class(FSYNC, partitions=3))
    await s.append("t/2", 2)
    await s.put("u", with_class(DISK, partitions=2))


@workload(msgspec.structs.replace(SMALL, wal_shards=2))
async def partitions_in_segments(s: Session) -> None:
    await s.put("t", with_class(DISK, partitions=3))
    await s.together(s.append("t", 3), s.append("t/1", 4), s.append("t/2", 2))
    await s.mark_flushed()
    await s.append("t/1", 2)
    await s.snapshot()
    await s.drop("t")
    await s.mark_flushed()
    await s.put("t", with_class(FSYNC, partitions=2))
    await s.append("t/1", 2)
