"""The workloads of the router crash sweep: short, one topic each, the same in every run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from storage import Discard, Options, TopicConfig
from storage.state.routers.router import Start
from tests.crash.workloads import DISK, EPHEMERAL, FSYNC, MEMORY, SMALL, TINY
from tests.support.route_run import RouteWorkload
from tests.support.route_session import RouteSession

WORKLOADS: dict[str, RouteWorkload] = {}

Body = Callable[[RouteSession], Awaitable[None]]
BodyOfClasses = Callable[[RouteSession, TopicConfig, TopicConfig], Awaitable[None]]

SHARDED = msgspec.structs.replace(SMALL, wal_shards=3)
SEGMENTS = msgspec.structs.replace(SHARDED, segment_max_events=4, checkpoint_records=1)
TINY_SEGMENTS = msgspec.structs.replace(TINY, segment_max_events=5, checkpoint_records=1)


def workload(options: Options = SHARDED) -> Callable[[Body], Body]:
    """Register a function under its own name."""

    def enter(body: Body) -> Body:
        WORKLOADS[body.__name__] = RouteWorkload(body.__name__, body, options)
        return body

    return enter


def of_classes(body: BodyOfClasses) -> BodyOfClasses:
    """Register a function once for each pair of classes that source and destination may have."""
    classes = {"fsync": FSYNC, "disk": DISK, "memory": MEMORY, "ephemeral": EPHEMERAL}
    for source, own in classes.items():
        for dest, other in classes.items():

            async def run(s: RouteSession, own: TopicConfig = own, other: TopicConfig = other) -> None:
                await body(s, own, other)

            name = f"{body.__name__}_{source}_to_{dest}"
            WORKLOADS[name] = RouteWorkload(name, run, SHARDED)
    return body


@of_classes
async def forwarded(s: RouteSession, source: TopicConfig, dest: TopicConfig) -> None:
    await s.put("a", source)
    await s.put("b", dest)
    await s.route("r", "a", "b")
    await s.append("a", 3)
    await s.together(s.append("a", 2), s.append("b", 2))
    await s.settle(20)
    await s.append("a", 2, tag="x")
    await s.pass_time(200)
    await s.together(s.append("b"), s.append("a", 4), s.append("b"))


@workload()
async def chains_and_fan_in(s: RouteSession) -> None:
    for name in "abcd":
        await s.put(name, FSYNC if name in "ad" else DISK)
    await s.route("ab", "a", "b")
    await s.route("bc", "b", "c")
    await s.route("dc", "d", "c")
    await s.together(s.append("a", 2), s.append("d", 2), s.append("c"))
    await s.settle(30)
    await s.together(s.append("b"), s.append("a", 3), s.append("d"))
    await s.snapshot()
    await s.together(s.append("a"), s.append("d"), s.append("c"))
    await s.settle()


@workload(SEGMENTS)
async def snapshots_and_segments_between(s: RouteSession) -> None:
    await s.put("a", FSYNC)
    await s.put("b", FSYNC)
    await s.append("a", 3)
    await s.route("r", "a", "b")
    await s.append("a", 5)
    await s.mark_flushed()
    await s.snapshot()
    await s.together(s.append("a", 3), s.snapshot(), s.mark_flushed())
    await s.append("b", 2)
    await s.mark_flushed()
    await s.snapshot()
    await s.append("a", 2)


@workload(TINY_SEGMENTS)
async def trimmed_behind_routers(s: RouteSession) -> None:
    await s.put("a", FSYNC)
    await s.put("b", DISK)
    await s.route("r", "a", "b")
    for _ in range(4):
        await s.append("a", 2, size=400)
        await s.settle(40)
        await s.mark_flushed()
        await s.snapshot()
    await s.append("a")


@workload()
async def filtered(s: RouteSession) -> None:
    await s.put("a", FSYNC)
    await s.put("b", FSYNC)
    await s.route("r", "a", "b", filter=["tag", "Eq", "x"])
    for tag in ("y", "x", "y", None, "x", "y"):
        await s.append("a", 2, tag=tag)
    await s.pass_time(2100)
    await s.append("a", 3, tag="y")
    await s.snapshot()
    await s.pass_time(2100)
    await s.append("a", 1, tag="x")


@workload()
async def made_and_deleted(s: RouteSession) -> None:
    await s.put("a", FSYNC)
    await s.append("a", 2)
    await s.route("r", "a", "b")
    await s.append("a", 2)
    await s.route("r2", "c", "a")
    await s.append("c", 2)
    await s.unroute("r")
    await s.append("a", 2)
    await s.route("r3", "a", "d")
    await s.snapshot()
    await s.unroute("r2")
    await s.append("c")


@workload()
async def defined_anew(s: RouteSession) -> None:
    await s.put("a", FSYNC)
    await s.put("b", DISK)
    await s.route("r", "a", "b")
    await s.append("a", 2)
    await s.route("r", "a", "b", preserve_tag=False)
    await s.together(s.append("a", 2, tag="t"), s.route("r", "a", "b", preserve_node=False))
    await s.snapshot()
    await s.route("r", "a", "b")
    await s.append("a")


@workload()
async def source_is_deleted(s: RouteSession) -> None:
    await s.put("a", FSYNC)
    await s.put("b", FSYNC)
    await s.route("r", "a", "b")
    await s.route("r2", "b", "c")
    await s.append("a", 3)
    await s.snapshot()
    await s.together(s.append("a", 2), s.drop("a"))
    await s.append("b", 2)
    await s.snapshot()
    await s.append("b")


@workload()
async def dest_is_deleted(s: RouteSession) -> None:
    await s.put("a", FSYNC)
    await s.put("b", FSYNC)
    await s.route("r", "a", "b")
    await s.route("r2", "a", "c")
    await s.append("a", 3)
    await s.snapshot()
    await s.together(s.append("a", 2), s.drop("b"))
    await s.append("a", 2)


@workload()
async def a_rejecting_dest(s: RouteSession) -> None:
    await s.put("a", FSYNC)
    await s.put("b", msgspec.structs.replace(FSYNC, discard=Discard.REJECT, cap_records=3))
    await s.route("r", "a", "b")
    await s.append("a", 5)
    await s.settle()
    await s.snapshot()
    await s.append("a", 2)
    await s.pass_time(1500)
    await s.put("b", FSYNC)
    await s.pass_time(1500)
    await s.append("a")


@workload()
async def what_can_never_be_held(s: RouteSession) -> None:
    await s.put("a", FSYNC)
    await s.put("b", msgspec.structs.replace(DISK, cap_bytes=300))
    await s.route("r", "a", "b")
    await s.append("a", 2)
    await s.append("a", 1, size=500)
    await s.append("a", 2)
    await s.settle()
    await s.append("b", 2)
    await s.append("a", 1, size=500)


@workload()
async def a_trimmed_source(s: RouteSession) -> None:
    await s.put("a", msgspec.structs.replace(FSYNC, cap_records=3))
    await s.put("b", msgspec.structs.replace(FSYNC, discard=Discard.REJECT, cap_records=2))
    await s.route("r", "a", "b")
    for _ in range(4):
        await s.append("a", 2)
        await s.settle()
    await s.put("b", FSYNC)
    await s.pass_time(1500)
    await s.append("a", 2)


@workload()
async def deleted_at_the_source(s: RouteSession) -> None:
    await s.put("a", FSYNC)
    await s.put("b", FSYNC)
    await s.append("a", 2, tag="gone")
    await s.append("a", 2)
    await s.remove("a", "gone")
    await s.route("r", "a", "b", start=Start.EARLIEST)
    await s.together(s.append("a", 2, tag="off"), s.append("a", 1))
    await s.remove("a", "off")


@workload()
async def classes_change(s: RouteSession) -> None:
    await s.put("a", FSYNC)
    await s.put("b", EPHEMERAL)
    await s.route("r", "a", "b")
    await s.append("a", 2)
    await s.settle()
    await s.together(s.append("a", 2), s.put("b", FSYNC))
    await s.append("a", 2)
    await s.settle()
    await s.put("b", DISK)
    await s.append("a", 1)


@workload()
async def clean_stops(s: RouteSession) -> None:
    await s.put("a", FSYNC)
    await s.put("b", DISK)
    await s.route("r", "a", "b")
    await s.route("r2", "b", "c", filter=["tag", "Eq", "x"])
    await s.append("a", 3)
    await s.close()
    await s.start()
    await s.append("a", 2, tag="x")
    await s.close()
    await s.start()
    await s.append("a", 1)


@workload(TINY)
async def a_full_disk(s: RouteSession) -> None:
    await s.put("a", FSYNC)
    await s.put("b", FSYNC)
    await s.route("r", "a", "b")
    await s.append("a", 2)
    s.disk.capacity_bytes = s.disk.used_bytes + 300
    for _ in range(4):
        await s.append("a", 2, size=300)
        await s.settle(30)
    s.disk.capacity_bytes = None
    await s.pass_time(2000)
    await s.append("a", 1)
    await s.pass_time(2000)
