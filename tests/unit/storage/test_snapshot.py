"""A topic is encoded as a section of a snapshot and restored unchanged. Unchanged topics are not encoded again."""

from __future__ import annotations

import msgspec
import pytest

from storage import Durability, TopicConfig
from storage.format import control
from storage.format.snapshot_header import SnapshotDamaged
from storage.format.wal_frame import FrameType
from storage.log import position
from storage.records.values import LossCause
from storage.snapshot import contents as snapshot
from storage.state.catalog import Catalog, Topic
from tests.unit.storage.log_steps import write

NOW_MS = 50_000
WINDOW_MS = 10_000


def a_topic(**config) -> tuple[Catalog, Topic]:
    catalog = Catalog(1)
    settings = TopicConfig(idempotency_window_ms=WINDOW_MS, **config)
    creation = control.TopicCreate(
        name="t", topic=7, partition=0, partitions=1, epoch=3, config=settings.to_map(), paused=True
    )
    return catalog, catalog.add(7, creation)


def remember(catalog: Catalog, key: str, first_seq: int, ts: int) -> None:
    catalog.remember(7, ts, control.Batch(frames=1, body_bytes=1, first_seq=first_seq, key=key, hash=b"h" * 16), 2)


def carried(topic: Topic, *, created_ms: int = NOW_MS) -> tuple[Catalog, Topic]:
    catalog = Catalog(1)
    section = snapshot.decode_section(snapshot.capture(topic, created_ms))
    return catalog, snapshot.restore(catalog, section, created_ms)


def test_a_section_restores_all_state_except_records() -> None:
    catalog, topic = a_topic(cap_records=9, durability=Durability.FSYNC)
    log = topic.log
    write(log, [10, 20, 30], ts=40_000)
    log.evict({LossCause.CAP: 2}, [(4, 9, "crash")])
    write(log, [40], ts=41_000)
    log.reserved = 300
    log.applied_lsn = position(3, 777)

    catalog, found = carried(topic)
    restored = found.log
    assert catalog.topics["t"] is found
    assert catalog.by_id[7] is found
    assert catalog.next_topic_id == 8
    assert (found.name, found.topic_id, found.config, found.paused) == ("t", 7, topic.config, True)
    assert (restored.head, restored.count, restored.bytes) == (log.head, 3, 90) == (10, 3, 90)
    assert (restored.assigned_head, restored.assigned_count, restored.assigned_bytes) == (10, 3, 90)
    assert (restored.epoch, restored.reserved, restored.last_ts, restored.last_write_ts) == (3, 300, 41_000, 41_000)
    assert (restored.marks.floors, restored.marks.loss) == (log.marks.floors, log.marks.loss)
    assert (restored.assigned_floor, restored.durable_head) == (2, 10)
    assert restored.applied_lsn == position(3, 777)
    assert (catalog.usage.bytes, catalog.usage.ephemeral_bytes) == (90, 0)
    assert len(restored.tail) == 0, "records come from the log"


def test_a_topic_without_a_write_has_no_last_write_ts() -> None:
    _, topic = a_topic()
    _, found = carried(topic)
    assert (found.log.last_write_ts, found.log.head, found.log.earliest_seq) == (None, 0, 1)


def test_live_keys_are_restored_with_the_rest_of_their_window() -> None:
    catalog, topic = a_topic()
    for key, ts in (("expired", NOW_MS - WINDOW_MS - 1), ("last ms", NOW_MS - WINDOW_MS), ("new", NOW_MS)):
        write(topic.log, [1, 1], ts=ts)
        remember(catalog, key, topic.log.head - 1, ts)
    restored_catalog, found = carried(topic)
    before, after = topic.log.keys, found.log.keys
    assert before is not None
    assert after is not None
    assert after.live(NOW_MS, WINDOW_MS) == before.live(NOW_MS, WINDOW_MS)
    assert after.key_count == restored_catalog.usage.keys == 2
    assert len(after.live(NOW_MS + 1, WINDOW_MS).seqs) == 1


def test_keys_survive_a_clock_that_starts_at_zero() -> None:
    catalog, topic = a_topic()
    write(topic.log, [1, 1], ts=5)
    remember(catalog, "k", 1, 5)
    _, found = carried(topic, created_ms=10)
    assert found.log.keys is not None
    assert len(found.log.keys.live(10, WINDOW_MS).seqs) == 1


def test_a_section_of_an_ephemeral_topic_has_only_durable_state() -> None:
    catalog, topic = a_topic()
    write(topic.log, [10, 20], ts=1000)
    catalog.apply(
        FrameType.CONFIG_UPDATE,
        7,
        2000,
        control.ConfigUpdate(
            name="t",
            topic=7,
            partition=0,
            partitions=1,
            epoch=3,
            config=TopicConfig(durability=Durability.EPHEMERAL).to_map(),
        ),
    )
    write(topic.log, [40, 80], ts=3000, place=0)
    remember(catalog, "within", 3, 3000)
    topic.log.reserved = 300
    restored_catalog, found = carried(topic)
    assert (found.log.head, found.log.count, found.log.bytes, found.log.reserved) == (2, 2, 30, 300)
    assert (found.log.ephemeral, found.log.durable_head, found.log.keys) == (True, 2, None)
    assert (restored_catalog.usage.bytes, restored_catalog.usage.ephemeral_bytes) == (30, 0)


def test_an_unchanged_section_is_the_same_bytes_object() -> None:
    _, topic = a_topic()
    write(topic.log, [10])
    first = snapshot.capture(topic, NOW_MS)
    assert snapshot.capture(topic, NOW_MS + 9999) is first
    write(topic.log, [10])
    assert snapshot.capture(topic, NOW_MS) != first


def test_the_rest_of_a_key_window_is_computed_at_each_capture() -> None:
    catalog, topic = a_topic()
    write(topic.log, [1, 1], ts=NOW_MS)
    remember(catalog, "k", 1, NOW_MS)
    first = snapshot.decode_section(snapshot.capture(topic, NOW_MS))
    later = snapshot.decode_section(snapshot.capture(topic, NOW_MS + 400))
    assert first.keys is not None
    assert later.keys is not None
    left = [int.from_bytes(each.keys.remaining_ms, "little") for each in (first, later)]
    assert left == [WINDOW_MS, WINDOW_MS - 400]


def test_a_section_of_a_restored_topic_equals_the_first_section() -> None:
    _, topic = a_topic()
    write(topic.log, [10, 20])
    topic.log.applied_lsn = position(2, 5)
    _, found = carried(topic)
    assert snapshot.capture(found, NOW_MS) == snapshot.capture(topic, NOW_MS)


def test_a_body_is_decoded_unchanged() -> None:
    body = snapshot.Body(
        created_ms=1,
        shards=2,
        next_topic_id=9,
        pending_deletes=[4],
        clean=True,
        redo_from=[(1, 0), (3, 99)],
        sections=[b"one", b"two"],
    )
    assert snapshot.decode(snapshot.encode(body)) == body


@pytest.mark.parametrize("damage", [b"", b"\xc1", msgspec.msgpack.encode([1]), msgspec.msgpack.encode({"name": 5})])
def test_an_undecodable_section_is_damage(damage: bytes) -> None:
    with pytest.raises(SnapshotDamaged):
        snapshot.decode_section(damage)


def test_an_undecodable_body_is_damage() -> None:
    sealed = snapshot.snapshot_header.seal(msgspec.msgpack.encode({"created_ms": "soon"}))
    with pytest.raises(SnapshotDamaged):
        snapshot.decode(sealed)


def test_unknown_fields_of_a_section_are_ignored() -> None:
    _, topic = a_topic()
    section = msgspec.msgpack.decode(snapshot.capture(topic, NOW_MS))
    section["of_a_later_version"] = [1, 2]
    assert snapshot.decode_section(msgspec.msgpack.encode(section)).name == "t"
