"""The workloads of the crash sweep: short histories of an engine, one subject each, the same in every run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from storage import Discard, Durability, Options, TopicConfig
from tests.support.crash_run import SMALL, Workload
from tests.support.crash_session import Session

WORKLOADS: dict[str, Workload] = {}

FSYNC = TopicConfig(durability=Durability.FSYNC)
DISK = TopicConfig(durability=Durability.DISK)
MEMORY = TopicConfig(durability=Durability.MEMORY)
EPHEMERAL = TopicConfig(durability=Durability.EPHEMERAL)
TINY = msgspec.structs.replace(SMALL, wal_file_bytes=2048, wal_reserve_bytes=2048, sync_point_bytes=256)

Body = Callable[[Session], Awaitable[None]]


def workload(options: Options = SMALL) -> Callable[[Body], Body]:
    """Register a function under its own name."""

    def enter(body: Body) -> Body:
        WORKLOADS[body.__name__] = Workload(body.__name__, body, options)
        return body

    return enter


def with_class(config: TopicConfig, **changes: object) -> TopicConfig:
    return msgspec.structs.replace(config, **changes)


@workload()
async def fsync_batches(s: Session) -> None:
    await s.append("a", 2, config=FSYNC)
    await s.append("a", 5, meta=True)
    await s.together(s.append("a", 3), s.append("a"), s.append("b", 4, config=FSYNC), s.append("a", 2, tag="t"))
    await s.append("a", 2, size=700)
    await s.together(*(s.append("b") for _ in range(4)))


@workload()
async def disk_singles(s: Session) -> None:
    await s.append("d", config=DISK)
    for _ in range(3):
        await s.append("d", size=300)
    await s.pass_time(200)
    await s.together(s.append("d"), s.append("d", meta=True))
    await s.append("d")


@workload()
async def reservations_run_out(s: Session) -> None:
    await s.put("d", DISK)
    await s.append("d", 150, size=1)
    await s.together(s.append("d", 120, size=1), s.append("d", 20, size=1))
    await s.append("m", 260, size=1, config=MEMORY)
    await s.append("m")


@workload(msgspec.structs.replace(SMALL, wal_shards=2))
async def mixed_classes(s: Session) -> None:
    for name, config in (("f", FSYNC), ("d", DISK), ("m", MEMORY), ("e", EPHEMERAL)):
        await s.put(name, config)
    for size in (20, 400):
        await s.together(*(s.append(name, 2, size=size) for name in "dfmefd"))
    await s.snapshot()
    await s.together(*(s.append(name) for name in "dmfe"))
    await s.append("g", 2, config=DISK)
    await s.together(s.append("d", 2), s.append("g"), s.append("e", 3))


@workload(msgspec.structs.replace(SMALL, wal_shards=2))
async def singles_of_one_turn(s: Session) -> None:
    for name, config in (("f", FSYNC), ("d", DISK), ("c", with_class(FSYNC, cap_records=5)), ("e", EPHEMERAL)):
        if not await s.put(name, config):
            return  # if several create a topic at once, the ledger does not know which one did
    for size in (30, 900):
        await s.together(*(s.append(name, size=size, soon=True) for name in "ffdffdceccf"))
        await s.together(s.append("f", 2), s.append("f", soon=True), s.append("d", soon=True), s.append("f", soon=True))
    await s.pass_time(200)
    await s.together(s.snapshot(), *(s.append(name, size=40, soon=True) for name in "fdfdf"))
    await s.together(s.drop("d"), *(s.append("f", soon=True) for _ in range(3)))
    assert s.gathered or s.refusals


@workload(TINY)
async def singles_that_rotate(s: Session) -> None:
    reject = with_class(FSYNC, cap_records=7, discard=Discard.REJECT)
    if not (await s.put("f", FSYNC) and await s.put("r", reject)):
        return
    for number in range(4):
        await s.together(*(s.append(name, size=100 + 70 * number, soon=True) for name in "fffrrf"))
    await s.append("f", size=1500, soon=True)
    await s.together(*(s.append("f", size=600, soon=True) for _ in range(5)))
    assert s.gathered or s.refusals


@workload(TINY)
async def rotation(s: Session) -> None:
    await s.append("d", config=DISK)
    for number in range(5):
        await s.together(s.append("d", 2, size=300), s.append("f", size=200 + 150 * number, config=FSYNC))
        if number == 2:
            await s.pass_time(1200)
    await s.append("f", 3, size=1500)  # larger than a file
    await s.append("d", 2)
    await s.pass_time(200)
    await s.append("d")


@workload(msgspec.structs.replace(TINY, wal_shards=2))
async def snapshots_and_trim(s: Session) -> None:
    await s.put("f", with_class(FSYNC, cap_records=3))
    await s.put("d", with_class(DISK, cap_records=4))
    for number in range(4):
        await s.append("f", 2, size=400)
        await s.append("d", 3, size=300)
        await s.append("k", config=FSYNC) if number == 1 else None
        await s.snapshot()
    await s.together(s.append("f"), s.append("d"), s.snapshot(), s.append("n", 2, config=DISK))
    await s.append("f", 2)


@workload(msgspec.structs.replace(SMALL, wal_shards=3))
async def topics_come_and_go(s: Session) -> None:
    await s.put("a", FSYNC)
    await s.append("a", 2)
    await s.append("b", 2, config=DISK)
    await s.drop("a")
    await s.append("a", 3, config=DISK)
    await s.together(s.drop("b"), s.append("c", config=FSYNC))
    await s.snapshot()
    await s.append("b", config=FSYNC)
    await s.drop("a")
    await s.put("a", EPHEMERAL)
    await s.append("a", 2)
    await s.drop("c")


@workload()
async def classes_change(s: Session) -> None:
    await s.append("t", 3, config=EPHEMERAL)
    await s.append("t", 2, key="k")
    await s.remove("t", before_seq=2)
    await s.put("t", DISK)
    await s.append("t", 2)
    await s.put("t", FSYNC)
    await s.append("t", 2)
    await s.put("t", EPHEMERAL)
    await s.append("t", 4, tag="x")
    await s.snapshot()
    await s.append("t", tag="y")
    await s.remove("t", tag="x")
    await s.put("t", DISK)
    await s.append("t")


@workload()
async def ephemeral_capped_becomes_disk(s: Session) -> None:
    await s.put("t", with_class(EPHEMERAL, cap_records=5))
    for _ in range(4):
        await s.append("t", 3)
    await s.put("t", with_class(DISK, cap_records=5))
    await s.append("t", 2)
    await s.put("t", with_class(FSYNC, cap_records=4))
    await s.append("t")


@workload()
async def caps_evict(s: Session) -> None:
    await s.put("f", with_class(FSYNC, cap_records=4))
    await s.put("d", with_class(DISK, cap_bytes=250))
    await s.put("r", with_class(DISK, cap_records=3, discard=Discard.REJECT))
    for count in (1, 3, 2, 5, 1):
        await s.together(s.append("f", count), s.append("d", count), s.append("r", count))
    await s.snapshot()
    await s.put("f", with_class(FSYNC, cap_records=2))
    await s.append("d", 2)


@workload()
async def records_expire(s: Session) -> None:
    await s.put("f", with_class(FSYNC, ttl_ms=5000))
    await s.put("d", with_class(DISK, ttl_ms=3000))
    await s.append("f", 2)
    await s.append("d", 2)
    await s.pass_time(2000)
    await s.append("f", 2)
    await s.append("d", 3)
    await s.pass_time(2000)
    await s.snapshot()
    await s.append("d", 1)
    await s.pass_time(2500)
    await s.append("f", 1)


@workload()
async def records_are_deleted(s: Session) -> None:
    for name, config in (("f", FSYNC), ("d", DISK)):
        await s.append(name, 3, tag="red", config=config)
        await s.append(name, 2, tag="blue")
        await s.append(name, 2)
    await s.remove("f", tag="red")
    await s.together(s.remove("d", tag="blue"), s.append("d", 2, tag="blue"))
    await s.remove("f", before_seq=6)
    await s.snapshot()
    await s.append("f", 2, tag="red")
    await s.together(s.remove("d", before_seq=3), s.remove("f", before_seq=9, tag="red"))
    await s.remove("d", tag="blue")
    await s.snapshot()
    await s.append("d")
    await s.remove("d", before_seq=100)


@workload()
async def keys_are_remembered(s: Session) -> None:
    await s.append("f", 2, key="one", config=FSYNC)
    await s.append("d", 2, key="one", config=DISK)
    await s.together(s.append("f", key="two"), s.append("f", 2), s.append("d", 3, key="two"))
    await s.snapshot()
    await s.append("f", 3, key="three")
    await s.pass_time(200)
    await s.append("d", key="three")
    await s.append("f", key="four", meta=True)


@workload(TINY)
async def disk_fills_and_empties(s: Session) -> None:
    await s.append("f", 2, config=FSYNC)
    await s.append("d", 2, tag="x", size=300, config=DISK)
    s.disk.capacity_bytes = s.disk.used_bytes + 300
    for number in range(4):
        await s.together(s.append("d", size=400), s.append("f", size=300), s.append(f"new-{number}", config=FSYNC))
    await s.remove("d", tag="x")
    await s.pass_time(700)
    await s.append("f")
    s.disk.capacity_bytes = None
    await s.pass_time(700)
    await s.together(s.append("d", size=400), s.append("f", size=300))
    await s.append("f", 2)


@workload(TINY)
async def space_is_made_by_trimming(s: Session) -> None:
    await s.put("d", with_class(DISK, cap_records=30))
    s.disk.capacity_bytes = s.disk.used_bytes + 3 * TINY.wal_file_bytes
    for _ in range(12):
        await s.append("d", size=500)
    await s.remove("d", before_seq=100)
    for _ in range(3):
        await s.pass_time(1100)
    await s.append("d", 2, size=200)
    await s.append("f", config=FSYNC)


@workload(TINY)
async def groups_span_files(s: Session) -> None:
    await s.append("f", config=FSYNC)
    await s.append("d", config=DISK)
    for size in (400, 700):
        await s.together(*(s.append(name, size=size) for name in "fdfdffdd"))
        await s.pass_time(600)
    await s.together(s.append("f", 3, size=500), s.append("d", 2, size=900), s.append("f", key="k"))


@workload()
async def clean_stops(s: Session) -> None:
    await s.append("f", 2, config=FSYNC)
    await s.append("d", 2, config=DISK)
    await s.append("e", 2, config=EPHEMERAL)
    await s.close()
    await s.start()
    await s.append("d", 3)
    await s.append("f", key="k")
    await s.close()
    await s.start()
    await s.append("d")
    await s.append("e")


@workload()
async def clock_jumps(s: Session) -> None:
    await s.append("f", 2, config=FSYNC)
    s.clock.set_wall(s.clock.wall_ms() + 3_600_000)
    await s.append("f", 2)
    await s.append("d", 2, config=with_class(DISK, ttl_ms=60_000))
    s.clock.set_wall(s.clock.wall_ms() - 7_200_000)
    await s.append("f", key="k")
    await s.append("d", 2)
