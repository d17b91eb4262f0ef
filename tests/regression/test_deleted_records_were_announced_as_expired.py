"""Records deleted by tag were announced as expired when their ttl had passed. Deletions must not be announced."""

from __future__ import annotations

from storage import ReadQuery, TagMatch, TopicConfig
from storage.errors import RecordNotFound
from tests.unit.storage.machine import Machine, outcome, record


async def test_records_deleted_before_their_ttl_leave_no_tombstone() -> None:
    async with Machine() as machine:
        engine = await machine.start()
        await engine.append("t", [record(tag="x"), record(tag="x")], config=TopicConfig(ttl_ms=100))
        await engine.delete_records("t", match=TagMatch(b"x"))
        await machine.clock.advance(101)
        result = await engine.read("t", ReadQuery())
        assert (result.tombstone, result.next_from_seq) == (None, 2)
        assert engine.state("t").evict_floor == 1
        gone = await outcome(engine.read_one("t", 1))
        assert isinstance(gone, RecordNotFound)
        assert gone.detail["reason"] == "deleted"
