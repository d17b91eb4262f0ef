"""A start is killed at every call to the disk, and another start follows: no false loss is announced.

The process before was killed as well, so the page cache has everything that it wrote. Only a torn end of its log
announces a loss, whatever happened to the starts in between. Bytes written by a killed start, torn or not, are no
evidence of a loss.
"""

from __future__ import annotations

import os
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec
import pytest

from storage import CompressionType, Durability, NewRecord, Options, TopicConfig, TopicType
from storage.records.values import LossCause
from storage.state.routers.router import Definition, Start
from tests.conftest import is_soak
from tests.support.crash_run import SMALL, run, until_crash
from tests.support.crash_session import Session
from tests.support.crash_view import TopicView, view
from tests.support.sim_disk import SimDisk, When

DISK = TopicConfig(durability=Durability.DISK)
FSYNC = TopicConfig(durability=Durability.FSYNC)
QUEUE = TopicConfig(type=TopicType.QUEUE, durability=Durability.DISK)
SHARDED = msgspec.structs.replace(SMALL, wal_shards=3)
PACKED = msgspec.structs.replace(SMALL, segment_max_events=4, checkpoint_records=1, segment_pack_bytes=1)
#: Seqs are reserved in steps of this number, so an announced loss ends there.
RESERVED = 256
#: The calls of a start at which it is killed. The soak tier visits every call.
SAMPLE = 12


@dataclass(frozen=True, slots=True)
class Scene:
    """The work of the killed process. `torn`: the topic whose last write was cut short by the kill."""

    body: Callable[[Session], Awaitable[None]]
    options: Options = SMALL
    after: Options = SMALL
    torn: str = ""


async def written(s: Session) -> None:
    await s.append("t", 3, config=DISK)


async def written_in_shards(s: Session) -> None:
    for number in range(6):
        await s.append(f"t{number}", 3, config=DISK)


async def forwarded(s: Session) -> None:
    await s.append("t", 3, config=DISK)
    await s.put("d", FSYNC)
    await s.engine.routers.put("r", Definition(source="t", dest="d", start=Start.EARLIEST))
    await s.pass_time(1000)
    await s.append("t", 2)
    await s.pass_time(1000)


async def claimed_before_a_clean_stop(s: Session) -> None:
    """The next start writes a frame which says that the leases end with its process."""
    await s.append("q", 3, config=QUEUE)
    await s.engine.queues.claim("q", "worker")
    await s.close()


async def packed(s: Session) -> None:
    """Killed when the log names a packed segment, and the files that it was made of are still there."""
    await s.append("z", 9, size=300, config=msgspec.structs.replace(DISK, compression_type=CompressionType.GZIP))
    s.disk.crash_on("unlink", "*.data", when=When.BEFORE)
    await s.mark_flushed()


async def torn(s: Session) -> None:
    await s.append("t", 3, config=DISK)
    s.disk.crash_on("pwritev", "*.log", when=When.HALF)
    await s.append("t", 3)


async def torn_in_one_shard(s: Session) -> None:
    await written_in_shards(s)
    s.disk.crash_on("pwritev", "*.log", when=When.HALF)
    await s.append("t1", 3)


SCENES = {
    "written": Scene(written),
    "written in shards": Scene(written_in_shards, SHARDED, SHARDED),
    "forwarded": Scene(forwarded, SHARDED, SHARDED),
    "claimed": Scene(claimed_before_a_clean_stop),
    "to other shards": Scene(written_in_shards, SHARDED, msgspec.structs.replace(SMALL, wal_shards=2)),
    "packed": Scene(packed, PACKED, PACKED),
    "packed, to other shards": Scene(packed, PACKED, msgspec.structs.replace(PACKED, wal_shards=2)),
    "torn": Scene(torn, torn="t"),
    "torn in one shard": Scene(torn_in_one_shard, SHARDED, SHARDED, torn="t1"),
    "torn, to other shards": Scene(torn_in_one_shard, SHARDED, msgspec.structs.replace(SMALL, wal_shards=2), torn="t1"),
}


def left_by(scene: Scene) -> Session:
    """The killed process."""

    async def live() -> Session:
        session = Session(SimDisk(), scene.options)
        await session.start()
        await until_crash(session.disk, scene.body(session))
        return session

    return run(live())


def started(scene: Scene, before: Session, disk: SimDisk) -> tuple[dict[str, TopicView], dict[str, int], set[str]]:
    """The result of a start on this disk: all topics, and the next seq of each topic that shares a shard with the torn
    one.
    """

    async def go() -> tuple[dict[str, TopicView], dict[str, int], set[str]]:
        session = Session(disk, scene.after, clock=before.clock)
        await session.start()
        catalog = session.engine.catalog
        found = await view(session.engine)
        beside = {name for name in found if scene.torn and _shard(before, name) == _shard(before, scene.torn)}
        assert catalog.topics.keys() == found.keys()
        following = {
            name: (await session.engine.append(name, [NewRecord(data=msgspec.Raw(b"1"))])).first_seq for name in found
        }
        return found, following, beside

    return run(go())


def _shard(session: Session, name: str) -> int:
    return session.engine.catalog.topics[name].log.shard


def interrupted(scene: Scene, before: Session, disk: SimDisk, index: int, when: When) -> SimDisk:
    """The disk after a start is killed at that call; a start that ends before that call is not killed."""
    disk.crash_at(index, when)

    async def go() -> None:
        session = Session(disk, scene.after, clock=before.clock)
        await until_crash(disk, session.start())

    run(go())
    return disk.process_kill()


def calls_of_a_start(scene: Scene, before: Session) -> list[int]:
    async def go() -> list[int]:
        disk = before.disk.process_kill()
        await Session(disk, scene.after, clock=before.clock).start()
        return [*disk.crash_points(), len(disk.calls) - 1]

    return run(go())


def problems(scene: Scene, before: Session, disk: SimDisk) -> list[str]:
    found, following, beside = started(scene, before, disk)
    told: list[str] = []
    for name, seen in found.items():
        head = before.ledger.live(name)
        causes = {each.reason for each in seen.tombstones}
        if name in beside:
            if following[name] != RESERVED + 1:
                told.append(f"{name}: seq {following[name]} is given out, though it may have been given out before")
        elif causes:
            told.append(f"{name}: {causes} announced, and nothing was lost")
        elif following[name] != len(seen.records) + 1:
            told.append(f"{name}: goes on at {following[name]}, and has {len(seen.records)} records ({head})")
        told += [f"{name}: {each}" for each in seen.problems]
    return told


@pytest.mark.parametrize("name", SCENES)
def test_a_killed_start_announces_no_false_loss(name: str) -> None:
    scene = SCENES[name]
    before = left_by(scene)
    assert problems(scene, before, before.disk.process_kill()) == [], "already without an interruption"
    rng = random.Random(random.getrandbits(32))
    calls = calls_of_a_start(scene, before)
    for index in calls if is_soak(os.environ) else sorted(rng.sample(calls, min(SAMPLE, len(calls)))):
        for when in When:
            disk = interrupted(scene, before, before.disk.process_kill(), index, when)
            assert problems(scene, before, disk.process_kill()) == [], f"killed {when} call {index}"
            again = rng.randrange(2 * index + 8), rng.choice(list(When))
            disk = interrupted(scene, before, disk.process_kill(), *again)
            assert problems(scene, before, disk) == [], f"killed {when} call {index}, then at {again}"


def test_a_loss_is_announced_where_the_page_cache_is_gone() -> None:
    """The counterpart: after a power cut the same directory announces a loss."""
    scene = SCENES["written"]
    before = left_by(scene)
    disk = interrupted(scene, before, before.disk.process_kill(), 12, When.AFTER)
    found, following, _ = started(scene, before, disk.power_cut("keep"))
    assert following["t"] == RESERVED + 1
    assert [each.reason for each in found["t"].tombstones] == [LossCause.CRASH]
