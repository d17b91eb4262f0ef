"""FORMAT and CURRENT were written by one call whose result was not checked, so a short write was synced and renamed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from storage import Durability, TopicConfig
from storage.engine import Engine
from storage.platform.filesystem import Buffer
from storage.platform.posix import PosixFile
from tests.unit.storage.machine import record, seqs


async def test_files_are_whole_after_short_writes(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    write = PosixFile.pwritev

    def short(self: PosixFile, buffers: Sequence[Buffer], offset: int) -> int:
        return write(self, [memoryview(buffers[0])[:7]], offset)

    monkeypatch.setattr(PosixFile, "pwritev", short)
    for _ in range(2):
        async with Engine.open(tmp_path / "data") as engine:
            await engine.append("t", [record("x" * 50)], config=TopicConfig(durability=Durability.FSYNC))
            await engine.segment_worker.flush_all()
    monkeypatch.undo()
    lines = (tmp_path / "data" / "FORMAT").read_text().split("\n")
    assert (lines[0], len(lines[1]), lines[3]) == ("1", 32, "")
    assert all(
        path.read_text().startswith("wal-") and len(path.read_text()) == 25
        for path in (tmp_path / "data" / "wal").rglob("CURRENT")
    )
    async with Engine.open(tmp_path / "data") as engine:
        assert await seqs(engine, "t") == [1, 2]
