"""TOPICS_RECOVERY=salvage: damage is given up, as little as can be, every loss is announced, and the next start is a
normal one."""

from __future__ import annotations

import msgspec
import pytest
import structlog

from storage import Durability, Options, Recovery, TopicConfig
from storage.errors import WalCorrupt
from tests.support.crash_check import parts_of
from tests.support.crash_ledger import Ledger, Write
from tests.support.crash_run import SMALL, until_crash
from tests.support.crash_session import ROOT, Session
from tests.support.crash_view import TopicView, view
from tests.support.fake_clock import FakeClock
from tests.support.sim_disk import Loss, SimDisk, When

FSYNC = TopicConfig(durability=Durability.FSYNC)
DISK = TopicConfig(durability=Durability.DISK)
NORMAL = msgspec.structs.replace(SMALL, wal_file_bytes=4096, sync_point_bytes=1)
SALVAGE = msgspec.structs.replace(NORMAL, recovery=Recovery.SALVAGE)


class Damaged:
    """A directory whose log is to be damaged, and what had been acked in it. It stays as it is when it is opened."""

    def __init__(self, disk: SimDisk, ledger: Ledger, clock: FakeClock, made_bytes: int) -> None:
        self.disk = disk
        self.ledger = ledger
        self.clock = clock
        #: Bytes of the first file that make the topics.
        self.made_bytes = made_bytes

    def copy(self) -> Damaged:
        return Damaged(self.disk.process_kill(), self.ledger, self.clock, self.made_bytes)

    async def open(self, options: Options, disk: SimDisk | None = None) -> Session:
        session = Session(disk or self.disk.process_kill(), options, clock=self.clock, ledger=self.ledger)
        await session.start()
        return session

    def logs(self) -> list[str]:
        """Log files with anything in them, oldest first."""
        return [path for path in self.disk.tree() if "/wal-" in path and self.disk.read_file(path).strip(b"\0")]

    def find(self, write: int) -> tuple[str, int]:
        """Where the first record of a write lies: file, offset of its data."""
        for path in self.logs():
            offset = self.disk.read_file(path).find(b'{"w":%d,"i":0' % write)
            if offset >= 0:
                return path, offset
        raise AssertionError(f"write {write} is in no file")


async def written(*, snapshot: bool = False, options: Options = NORMAL) -> Damaged:
    """Two topics, writes of one to four records, several files; all of it synced."""
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
    """What salvage may not do: serve what was never sent, tear a batch apart, or keep a loss to itself."""
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


async def salvaged(damaged: Damaged) -> dict[str, TopicView]:
    """What salvage makes of it; a normal start afterwards makes the same of it, also after a power cut."""
    session = await damaged.open(SALVAGE)
    seen = await view(session.engine)
    assert broken_promises(seen, damaged.ledger) == []
    for disk in (session.disk.process_kill(), session.disk.power_cut(Loss.DROP)):
        again = Session(disk, NORMAL, clock=damaged.clock)
        await again.start()
        found = await view(again.engine)
        assert broken_promises(found, damaged.ledger) == []
        assert {name: each.records for name, each in found.items()} == {n: each.records for n, each in seen.items()}
        assert {name: each.state.epoch for name, each in found.items()} == {n: e.state.epoch for n, e in seen.items()}
        for name in seen:
            await again.engine.append(name, [record.new() for record in damaged.ledger.lives[0].writes[0].records])
        await again.engine.close()
    return seen


@pytest.mark.parametrize("snapshot", [False, True])
@pytest.mark.parametrize("write", [3, 6, 9, 12])
async def test_a_flipped_byte_costs_its_batch_and_nothing_else(write: int, snapshot: bool) -> None:
    damaged = await written(snapshot=snapshot)
    epochs = {life.name: life.epoch for life in damaged.ledger.lives}
    path, offset = damaged.find(write)
    damaged.disk.flip_byte(path, offset + 20)
    with pytest.raises(WalCorrupt):
        await damaged.open(NORMAL)
    seen = await salvaged(damaged)
    assert lost_writes(seen, damaged.ledger) == {write}
    reasons = {each.reason for found in seen.values() for each in found.tombstones}
    assert "salvage" in reasons
    assert all(seen[name].state.epoch > epochs[name] for name in epochs)
    assert len({found.state.epoch for found in seen.values()}) == 2


@pytest.mark.parametrize("index", [1, 4, 7])
async def test_a_damaged_batch_frame_costs_its_batch_and_nothing_else(index: int) -> None:
    damaged = await written()
    write = [write for life in damaged.ledger.lives for write in life.writes if len(write.records) > 1][index]
    path, offset = damaged.find(write.number)
    batch = damaged.disk.read_file(path).rfind(b"\xa6frames", 0, offset)
    damaged.disk.flip_byte(path, batch + 3)
    assert lost_writes(await salvaged(damaged), damaged.ledger) == {write.number}


async def test_several_damages_in_several_files() -> None:
    damaged = await written()
    for write in (2, 9, 10, 15):
        path, offset = damaged.find(write)
        damaged.disk.flip_byte(path, offset)
    assert lost_writes(await salvaged(damaged), damaged.ledger) == {2, 9, 10, 15}


async def test_a_zeroed_page_costs_the_batches_it_touches() -> None:
    damaged = await written()
    path = damaged.logs()[1]
    damaged.disk.zero(path, 512, 512)
    lost = lost_writes(await salvaged(damaged), damaged.ledger)
    assert 1 <= len(lost) <= 5


async def test_a_missing_file_costs_what_was_in_it() -> None:
    damaged = await written()
    path = damaged.logs()[1]
    content = damaged.disk.read_file(path)
    writes = [write for life in damaged.ledger.lives for write in life.writes]
    damaged.disk.remove_file(path)
    inside = {write.number for write in writes if write.records[0].data in content}
    assert lost_writes(await salvaged(damaged), damaged.ledger) == inside


async def test_a_log_that_ends_before_its_snapshot_costs_what_is_missing() -> None:
    damaged = await written(snapshot=True, options=msgspec.structs.replace(NORMAL, wal_file_bytes=65536))
    (path,) = damaged.logs()
    _, offset = damaged.find(5)
    damaged.disk.cut_file(path, offset + 10)
    with pytest.raises(WalCorrupt):
        await damaged.open(NORMAL)
    lost = lost_writes(await salvaged(damaged), damaged.ledger)
    assert lost >= {5, 6, 7, 8, 9, 10, 11, 12}


async def test_salvage_of_an_undamaged_directory_changes_nothing() -> None:
    damaged = await written(snapshot=True)
    intact = await damaged.open(NORMAL)
    session = await damaged.open(SALVAGE)
    assert await view(session.engine) == await view(intact.engine)


async def test_a_topic_whose_creation_is_lost_is_reported_with_its_seqs() -> None:
    structlog.reset_defaults()
    damaged = await written()
    damaged.disk.flip_byte(damaged.logs()[0], 60)
    with structlog.testing.capture_logs() as logs:
        session = await damaged.open(SALVAGE)
    assert [state.topic for state in session.engine.topics()] == ["d"]
    life = damaged.ledger.live("f")
    assert life is not None
    assert [entry for entry in logs if entry["event"] == "log_lost"] == [
        {"event": "log_lost", "log_level": "error", "topic_id": life.topic_id, "first_seq": 1, "last_seq": 23}
    ]


async def test_an_io_error_is_no_damage_to_salvage() -> None:
    damaged = await written()
    disk = damaged.disk.process_kill()
    disk.fail("pread", damaged.logs()[1], sticky=True)
    with pytest.raises(OSError, match="Input/output error"):
        await damaged.open(SALVAGE, disk)


async def test_keys_of_writes_that_survived_are_still_known() -> None:
    damaged = await written()
    path, offset = damaged.find(4)
    damaged.disk.flip_byte(path, offset)
    session = await damaged.open(SALVAGE)
    life = damaged.ledger.live("f")
    assert life is not None
    for write in [write for write in life.writes if write.key is not None]:
        answer = await session.engine.append("f", [r.new() for r in write.records], idempotency_key=write.key)
        assert (answer.deduped, answer.first_seq) == (True, write.first_seq)


async def test_what_was_given_up_is_kept_in_quarantine() -> None:
    damaged = await written()
    path, offset = damaged.find(9)
    damaged.disk.flip_byte(path, offset)
    session = await damaged.open(SALVAGE)
    kept = [path for path in session.disk.tree() if path.startswith(f"{ROOT}/quarantine/shard")]
    assert any(b'"w":9' in session.disk.read_file(path) for path in kept)
    assert session.engine.report.salvaged_bytes > 0


@pytest.mark.parametrize("snapshot", [False, True])
@pytest.mark.parametrize("seed", range(12))
async def test_a_crash_in_salvage_can_be_salvaged_again(seed: int, snapshot: bool) -> None:
    damaged = await written(snapshot=snapshot)
    path, offset = damaged.find(5)
    damaged.disk.flip_byte(path, offset)
    points = (await damaged.open(SALVAGE)).disk.crash_points()
    disk = damaged.disk.process_kill()
    disk.crash_at(points[seed * len(points) // 12], list(When)[seed % 3])
    await until_crash(disk, damaged.open(SALVAGE, disk))
    found = Damaged(disk.power_cut(Loss.TORN, seed), damaged.ledger, damaged.clock, 0)
    seen = await salvaged(found)
    assert lost_writes(seen, damaged.ledger) == {5}


async def damage_sweep(step: int, first: int, *, snapshot: bool) -> list[str]:
    """One byte flipped, at every so many bytes of the log."""
    damaged = await written(snapshot=snapshot)
    problems: list[str] = []
    for path in damaged.logs():
        end = len(damaged.disk.read_file(path).rstrip(b"\0"))
        begin = damaged.made_bytes if path == damaged.logs()[0] and not snapshot else 0
        for offset in range(begin + first, end, step):
            hurt = damaged.copy()
            hurt.disk.flip_byte(path, offset)
            try:
                session = await hurt.open(SALVAGE)
                found = broken_promises(await view(session.engine), damaged.ledger)
            except Exception as error:
                error.add_note(f"{path}, byte {offset}")
                raise
            problems += [f"{path}, byte {offset}: {problem}" for problem in found]
    return problems


@pytest.mark.parametrize("snapshot", [False, True])
async def test_a_byte_flipped_anywhere(snapshot: bool) -> None:
    assert await damage_sweep(97, 13, snapshot=snapshot) == []


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("snapshot", [False, True])
async def test_a_byte_flipped_at_every_place(snapshot: bool) -> None:
    assert await damage_sweep(1, 0, snapshot=snapshot) == []
