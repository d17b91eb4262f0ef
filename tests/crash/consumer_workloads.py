"""The workloads of the consumer crash sweep: short, one topic each, the same in every run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from storage import Options, TopicConfig
from tests.crash.workloads import DISK, EPHEMERAL, FSYNC, MEMORY, SMALL, TINY
from tests.support.reader_run import ReaderWorkload
from tests.support.reader_session import ReaderSession

WORKLOADS: dict[str, ReaderWorkload] = {}

Body = Callable[[ReaderSession], Awaitable[None]]
BodyOfClass = Callable[[ReaderSession, TopicConfig, bool], Awaitable[None]]

SHARDED = msgspec.structs.replace(SMALL, wal_shards=2)
SEGMENTS = msgspec.structs.replace(SHARDED, segment_max_events=4, checkpoint_records=1)
TINY_SEGMENTS = msgspec.structs.replace(TINY, segment_max_events=5, checkpoint_records=1)


def workload(options: Options = SHARDED) -> Callable[[Body], Body]:
    """Register a function under its own name."""

    def enter(body: Body) -> Body:
        WORKLOADS[body.__name__] = ReaderWorkload(body.__name__, body, options)
        return body

    return enter


def of_classes(body: BodyOfClass) -> BodyOfClass:
    """Register a function once for each class and consistency."""
    for kind, config in {"fsync": FSYNC, "disk": DISK, "memory": MEMORY}.items():
        for strict in (False, True):

            async def run(s: ReaderSession, config: TopicConfig = config, strict: bool = strict) -> None:
                await body(s, config, strict)

            name = f"{body.__name__}_{kind}_{'strictly' if strict else 'at_least'}_once"
            WORKLOADS[name] = ReaderWorkload(name, run, SHARDED)
    return body


@of_classes
async def read_and_appended(s: ReaderSession, config: TopicConfig, strict: bool) -> None:
    await s.put("a", config)
    await s.append("a", 6)
    await s.consumer("a", "c", strict=strict, every=4)
    await s.read("a", "c", 3, times=2)
    await s.together(s.append("a", 3), s.read("a", "c", 2, times=3))
    await s.read("a", "c", 1, times=4)
    await s.together(s.append("a", 4), s.read("a", "c", 100), s.append("a", 2))
    await s.read("a", "c", 100, times=2)


@of_classes
async def read_by_several(s: ReaderSession, config: TopicConfig, strict: bool) -> None:
    await s.put("a", config)
    await s.consumer("a", "c", strict=strict, every=3)
    await s.consumer("a", "d", strict=not strict, every=1, start="head")
    await s.append("a", 8)
    await s.together(s.read("a", "c", 2, times=3), s.read("a", "d", 1, times=3))
    await s.pass_time(1600)
    await s.together(s.read("a", "d", 5), s.append("a", 2), s.read("a", "c", 1, times=3))


@workload()
async def committed_and_sought(s: ReaderSession) -> None:
    await s.put("a", DISK)
    await s.consumer("a", "c", every=5)
    await s.consumer("a", "s", strict=True)
    await s.append("a", 12)
    await s.peek("a", "c")
    await s.commit("a", "c", 3)
    await s.read("a", "c", 4)
    await s.commit("a", "c", 5)
    await s.read("a", "c", 2, times=2)
    await s.seek("a", "c", 2)
    await s.together(s.read("a", "s", 3), s.commit("a", "c", 2), s.read("a", "c", 3))
    await s.seek("a", "s", "head")
    await s.append("a", 2)
    await s.together(s.seek("a", "s", 7), s.seek("a", "c", "earliest"))
    await s.read("a", "s", 2)
    await s.read("a", "c", 4, times=2)
    await s.commit("a", "s", 13)


@workload()
async def made_set_and_deleted(s: ReaderSession) -> None:
    await s.put("a", FSYNC)
    await s.append("a", 5)
    await s.consumer("a", "c", every=2)
    await s.read("a", "c", 2)
    await s.consumer("a", "c", every=3)
    await s.read("a", "c", 1)
    await s.together(s.unmake("a", "c"), s.consumer("a", "d", start=2))
    await s.snapshot()
    await s.consumer("a", "c", strict=True, start="head")
    await s.append("a", 3)
    await s.together(s.read("a", "c", 2), s.read("a", "d", 2))
    await s.unmake("a", "d")
    await s.together(s.consumer("a", "e"), s.consumer("a", "f"), s.snapshot())


@workload()
async def a_topic_is_deleted(s: ReaderSession) -> None:
    await s.put("a", FSYNC)
    await s.put("b", DISK)
    for name in "ab":
        await s.append(name, 4)
        await s.consumer(name, "c", every=2)
        await s.read(name, "c", 2, times=2)
    await s.snapshot()
    await s.together(s.read("a", "c", 1), s.drop("b"))
    await s.append("a", 2)
    await s.read("a", "c", 3)
    await s.snapshot()
    await s.drop("a")


@workload(SEGMENTS)
async def snapshots_and_segments_between(s: ReaderSession) -> None:
    await s.put("a", FSYNC)
    await s.consumer("a", "c", every=3)
    await s.consumer("a", "s", strict=True)
    await s.append("a", 6)
    await s.read("a", "c", 2)
    await s.mark_flushed()
    await s.snapshot()
    await s.read("a", "s", 4)
    await s.together(s.read("a", "c", 2, times=2), s.snapshot(), s.read("a", "s", 1), s.mark_flushed())
    await s.append("a", 5)
    await s.mark_flushed()
    await s.together(s.read("a", "c", 3, times=2), s.snapshot(), s.commit("a", "s", 8))
    await s.read("a", "s", 3)


@workload(TINY_SEGMENTS)
async def trimmed_behind_readers(s: ReaderSession) -> None:
    await s.put("a", DISK)
    await s.consumer("a", "c", every=2)
    await s.consumer("a", "s", strict=True)
    for _ in range(4):
        await s.append("a", 2, size=400)
        await s.read("a", "c", 2)
        await s.read("a", "s", 1)
        await s.mark_flushed()
        await s.snapshot()
    await s.read("a", "c", 2)


@workload()
async def evicted_under_readers(s: ReaderSession) -> None:
    await s.put("a", msgspec.structs.replace(FSYNC, cap_records=4))
    await s.consumer("a", "c", every=2)
    await s.consumer("a", "s", strict=True)
    await s.append("a", 4)
    await s.read("a", "c", 1)
    await s.append("a", 3)
    await s.read("a", "c", 2, times=2)
    await s.read("a", "s", 2, times=2)
    await s.remove("a", 7)
    await s.together(s.append("a", 3), s.read("a", "s", 3), s.read("a", "c", 2))
    await s.seek("a", "c", 1)
    await s.read("a", "c", 2, times=3)


@workload(SEGMENTS)
async def clean_stops_and_other_shards(s: ReaderSession) -> None:
    await s.put("a", FSYNC)
    await s.put("b", DISK)
    for name in "ab":
        await s.append(name, 6)
        await s.consumer(name, "c", every=4)
        await s.consumer(name, "s", strict=True)
        await s.read(name, "c", 2)
        await s.read(name, "s", 3)
    await s.restart()
    await s.read("a", "c", 1)
    await s.restart(shards=3)
    await s.read("a", "c", 2, times=2)
    await s.read("b", "s", 1)
    await s.restart(shards=1)
    await s.read("b", "c", 2)
    await s.append("b", 2)


@workload()
async def classes_change(s: ReaderSession) -> None:
    await s.put("a", DISK)
    await s.append("a", 3)
    await s.consumer("a", "c", every=2)
    await s.read("a", "c", 2)
    await s.together(s.put("a", EPHEMERAL), s.consumer("a", "d"), s.read("a", "c", 1))
    await s.unmake("a", "c")
    await s.unmake("a", "d")
    await s.put("a", FSYNC)
    await s.consumer("a", "e", strict=True, start="head")
    await s.append("a", 3)
    await s.read("a", "e", 2)


@workload(TINY)
async def a_full_disk(s: ReaderSession) -> None:
    await s.put("a", FSYNC)
    await s.consumer("a", "c", every=2)
    await s.consumer("a", "s", strict=True)
    await s.append("a", 4)
    s.disk.capacity_bytes = s.disk.used_bytes + 300
    for _ in range(4):
        await s.append("a", 2, size=300)
        await s.read("a", "c", 1)
        await s.read("a", "s", 1)
    s.disk.capacity_bytes = None
    await s.pass_time(2000)
    await s.append("a", 1)
    await s.read("a", "c", 2, times=3)
    await s.read("a", "s", 5)
