"""Metrics of consumers, with a bounded number of labels."""

from __future__ import annotations

import pytest

from storage import TopicConfig
from storage.consumers import metrics
from tests.unit.storage.consumers.consumed import consumed, every, take
from tests.unit.storage.machine import Machine, records


def values(engine: object, name: str) -> dict[tuple[tuple[str, str], ...], float]:
    [family] = [each for each in engine.metrics() if each.name == name]  # type: ignore[attr-defined]
    return {sample.labels: sample.value for sample in family.samples}


async def test_each_consumer_has_lag_and_unread_metrics(machine: Machine) -> None:
    engine = await consumed(machine, 9, every(4))
    await engine.delete_records("a", 3)
    await take(engine, 3)
    labels = (("topic", "a"), ("partition", "0"), ("consumer", "c"))
    assert values(engine, "topics_consumers") == {(): 1}
    assert values(engine, "topics_consumer_lag") == {labels: 4}
    assert values(engine, "topics_consumer_unread") == {labels: 4}
    assert values(engine, "topics_consumer_unpersisted") == {labels: 3}
    await take(engine, 3)
    assert values(engine, "topics_consumer_cursors_persisted") == {(): 1}
    assert values(engine, "topics_consumer_read_waits") == {(): 1}


async def test_each_partition_has_its_own_lag_metric(machine: Machine) -> None:
    engine = await consumed(machine)
    await engine.put_topic("p", TopicConfig(partitions=3))
    for partition, count in (("p", 1), ("p/2", 4)):
        await engine.append(partition, records(count))
        await engine.consumers.put(partition, "g", start=0)
    lags = values(engine, "topics_consumer_lag")
    assert {dict(labels)["partition"]: lag for labels, lag in lags.items() if ("topic", "p") in labels} == {
        "0": 1,
        "2": 4,
    }


async def test_the_number_of_series_is_limited(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "MAX_TOPIC_SERIES", 2)
    engine = await consumed(machine)
    for name in "def":
        await engine.consumers.put("a", name)
    assert values(engine, "topics_consumers") == {(): 4}
    assert len(values(engine, "topics_consumer_lag")) == 2
