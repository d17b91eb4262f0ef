"""Two owners of a cell in a real store, one after the other."""

from __future__ import annotations

from pathlib import Path

import msgspec

from storage import Durability, NewRecord, ReadQuery, TopicConfig
from storage.bucket import Bucket, Candidate
from storage.cells.owner import CellOwner, begin

CELL = "cell-00"


def record(number: int) -> NewRecord:
    return NewRecord(msgspec.Raw(msgspec.json.encode(number)))


async def check_takeover(bucket: Bucket, tmp_path: Path) -> None:
    """A second owner finds what the first has acked, from a base and from the slots behind it."""
    begin(bucket, CELL, Candidate("init", "00" * 16))
    first = CellOwner(bucket, CELL, str(tmp_path / "1"), Candidate("a", "01" * 16), ttl_s=1.0)
    await first.start()
    await first.engine.put_topic("events", TopicConfig(durability=Durability.FSYNC))
    for number in range(20):
        await first.engine.append("events", [record(number)])
    await first.engine.segment_worker.flush_all()
    await first.put_base()
    await first.engine.append("events", [record(20)])
    await first.abandon()
    second = CellOwner(bucket, CELL, str(tmp_path / "2"), Candidate("b", "02" * 16), ttl_s=1.0)
    await second.start()
    found = await second.engine.read("events", ReadQuery(limit=100))
    assert [msgspec.json.decode(each.data) for each in found.records] == list(range(21))
    assert second.generation > 1
    await second.close()
    assert second.released
