"""A read from the start asked for the bytes of deleted records, which were no longer there. It was answered 500 instead
of the records after them.

Records deleted by tag are above every floor, and the index forgets them later than memory and the log do.
"""

from __future__ import annotations

from typing import Any

from storage import Durability, TopicConfig
from storage.records.values import TagMatch
from tests.unit.storage.machine import Machine, record, seqs


async def test_records_after_deleted_records_are_read_from_memory() -> None:
    async with Machine() as machine:
        engine = await machine.start()
        for number in range(28):
            tag = "x" if number < 4 else None
            await engine.append("t", [record(0, tag=tag)], config=TopicConfig(durability=Durability.EPHEMERAL))
        await engine.delete_records("t", match=TagMatch(b"x"))
        for from_seq in range(6):
            assert await seqs(engine, "t", from_seq=from_seq) == list(range(max(5, from_seq + 1), 29))


async def test_records_after_deleted_records_are_read_from_the_log() -> None:
    async with Machine() as machine:
        small: dict[str, Any] = {"wal_file_bytes": 4096, "tail_cache_bytes": 0, "checkpoint_interval_ms": 10**9}
        engine = await machine.start(**small)
        for number in range(28):
            await engine.append("t", [record("z" * 400, tag="x" if number < 10 else None)])
        await engine.delete_records("t", match=TagMatch(b"x"))
        for _ in range(2):
            await engine.snapshotter.take()
        assert engine.snapshotter.trimmed_files > 0
        for from_seq in range(12):
            assert await seqs(engine, "t", from_seq=from_seq) == list(range(max(11, from_seq + 1), 29))
