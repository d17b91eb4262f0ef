"""A topic that was emptied by tag kept the log file of its first record, and all later files, for good."""

from __future__ import annotations

from storage import Durability, TagMatch, TopicConfig
from storage.platform import layout
from tests.unit.storage.machine import WAL, Machine, log_of, record, seqs, sized

FSYNC = TopicConfig(durability=Durability.FSYNC)


async def test_log_files_with_only_deleted_records_are_trimmed() -> None:
    async with Machine() as machine:
        engine = await machine.start()
        await engine.append("idle", [record(tag="x"), record(tag="y")], config=FSYNC)
        await engine.delete_records("idle", match=TagMatch(b"", prefix=True))
        await engine.append("busy", [sized(1000)], config=TopicConfig(durability=Durability.FSYNC, cap_records=1))
        for _ in range(6):
            await engine.append("busy", [sized(60_000)])
        await engine.snapshotter.take()
        await engine.snapshotter.take()
        assert min(layout.wal_numbers(machine.disk.listdir(WAL))) > 1
        assert len(log_of(engine, "idle").tail) == 0
        engine = await machine.cut_power()
        state = engine.state("idle")
        assert (state.head_seq, state.count, state.earliest_seq) == (2, 0, 3)
        await engine.append("idle", [record()])
        assert await seqs(engine, "idle") == [3]


async def test_a_log_file_with_a_live_record_after_deleted_records_is_kept() -> None:
    async with Machine() as machine:
        engine = await machine.start()
        await engine.append("idle", [record(1, tag="x"), record(2)], config=FSYNC)
        await engine.append("idle", [record(3, tag="x")])
        await engine.append("idle", [record(4)])
        await engine.delete_records("idle", match=TagMatch(b"x"))
        await engine.append("busy", [sized(1000)], config=TopicConfig(durability=Durability.FSYNC, cap_records=1))
        for _ in range(6):
            await engine.append("busy", [sized(60_000)])
        await engine.snapshotter.take()
        await engine.snapshotter.take()
        engine = await machine.cut_power()
        assert await seqs(engine, "idle") == [2, 4]
        assert engine.state("idle").count == 2
