"""A start that failed at its second shard raised AttributeError instead of the disk's error, and kept the lock."""

from __future__ import annotations

import errno

import pytest

from tests.unit.storage.machine import Machine


async def test_the_disk_error_is_raised_and_the_directory_can_be_opened_again() -> None:
    async with Machine() as machine:
        machine.disk.fail("allocate", "*/shard-01/*", errno=errno.EIO)
        with pytest.raises(OSError, match="Input/output error"):
            await machine.start(wal_shards=2)
        engine = await machine.start(wal_shards=2)
        assert engine.ready
