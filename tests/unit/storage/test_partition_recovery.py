"""What a replay finds of partitions, and which of it counts."""

from __future__ import annotations

import pytest

from storage import TopicConfig
from storage.errors import MetadataLost
from storage.format import control
from storage.records.ids import first_id
from storage.state.catalog import Catalog
from storage.state.partition_sets import creation, reconcile_partitions


def replayed(*logs: tuple[int, int, int, int]) -> Catalog:
    """A catalog with these logs of topic t: (topic_id, topic, partition, partitions)."""
    catalog = Catalog(2)
    catalog.usage.replaying = True
    for topic_id, root_id, partition, partitions in logs:
        config = TopicConfig(partitions=partitions).to_map()
        value = creation("t", root_id, partition, partitions, topic_id, config)
        catalog.apply(2, topic_id, 0, value)
    return catalog


def found(catalog: Catalog) -> dict[str, int]:
    return {name: topic.topic_id for name, topic in catalog.topics.items()}


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_the_order_of_shards_does_not_matter(order: tuple[int, ...]) -> None:
    logs = [(1, 1, 0, 3), (2, 1, 1, 3), (3, 1, 2, 3)]
    catalog = replayed(*(logs[index] for index in order))
    reconcile_partitions(catalog, salvaging=False)
    assert found(catalog) == {"t": 1, "t/1": 2, "t/2": 3}
    assert (catalog.superseded, catalog.partitioned) == ({}, {"t"})


def test_partitions_beyond_the_count_of_their_topic_are_deleted() -> None:
    catalog = replayed((1, 1, 0, 2), (2, 1, 1, 2), (3, 1, 2, 4), (4, 1, 3, 4), (6, 5, 1, 2))
    reconcile_partitions(catalog, salvaging=False)
    assert found(catalog) == {"t": 1, "t/1": 2}
    assert catalog.superseded == {3: "t", 4: "t", 6: "t"}
    assert set(catalog.by_id) == {1, 2}


@pytest.mark.parametrize("order", [(2, 5), (5, 2)])
def test_the_higher_id_wins_between_two_logs_of_a_partition(order: tuple[int, int]) -> None:
    catalog = replayed((1, 1, 0, 2), *((topic_id, 1, 1, 2) for topic_id in order))
    reconcile_partitions(catalog, salvaging=False)
    assert (found(catalog), catalog.superseded) == ({"t": 1, "t/1": 5}, {2: "t"})


def test_a_deleted_log_of_a_partition_does_not_win_by_its_higher_id() -> None:
    catalog = replayed((1, 1, 0, 2), (2, 1, 1, 2), (5, 1, 1, 2))
    catalog.apply(3, 5, 0, control.TopicDelete(name="t"))
    reconcile_partitions(catalog, salvaging=False)
    assert found(catalog) == {"t": 1, "t/1": 2}


def test_a_recreated_topic_keeps_its_own_partitions() -> None:
    catalog = replayed((1, 1, 0, 2), (2, 1, 1, 2), (8, 7, 1, 2), (7, 7, 0, 2))
    reconcile_partitions(catalog, salvaging=False)
    assert (found(catalog), catalog.superseded) == ({"t": 7, "t/1": 8}, {1: "t", 2: "t"})


def test_a_missing_partition_is_damage() -> None:
    with pytest.raises(MetadataLost, match="Partition 2 of topic 't'"):
        reconcile_partitions(replayed((1, 1, 0, 3), (2, 1, 1, 3)), salvaging=False)


def test_salvage_recreates_a_missing_partition_and_announces_it() -> None:
    catalog = replayed((1, 1, 0, 3), (2, 1, 1, 3))
    reconcile_partitions(catalog, salvaging=True)
    assert found(catalog) == {"t": 1, "t/1": 2, "t/2": 3}
    [(topic_id, value)] = catalog.unannounced
    assert isinstance(value, control.TopicCreate)
    assert (topic_id, value.topic, value.partition, value.partitions, value.epoch) == (3, 1, 2, 3, 3)


def test_a_partition_whose_topic_is_in_another_cell_is_left_alone() -> None:
    catalog = Catalog(1, cell=0)
    catalog.usage.replaying = True
    root_id = first_id(3)
    catalog.apply(2, 1, 0, creation("t", root_id, 1, 2, 1, TopicConfig(partitions=2).to_map()))
    catalog.apply(2, 2, 0, creation("u", 99, 1, 2, 2, TopicConfig(partitions=2).to_map()))
    reconcile_partitions(catalog, salvaging=False)
    assert (set(catalog.by_id), catalog.superseded) == ({1}, {2: "u"})


def test_ids_of_a_cell_go_on_above_its_own_and_whatever_others_made() -> None:
    catalog = Catalog(1, cell=2)
    assert catalog.claim_id() == first_id(2)
    catalog.see_id(first_id(3) + 7)
    catalog.see_id(first_id(2) + 7)
    assert catalog.claim_id() == first_id(2) + 8
