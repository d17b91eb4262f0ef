"""Directories whose log is to be damaged, and the allowed results of salvage."""

from __future__ import annotations

import msgspec

from storage import Durability, Options, Recovery, TopicConfig
from tests.support.crash_check import parts_of
from tests.support.crash_ledger import Ledger, Write
from tests.support.crash_run import SMALL
from tests.support.crash_session import ROOT, Session
from tests.support.crash_view import TopicView, view
from tests.support.fake_clock import FakeClock
from tests.support.sim_disk import Loss, SimDisk

FSYNC = TopicConfig(durability=Durability.FSYNC)
DISK = TopicConfig(durability=Durability.DISK)
NORMAL = msgspec.structs.replace(SMALL, wal_file_bytes=4096, sync_point_bytes=1)
SALVAGE = msgspec.structs.replace(NORMAL, recovery=Recovery.SALVAGE)


class Damaged:
    """A directory whose log will be damaged, and the acked records in it. Opening works on a copy."""

    def __init__(self, disk: SimDisk, ledger: Ledger, clock: FakeClock, made_bytes: int) -> None:
        self.disk = disk
        self.ledger = ledger
        self.clock = clock
        #: Bytes of the first file that create the topics.
        self.made_bytes = made_bytes

    def copy(self) -> Damaged:
        return Damaged(self.disk.process_kill(), self.ledger, self.clock, self.made_bytes)

    async def open(self, options: Options, disk: SimDisk | None = None) -> Session:
        session = Session(disk or self.disk.process_kill(), options, clock=self.clock, ledger=self.ledger)
        await session.start()
        return session

    def logs(self) -> list[str]:
        """Log files that are not empty, oldest first."""
        return [path for path in self.disk.tree() if "/wal-" in path and self.disk.read_file(path).strip(b"\0")]

    def find(self, write: int) -> tuple[str, int]:
        """Where the first record of a write is: file, offset of its data."""
        for path in self.logs():
            offset = self.disk.read_file(path).find(b'{"w":%d,"i":0' % write)
            if offset >= 0:
                return path, offset
        raise AssertionError(f"write {write} is in no file")


async def written(*, snapshot: bool = False, options: Options = NORMAL) -> Damaged:
    """Two topics, writes of one to four records, several files, all synced."""
    session = Session(SimDisk(), options)
    await session.start()
    await session.put("f", FSYNC)
    await session.put("d", DISK)
    made_bytes = len(session.disk.read_file(f"{ROOT}/wal/wal-{1:016d}.log").rstrip(b"\0"))
    for number in range(9):
        await session.append("f", 1 + number % 4, size=120, key=f"k{number}" if number % 3 == 0 else None)
        await session.append("d", 1 + number % 3, size=150)
        if number == 5 and snapshot:
            await session.snapshot()
    await session.append("f")
    await session.append("d")
    await session.pass_time(1500)
    await session.append("f")
    return Damaged(session.disk.process_kill(), session.ledger, session.clock, made_bytes)


def broken_promises(seen: dict[str, TopicView], ledger: Ledger) -> list[str]:
    """Salvage must not serve bytes that were never sent, split a batch, or hide a loss."""
    problems = [problem for each in seen.values() for problem in each.problems]
    for life in ledger.lives:
        found = seen.get(life.name)
        if found is None:
            problems.append(f"{life.name} is gone")
            continue
        at = {record.seq: parts_of(record)[0] for record in found.records}
        sent = {seq: record.data for seq, _, record in life.acked()}
        problems += [f"{life.name}: {seq} is {at[seq]!r}" for seq in at if at[seq] != sent.get(seq)]
        for write in life.writes:
            problems += [f"{life.name}: {problem}" for problem in _write_problems(write, found, set(at))]
    return problems


def _write_problems(write: Write, found: TopicView, there: set[int]) -> list[str]:
    missing = [seq for seq in write.seqs if seq not in there]
    problems: list[str] = []
    if missing and len(missing) < len(write.seqs):
        problems.append(f"write {write.number} is there in part, without {missing}")
    for seq in missing:
        tombstone = found.tombstone_over(seq)
        if seq <= found.state.head_seq and (tombstone is None or tombstone.reason not in ("salvage", "crash", "mixed")):
            problems.append(f"{seq} is gone, and the tombstone is {tombstone}")
    return problems


def lost_writes(seen: dict[str, TopicView], ledger: Ledger) -> set[int]:
    there = {(name, record.seq) for name, each in seen.items() for record in each.records}
    return {write.number for life in ledger.lives for write in life.writes if (life.name, write.first_seq) not in there}


async def salvaged(damaged: Damaged, options: Options = SALVAGE, afterwards: Options = NORMAL) -> dict[str, TopicView]:
    """The result of salvage. A normal start afterwards gives the same, also after a power cut."""
    session = await damaged.open(options)
    seen = await view(session.engine)
    assert broken_promises(seen, damaged.ledger) == []
    for disk in (session.disk.process_kill(), session.disk.power_cut(Loss.DROP)):
        again = Session(disk, afterwards, clock=damaged.clock)
        await again.start()
        found = await view(again.engine)
        assert broken_promises(found, damaged.ledger) == []
        assert {name: each.records for name, each in found.items()} == {n: each.records for n, each in seen.items()}
        assert {name: each.state.epoch for name, each in found.items()} == {n: e.state.epoch for n, e in seen.items()}
        for name in seen:
            await again.engine.append(name, [record.new() for record in damaged.ledger.lives[0].writes[0].records])
        await again.engine.close()
    return seen
