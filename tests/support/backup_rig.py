"""Backups on a simulated disk: take one, restore one, and compare the result with what was there."""

from __future__ import annotations

from collections.abc import Mapping

from storage import Durability, Engine, Options
from storage.backup.restoring import Restored, restore
from storage.segments.tiering.store import ColdStore
from tests.support.crash_view import TopicView, view
from tests.support.fake_clock import FakeClock
from tests.support.sim_disk import SimDisk

BACKUPS = "/backups/all"
TARGET = "/restored/data"


def made_of(
    disk: SimDisk, clock: FakeClock, options: Options, *, number: int = 0, cold: ColdStore | None = None
) -> Restored:
    """Restore into TARGET."""
    return restore(disk, BACKUPS, TARGET, number=number, cold=cold, options=options, clock=clock)


async def opened(disk: SimDisk, clock: FakeClock, options: Options) -> Engine:
    """An engine on the restored directory."""
    engine = Engine(TARGET, options, fs=disk, clock=clock, threaded=False)
    await engine.start()
    return engine


async def restored_view(disk: SimDisk, clock: FakeClock, options: Options, *, number: int = 0) -> dict[str, TopicView]:
    """What readers find when a backup is restored and the power is cut at once: a restore is durable on return."""
    made_of(disk, clock, options, number=number)
    engine = await opened(disk.power_cut("drop"), clock, options)
    return await view(engine)


def differences(there: Mapping[str, TopicView], found: Mapping[str, TopicView]) -> list[str]:
    """What was not restored as it was. Records of ephemeral topics that were in memory are lost, and announced as
    lost."""
    problems = [f"{name} is missing" for name in there.keys() - found.keys()]
    problems += [f"{name} was not there" for name in found.keys() - there.keys()]
    for name in there.keys() & found.keys():
        problems += found[name].problems
        before, after = there[name], found[name]
        if before.state.config != after.state.config:
            problems.append(f"{name}: its config is {after.state.config}")
        if before.state.config.durability is Durability.EPHEMERAL:
            if not set(after.records) <= set(before.records):
                problems.append(f"{name}: {after.records} are not of {before.records}")
        elif before.records != after.records:
            problems.append(f"{name}: {_seqs(before)} were there, {_seqs(after)} were restored")
        elif (before.state.head_seq, before.tombstones) != (after.state.head_seq, after.tombstones):
            problems.append(f"{name}: {before.state}, {before.tombstones} became {after.state}, {after.tombstones}")
    return problems


def _seqs(topic: TopicView) -> list[int]:
    return [record.seq for record in topic.records]
