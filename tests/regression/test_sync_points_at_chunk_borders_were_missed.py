"""A SyncPoint that began near the border of a chunk was not found, so damage before it was taken for a torn end."""

from __future__ import annotations

import pytest

from storage.format import control, wal_frame
from storage.log import reader
from storage.log.reader import find_sync_point
from tests.support.sim_disk import SimDisk

CHUNK = 600


def test_a_sync_point_is_found_at_every_offset_around_a_chunk_border(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "CHUNK_BYTES", CHUNK)
    disk = SimDisk()
    missed: list[int] = []
    for at in range(CHUNK - 300, CHUNK + 20):
        point = control.SyncPoint(file=3, at=at, offset=at)
        frame = wal_frame.encode(wal_frame.FrameType.SYNC_POINT, 0, 0, 0, 77, data=control.encode_control(point))
        file = disk.open(f"/{at}", create=True)
        file.pwritev([b"\xff" * at + frame + b"\xff" * 700], 0)
        if find_sync_point(file, 3, 0) != point:
            missed.append(at)
    assert missed == []
