"""A damaged topic does not stop the flush, the removal and the clean stop of the others."""

from __future__ import annotations

from contextlib import suppress

from storage import Durability, Engine, TagMatch, TopicConfig
from storage.errors import StorageError
from storage.format import LENGTH, FrameType
from storage.segments.errors import SegmentError
from storage.segments.names import SegmentId
from tests.unit.storage.conftest import machine as machine
from tests.unit.storage.machine import DATA, WAL, Machine, record

FSYNC = TopicConfig(durability=Durability.FSYNC)


def damage_a_length(machine: Machine) -> None:
    """Flip a bit in the length of the frame with the first record of the topic "bad"."""
    names = [name for name in machine.disk.content() if name.startswith(f"{WAL}/wal-")]
    [path] = [name for name in names if b"marker-of-bad" in machine.disk.read_file(name)]
    found = bytearray(machine.disk.read_file(path))
    body = start = found.index(b"marker-of-bad")
    while not (
        found[start + 4] == FrameType.APPEND
        and 20 < (size := LENGTH.unpack_from(found, start)[0]) < 200
        and start + size > body
    ):
        start -= 1
    found[start] ^= 0x40
    machine.disk.write_file(path, bytes(found))


async def flush(engine: Engine) -> None:
    with suppress(StorageError, SegmentError, OSError):  # of the damaged topic, in each round
        await engine.segment_worker.flush_all()


async def test_a_flipped_bit_in_the_log_stops_the_flush_of_no_other_topic(machine: Machine) -> None:
    engine = await machine.start(tail_cache_bytes=0)
    await engine.append("bad", [record("marker-of-bad")], config=FSYNC)
    for number in range(5):
        await engine.append("good", [record(number)], config=FSYNC)
    damage_a_length(machine)
    for _ in range(3):
        await flush(engine)
    assert engine.topic("good").log.held.flushed == 5


async def test_a_damaged_active_segment_stops_the_flush_of_no_other_topic(machine: Machine) -> None:
    engine = await machine.start(tail_cache_bytes=0)
    await engine.append("bad", [record(0)], config=FSYNC)
    await engine.segment_worker.flush_all()
    await engine.append("bad", [record(1)])
    for number in range(5):
        await engine.append("good", [record(number)], config=FSYNC)
    await engine.flusher.close()  # as for all but the 256 logs that were used last
    path = f"{DATA}/topics/{engine.topic('bad').topic_id:016x}/seg-{1:020}.data"
    machine.disk.write_file(path, machine.disk.read_file(path)[:10])
    for _ in range(3):
        await flush(engine)
    assert engine.topic("good").log.held.flushed == 5


async def test_a_damaged_segment_keeps_the_dead_segments_of_no_other_topic(machine: Machine) -> None:
    engine = await machine.start(tail_cache_bytes=0, segment_max_events=5, flag_age_ms=0)
    for number in range(1, 12):
        await engine.append("bad", [record(number, tag="x" if number < 5 else None)], config=FSYNC)
    for number in range(1, 12):
        await engine.append("good", [record(number)], config=FSYNC)
    await engine.segment_worker.flush_all()
    path = f"{DATA}/topics/{engine.topic('bad').topic_id:016x}/seg-{1:020}.idx"
    engine.store.forget(SegmentId(engine.topic("bad").topic_id, 1))
    await engine.delete_records("bad", match=TagMatch(b"x"))  # 4 of 5 records of the first segment: it is rewritten
    machine.disk.write_file(path, machine.disk.read_file(path)[:50])
    await engine.delete_records("good", before_seq=11)
    for _ in range(3):
        await flush(engine)
    folder = f"{engine.topic('good').topic_id:016x}/seg-"
    left = [each for each in machine.disk.content() if folder in each and each.endswith(".data")]
    assert len(left) == 1


async def test_a_clean_stop_is_completed_with_a_flipped_bit_in_the_log(machine: Machine) -> None:
    engine = await machine.start(tail_cache_bytes=0)
    await engine.append("bad", [record("marker-of-bad")], config=FSYNC)
    for _ in range(10):
        await engine.append("bad", [record(0)] * 200, config=FSYNC)
    damage_a_length(machine)
    taken = engine.snapshotter.taken
    await engine.close()
    assert engine.snapshotter.taken > taken
