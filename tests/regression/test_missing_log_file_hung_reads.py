"""A log file was deleted under a running engine. A read of its records planned and failed again and again, for ever."""

from __future__ import annotations

import asyncio

import pytest

from storage import Durability, ReadQuery, TopicConfig
from storage.errors import RecordCorrupt
from tests.unit.storage.machine import WAL, Machine, sized


async def test_a_read_from_a_missing_log_file_fails_with_its_seq_and_file() -> None:
    async with Machine() as machine:
        engine = await machine.start(tail_cache_bytes=0)
        await engine.append("t", [sized(50)], config=TopicConfig(durability=Durability.FSYNC))
        machine.disk.rename(f"{WAL}/wal-0000000000000001.log", "/elsewhere")
        async with asyncio.timeout(5):
            with pytest.raises(RecordCorrupt) as caught:
                await engine.read("t", ReadQuery())
        assert caught.value.detail["topic"] == "t"
        assert (caught.value.detail["seq"], caught.value.detail["file"]) == (1, 1)
        machine.disk.rename("/elsewhere", f"{WAL}/wal-0000000000000001.log")
        assert len((await engine.read("t", ReadQuery())).records) == 1
