"""One byte of the 17th of 50 entries is damaged. Readers are told, and a reader that asks for it skips that entry."""

from __future__ import annotations

from pathlib import Path

import pytest
import structlog.testing

from storage import Engine, Options
from storage.errors import RecordCorrupt

ENTRIES = [b"entry %02d of fifty" % number for number in range(1, 51)]
DAMAGED = 17
OTHERS = [entry for number, entry in enumerate(ENTRIES, 1) if number != DAMAGED]
#: Nothing is read from memory, and nothing is flushed unless a test asks for it.
OPTIONS = Options(tail_cache_bytes=0, checkpoint_interval_ms=3_600_000)


def damage(data_dir: Path, pattern: str) -> None:
    """Change one byte of the entry in the file that matches."""
    (found,) = [path for path in data_dir.rglob(pattern) if ENTRIES[DAMAGED - 1] in path.read_bytes()]
    at = found.read_bytes().index(ENTRIES[DAMAGED - 1]) + 7
    with found.open("r+b") as file:
        file.seek(at)
        file.write(b"\x00")


@pytest.fixture(params=["in the log", "in a segment"])
async def engine(request: pytest.FixtureRequest, data_dir: Path):
    async with Engine.open(data_dir, OPTIONS) as engine:
        await engine.append_batch("t", ENTRIES)
        if request.param == "in a segment":
            await engine.segment_worker.flush_all()
            damage(data_dir, "seg-*.data")
        else:
            damage(data_dir, "wal-*.log")
        yield engine


async def test_a_reader_stops_at_a_damaged_record_with_an_error(engine: Engine) -> None:
    for _ in range(DAMAGED - 1):
        assert await engine.read_next("t", "c") is not None
    for _ in range(2):
        with pytest.raises(RecordCorrupt) as told:
            await engine.read_next("t", "c")
        assert told.value.detail["seq"] == DAMAGED
    assert engine.unread("t", "c") == len(ENTRIES) - DAMAGED + 1
    with pytest.raises(RecordCorrupt):
        await engine.read_batch("t", "d")
    assert engine.unread("t", "d") == len(ENTRIES)


async def test_a_reader_with_skip_corrupt_skips_only_the_damaged_record(engine: Engine) -> None:
    with structlog.testing.capture_logs() as logged:
        batch = await engine.read_batch("t", "c", skip_corrupt=True)
    assert [record.value for record in batch] == OTHERS
    assert batch.corrupt_seqs == (DAMAGED,)
    assert [line["seqs"] for line in logged if line["event"] == "corrupt_records_skipped"] == [(DAMAGED,)]
    assert engine.unread("t", "c") == 0


async def test_the_record_after_the_damaged_record_names_the_skipped_seq(engine: Engine) -> None:
    found = [await engine.read_next("t", "c", skip_corrupt=True) for _ in OTHERS]
    assert [record.value for record in found if record] == OTHERS
    assert [record.corrupt_seqs for record in found if record and record.corrupt_seqs] == [(DAMAGED,)]
    assert found[DAMAGED - 1].corrupt_seqs == (DAMAGED,)  # pyright: ignore
    assert await engine.read_next("t", "c", skip_corrupt=True) is None


async def test_a_follower_skips_only_when_asked(engine: Engine) -> None:
    asked = [record async for record in engine.follow("t", "c", wait_ms=0, skip_corrupt=True)]
    assert [record.value for record in asked] == OTHERS
    with pytest.raises(RecordCorrupt):
        [record async for record in engine.follow("t", "d", wait_ms=0)]
