"""Topics by name and id, and the effects of control frames on them; frames of deleted logs have no effect."""

from __future__ import annotations

import pytest

from storage import Durability, TopicConfig
from storage.format import control
from storage.format.wal_frame import FrameType
from storage.state.catalog import Catalog, shard_of
from storage.state.keys import key_digest
from tests.unit.storage.log_steps import write


def creation(name: str = "t", topic_id: int = 1, **config) -> control.TopicCreate:
    return control.TopicCreate(
        name=name, topic=topic_id, partition=0, partitions=1, epoch=topic_id, config=TopicConfig(**config).to_map()
    )


def update(name: str = "t", topic_id: int = 1, epoch: int = 1, paused: bool | None = None, **config):
    settings = TopicConfig(**config).to_map()
    return control.ConfigUpdate(
        name=name, topic=topic_id, partition=0, partitions=1, epoch=epoch, config=settings, paused=paused
    )


@pytest.fixture
def catalog() -> Catalog:
    made = Catalog(1)
    made.apply(FrameType.TOPIC_CREATE, 1, 1000, creation(cap_records=7))
    return made


def test_a_created_topic_is_found_by_name_and_id(catalog: Catalog) -> None:
    topic = catalog.topics["t"]
    assert catalog.by_id[1] is topic
    assert (topic.config.cap_records, topic.log.epoch, topic.log.topic_id) == (7, 1, 1)
    assert catalog.log(1) is topic.log
    assert catalog.next_topic_id == 2


def test_a_repeated_creation_has_no_effect(catalog: Catalog) -> None:
    topic = catalog.topics["t"]
    catalog.apply(FrameType.TOPIC_CREATE, 1, 1000, creation(cap_records=1))
    assert catalog.topics["t"] is topic
    assert topic.config.cap_records == 7


@pytest.mark.parametrize("order", [(2, 5), (5, 2)])
def test_of_two_topics_with_the_same_name_the_higher_id_wins(order: tuple[int, int]) -> None:
    catalog = Catalog(1)
    for topic_id in order:
        catalog.apply(FrameType.TOPIC_CREATE, topic_id, 1000, creation(topic_id=topic_id))
    assert catalog.topics["t"].topic_id == 5
    assert list(catalog.by_id) == [5]
    assert catalog.next_topic_id == 6


def test_a_deleted_topic_frees_its_usage(catalog: Catalog) -> None:
    write(catalog.topics["t"].log, [100])
    catalog.apply(FrameType.TOPIC_DELETE, 1, 2000, control.TopicDelete(name="t"))
    assert (catalog.topics, catalog.by_id, catalog.usage.bytes) == ({}, {}, 0)
    assert catalog.next_topic_id == 2, "ids are never used again"


def test_a_new_config_replaces_the_old_config(catalog: Catalog) -> None:
    catalog.apply(FrameType.CONFIG_UPDATE, 1, 2000, update(epoch=9, ttl_ms=5))
    topic = catalog.topics["t"]
    assert (topic.config, topic.log.epoch, topic.paused) == (TopicConfig(ttl_ms=5), 9, False)


def test_a_config_update_without_paused_keeps_paused(catalog: Catalog) -> None:
    topic = catalog.topics["t"]
    seen = []
    for paused in (True, None, False, None):
        catalog.apply(FrameType.CONFIG_UPDATE, 1, 2000, update(paused=paused))
        seen.append(topic.paused)
    assert seen == [True, True, False, False]


def test_a_change_of_the_durability_class_changes_the_log(catalog: Catalog) -> None:
    log = catalog.topics["t"].log
    seen = []
    for durability in (Durability.EPHEMERAL, Durability.EPHEMERAL, Durability.MEMORY, Durability.FSYNC):
        catalog.apply(FrameType.CONFIG_UPDATE, 1, 2000, update(durability=durability))
        seen.append(log.ephemeral)
    assert seen == [True, True, False, False]


def test_a_reservation_is_applied_even_if_lower(catalog: Catalog) -> None:
    for reserved in (500, 300):
        catalog.apply(FrameType.HEAD_WATERMARK, 1, 2000, control.HeadWatermark(reserved=reserved))
        assert catalog.topics["t"].log.reserved == reserved


def test_apply_returns_the_number_of_removed_records(catalog: Catalog) -> None:
    write(catalog.topics["t"].log, [1, 1, 1])
    assert catalog.apply(FrameType.DELETE, 1, 2000, control.Delete(bound_head=3, before_seq=2)) == 1
    assert catalog.apply(FrameType.EVICT_WATERMARK, 1, 2000, control.EvictWatermark(floors={"cap": 4})) == 2


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (FrameType.TOPIC_DELETE, control.TopicDelete(name="t")),
        (FrameType.CONFIG_UPDATE, update()),
        (FrameType.DELETE, control.Delete(bound_head=3)),
        (FrameType.EVICT_WATERMARK, control.EvictWatermark(floors={"cap": 4})),
        (FrameType.HEAD_WATERMARK, control.HeadWatermark(reserved=4)),
        (FrameType.SYNC_POINT, control.SyncPoint(file=1, at=2, offset=3)),
    ],
)
def test_frames_of_a_deleted_log_have_no_effect(catalog: Catalog, type_: FrameType, value: control.Control) -> None:
    assert not catalog.apply(type_, 99, 2000, value)
    assert list(catalog.by_id) == [1]


def test_every_change_makes_the_snapshot_section_stale(catalog: Catalog) -> None:
    log = catalog.topics["t"].log
    changes = [
        (FrameType.CONFIG_UPDATE, update()),
        (FrameType.DELETE, control.Delete(bound_head=0, match=["tag", "Eq", "x"])),
        (FrameType.EVICT_WATERMARK, control.EvictWatermark(floors={"cap": 1})),
        (FrameType.HEAD_WATERMARK, control.HeadWatermark(reserved=4)),
    ]
    for type_, value in changes:
        log.section = b"old"
        catalog.apply(type_, 1, 2000, value)
        assert log.section is None
    log.section = b"old"
    write(log, [1])
    assert log.section is None


def test_a_key_is_remembered_until_the_end_of_its_window(catalog: Catalog) -> None:
    batch = control.Batch(frames=1, body_bytes=1, first_seq=1, key="k", hash=b"h" * 16)
    window = catalog.topics["t"].config.idempotency_window_ms
    for ts in (1000, 1000 + window):
        catalog.remember(1, ts, batch, 3)
        assert catalog.usage.keys == 1
    keys = catalog.topics["t"].log.keys
    assert keys is not None
    found = keys.find(key_digest("k"), 1000, window)
    assert found is not None
    assert (found.first_seq, found.count, found.ts, found.hash) == (1, 3, 1000, b"h" * 16)
    catalog.remember(1, 1001 + window, batch, 3)
    assert catalog.usage.keys == 2, "the first one has expired"


@pytest.mark.parametrize(("key", "first_seq"), [(None, 1), ("k", None)])
def test_a_batch_without_key_or_records_is_not_remembered(
    catalog: Catalog, key: str | None, first_seq: int | None
) -> None:
    catalog.remember(1, 1000, control.Batch(frames=1, body_bytes=1, first_seq=first_seq, key=key), 1)
    catalog.remember(99, 1000, control.Batch(frames=1, body_bytes=1, first_seq=1, key="k"), 1)
    assert catalog.usage.keys == 0


def test_new_ids_avoid_shards_that_cannot_be_written() -> None:
    catalog = Catalog(4)
    ids = [catalog.claim_topic_id(lambda shard: shard != 2) for _ in range(20)]
    assert ids == sorted(set(ids))
    assert all(shard_of(each, 4) != 2 for each in ids)
    assert catalog.next_topic_id > ids[-1]


def test_the_shard_of_an_id_is_pinned() -> None:
    assert [shard_of(topic_id, 4) for topic_id in range(1, 9)] == [2, 3, 1, 0, 0, 3, 3, 2]
