"""An owner goes on with bases after an error that nobody expects, and puts none without need."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from storage import NewRecord
from storage.backup.bases import BaseTarget
from storage.bucket.driver import Bucket
from storage.cells.owner import CellOwner
from tests.unit.storage.bucket.test_owner import FSYNC, bucket, owners, taken

_ = (bucket, owners)


async def test_bases_go_on_after_one_that_had_no_memory(
    bucket: Bucket, tmp_path: Path, owners: list[CellOwner], monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = await taken(bucket, tmp_path, owners)
    await owner.engine.put_topic("t", FSYNC)
    put, failed = BaseTarget._put, 0

    def fails_once(self: Any, key: str, data: bytes) -> None:
        nonlocal failed
        if not failed:
            failed += 1
            raise MemoryError
        put(self, key, data)

    monkeypatch.setattr(BaseTarget, "_put", fails_once)
    monkeypatch.setattr("storage.cells.owner.BASE_SLOTS", 1)
    for number in range(60):
        await owner.engine.append("t", [NewRecord(msgspec.Raw(b"%d" % number))])
        await asyncio.sleep(0.1)
    assert failed
    assert owner.bases


async def test_an_idle_cell_puts_no_base_after_another_because_a_record_is_not_flushed_yet(
    bucket: Bucket, tmp_path: Path, owners: list[CellOwner], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.cells.owner.BASE_SLOTS", 20)
    owner = await taken(bucket, tmp_path, owners)
    for topic in ("quiet", "busy"):
        await owner.engine.put_topic(topic, FSYNC)
    await owner.engine.append("quiet", [NewRecord(msgspec.Raw(b"0"))])  # is flushed after a minute
    for number in range(30):
        await owner.engine.append("busy", [NewRecord(msgspec.Raw(b"%d" % number))])
    while not owner.bases:
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.5)
    before = owner.bases
    await asyncio.sleep(3)  # nothing is written
    assert owner.bases - before <= 1
