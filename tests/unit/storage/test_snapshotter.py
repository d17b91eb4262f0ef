"""The replay position of a snapshot, and the state it is computed from."""

from __future__ import annotations

import pytest

from storage import Durability, Engine, TopicConfig
from storage.records.values import TagMatch
from storage.state.log import Log
from tests.unit.storage.machine import Machine, log_of, record

FSYNC = TopicConfig(durability=Durability.FSYNC)


def needed(engine: Engine) -> list[int]:
    """By asking every log."""
    places = [shard.applied_lsn for shard in engine.shards]
    for topic in engine.catalog.topics.values():
        place = topic.log.wal_needed_from()
        if place is not None:
            places[topic.log.shard] = min(places[topic.log.shard], place)
    return places


def redo(engine: Engine) -> list[int]:
    return engine.snapshotter.redo_lsns(frozenset())


async def test_every_kind_of_need_for_the_log_is_noticed(machine: Machine) -> None:
    engine = await machine.start(wal_shards=3, checkpoint_records=1)
    for step in range(3):
        for name in "abcdef":
            await engine.append(name, [record(step, tag=f"tag-{step}")], config=FSYNC)
            assert redo(engine) == needed(engine)
    await engine.segment_worker.flush_all()
    assert redo(engine) == needed(engine) == [shard.applied_lsn for shard in engine.shards]
    await engine.delete_records("b", match=TagMatch(b"tag-1"))  # must be flagged in its segment
    assert log_of(engine, "b").wal_needed_from() is not None
    assert redo(engine) == needed(engine)
    await engine.put_topic("m", TopicConfig(durability=Durability.EPHEMERAL))
    await engine.append("m", [record()])
    assert redo(engine) == needed(engine)
    await engine.put_topic("m", FSYNC)  # writes the records that were in memory
    assert log_of(engine, "m").wal_needed_from() is not None
    assert redo(engine) == needed(engine)
    await engine.delete_topic("a")
    assert redo(engine) == needed(engine)
    engine = await machine.kill(wal_shards=3, checkpoint_records=1)
    assert redo(engine) == needed(engine)
    await engine.append("c", [record()])
    assert redo(engine) == needed(engine)


async def test_unchanged_topics_are_not_examined(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = await machine.start(wal_file_bytes=1 << 20)
    for number in range(50):
        await engine.append(f"t{number}", [record()])
    await engine.segment_worker.flush_all()
    redo(engine)  # of logs that have changed
    real, asked = Log.wal_needed_from, list[int]()

    def noted(log: Log) -> int | None:
        asked.append(log.topic_id)
        return real(log)

    monkeypatch.setattr(Log, "wal_needed_from", noted)
    redo(engine)
    assert asked == []
    await engine.append("t7", [record()])
    for _ in range(2):
        asked.clear()
        redo(engine)
        assert asked == [log_of(engine, "t7").topic_id]
