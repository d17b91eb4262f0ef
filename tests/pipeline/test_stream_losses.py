"""What reads and streams say when a topic, or the broker, is not the one of their offsets, and of ephemeral topics."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pipeline.admission import Offsets
from pipeline.errors import BadOption, NotDurable, Recreated, SourceUnreadable
from pipeline.options import parse
from pipeline.source.batch import BatchReader, SplitPartition
from pipeline.source.stream import StreamReader
from tests.support.small_segments import SmallSegments

ALL = ReadAllAvailable()
LENIENT = {"failOnDataLoss": "false"}


def stream(broker: SmallSegments, **options: str) -> StreamReader:
    return StreamReader(parse({"url": broker.url, "startingOffsets": "earliest", **options}))


def read_through(reader: StreamReader) -> Offsets:
    """The offsets after everything was read from the start on."""
    return reader.latestOffset(reader.initialOffset(), ALL)


def planned(reader: StreamReader | BatchReader, *offsets: Offsets) -> list[tuple[str, int, int]]:
    """(topic, first seq, end) of the tasks."""
    parts = reader.partitions(*offsets) if isinstance(reader, StreamReader) else reader.partitions()
    splits = [each.split for each in parts if isinstance(each, SplitPartition)]
    return sorted((each.topic, each.start, each.end) for each in splits)


def nextly(reader: StreamReader, start: Offsets) -> list[tuple[str, int, int]]:
    return planned(reader, start, reader.latestOffset(start, ALL))


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    caplog.clear()
    return found


def without_cluster(offsets: Offsets) -> Any:
    """As earlier versions wrote them."""
    return {
        topic: {at: {"epoch": each["epoch"], "seq": each["seq"]} for at, each in partitions.items()}
        for topic, partitions in offsets.items()
    }


# -- another broker ----------------------------------------------------------------------------------------------------


def test_a_broker_that_was_installed_again_is_a_loss(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its topic has the same name and the same epoch, and more records than the stream has read."""
    with SmallSegments(tmp_path / "old") as old, SmallSegments(tmp_path / "new") as new:
        old.append("orders", 55)
        new.append("orders", 80)
        assert old.client.state("orders").epoch == new.client.state("orders").epoch
        start = read_through(stream(old, subscribe="orders"))
        assert start["orders"]["0"].get("cluster_id")
        strict = stream(new, subscribe="orders")
        with pytest.raises(Recreated, match=r"another cluster id: .* up to seq 55\. .* failOnDataLoss=false") as caught:
            nextly(strict, start)
        assert caught.value.gap.reason == "reinstalled"
        lenient = stream(new, subscribe="orders", **LENIENT)
        assert nextly(lenient, start) == [("orders", 1, 81)]
        assert ["another cluster id" in each for each in warnings(caplog)] == [True]
        # It continues with the offsets of the new broker.
        end = lenient.latestOffset(start, ALL)
        assert nextly(strict, end) == []

        # A batch of the old broker that is run again cannot be read any more.
        began = stream(old, subscribe="orders").initialOffset()
        with pytest.raises(Recreated, match="another cluster id"):
            planned(strict, began, start)
        assert planned(lenient, began, start) == []
        assert planned(strict, start, start) == []


def test_offsets_of_an_earlier_version_continue_and_get_the_cluster_id(broker: SmallSegments) -> None:
    broker.append("earlier", 7)
    reader = stream(broker, subscribe="earlier")
    whole = read_through(reader)
    old = without_cluster(whole)
    assert reader.latestOffset(old, ALL) == whole
    assert planned(reader, old, whole) == []
    assert planned(reader, without_cluster(reader.initialOffset()), old) == [("earlier", 1, 8)]


# -- deleted topics ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "which",
    [
        {"subscribePattern": r"gone[.]pattern[.].*"},
        {"subscribe": "gone.name.a,gone.name.b"},
        {"assign": '{"gone.each.a":[0],"gone.each.b":[0]}'},
    ],
)
def test_a_deleted_topic_is_a_loss_that_is_told_once(
    broker: SmallSegments, caplog: pytest.LogCaptureFixture, which: dict[str, str]
) -> None:
    prefix = "gone." + {"subscribePattern": "pattern", "subscribe": "name", "assign": "each"}[next(iter(which))]
    kept, gone = f"{prefix}.a", f"{prefix}.b"
    broker.append(kept, 3)
    broker.append(gone, 4)
    start = read_through(stream(broker, **which))
    broker.append(kept, 2, first=3)
    broker.append(gone, 5, first=4)
    broker.client.delete_topic(gone)
    with pytest.raises(Recreated, match=r"gone.*b: the topic was deleted; it was read up to seq 4\. Any later"):
        stream(broker, **which).latestOffset(start, ALL)
    lenient = stream(broker, **which, **LENIENT)
    end = lenient.latestOffset(start, ALL)
    assert ["the topic was deleted" in each for each in warnings(caplog)] == [True]
    assert list(end) == [kept]
    assert planned(lenient, start, end) == [(kept, 4, 6)]
    assert lenient.latestOffset(end, ALL) == end
    assert not any("was deleted" in each for each in warnings(caplog))
    # A new topic of that name is read from its first record on.
    broker.append(gone, 2)
    assert nextly(lenient, end) == [(gone, 1, 3)]


def test_a_topic_that_was_never_read_must_exist(broker: SmallSegments, caplog: pytest.LogCaptureFixture) -> None:
    broker.append("there", 3)
    start = read_through(stream(broker, subscribe="there"))
    with pytest.raises(SourceUnreadable, match="nowhere: the topic does not exist"):
        stream(broker, subscribe="there,nowhere").latestOffset(start, ALL)
    with pytest.raises(BadOption, match="assign names partition 1 of there"):
        stream(broker, assign='{"there":[0,1]}').latestOffset(start, ALL)
    lenient = stream(broker, subscribe="there,nowhere", **LENIENT)
    for _ in range(2):
        assert lenient.latestOffset(start, ALL) == start
    assert ["nowhere: the topic does not exist" in each for each in warnings(caplog)] == [True]


def test_a_topic_that_is_no_longer_asked_for_is_no_loss(broker: SmallSegments) -> None:
    for topic in ("left.a", "left.b"):
        broker.append(topic, 3)
    start = read_through(stream(broker, subscribe="left.a,left.b"))
    for which in ({"subscribe": "left.a"}, {"subscribePattern": "left.a"}, {"assign": '{"left.a":[0]}'}):
        assert stream(broker, **which).latestOffset(start, ALL) == start
    broker.client.delete_topic("left.b")
    assert stream(broker, subscribe="left.a").latestOffset(start, ALL) == start


def test_a_partition_that_is_gone_is_a_loss(broker: SmallSegments) -> None:
    broker.client.put_topic("shrunk", partitions=2)
    for partition in range(2):
        broker.append("shrunk", 3, partition=partition)
    start = read_through(stream(broker, subscribe="shrunk"))
    broker.client.delete_topic("shrunk")
    broker.append("shrunk", 2)
    with pytest.raises(Recreated, match=r"shrunk \(partition 1\): the topic was deleted and created again"):
        nextly(stream(broker, subscribe="shrunk"), start)
    lenient = stream(broker, subscribe="shrunk", **LENIENT)
    end = lenient.latestOffset(start, ALL)
    assert list(end["shrunk"]) == ["0"]
    assert planned(lenient, start, end) == [("shrunk", 1, 3)]


# -- ephemeral topics, and offsets that do not exist -------------------------------------------------------------------


def test_an_ephemeral_topic_is_refused_or_told(broker: SmallSegments, caplog: pytest.LogCaptureFixture) -> None:
    broker.client.put_topic("volatile", durability="ephemeral")
    given = {"url": broker.url, "topic": "volatile"}
    assert planned(BatchReader(parse(given))) == [], "nothing is missing in an empty topic"
    # A stream would never have a record of it.
    with pytest.raises(NotDurable, match="volatile: the topic is ephemeral"):
        stream(broker, subscribe="volatile").initialOffset()
    broker.client.append("volatile", [{"n": n} for n in range(5)])
    said = r"volatile: the topic is ephemeral, and 5 of its records are only in memory\. A read .*failOnDataLoss=false"
    with pytest.raises(NotDurable, match=said):
        BatchReader(parse(given)).partitions()
    with pytest.raises(NotDurable, match=said):
        stream(broker, subscribePattern="volat.*").initialOffset()
    with pytest.raises(NotDurable, match=said):
        stream(broker, subscribePattern="volat.*").latestOffset({}, ALL)
    assert not warnings(caplog)

    assert planned(BatchReader(parse({**given, **LENIENT}))) == []
    assert ["only in memory" in each for each in warnings(caplog)] == [True]
    lenient = stream(broker, subscribe="volatile", **LENIENT)
    assert nextly(lenient, read_through(lenient)) == []
    assert ["only in memory" in each for each in warnings(caplog)] == [True]


@pytest.mark.parametrize("kind", ["batch", "stream"])
def test_a_start_after_the_end_is_refused(broker: SmallSegments, kind: str) -> None:
    topic = f"short.{kind}"
    broker.append(topic, 3)

    def begin(offset: int) -> None:
        options = {"url": broker.url, "topic": topic, "startingOffsets": f'{{"{topic}":{{"0":{offset}}}}}'}
        if kind == "batch":
            BatchReader(parse(options)).partitions()
        else:
            StreamReader(parse(options)).initialOffset()

    begin(3)
    with pytest.raises(BadOption, match=f"{topic}: startingOffsets begins at seq 5, but the last durable seq is 3"):
        begin(4)


@pytest.mark.parametrize(
    "option", ["startingOffsets", "endingOffsets", "startingOffsetsByTimestamp", "endingOffsetsByTimestamp"]
)
@pytest.mark.parametrize("which", ["topic", "subscribePattern"])
def test_offsets_of_a_topic_that_is_not_read_are_refused(broker: SmallSegments, option: str, which: str) -> None:
    broker.append("orders", 3)
    given = {"url": broker.url, which: "orders"}
    if option == "startingOffsetsByTimestamp":
        given["startingOffsetsByTimestampStrategy"] = "latest"
    both = {**given, option: '{"orders":{"0":1},"ordesr":{"0":1}}'}
    with pytest.raises(BadOption, match=f"{option} names topic ordesr, which is not read. Did you mean orders?"):
        BatchReader(parse(both)).partitions()
    if option.startswith("starting"):
        with pytest.raises(BadOption, match=f"{option} names topic ordesr, which is not read. Did you mean orders?"):
            StreamReader(parse(both)).initialOffset()
    with pytest.raises(BadOption, match=f"{option} names topic zzz, which is not read."):
        BatchReader(parse({**given, option: '{"orders":{"0":1},"zzz":{"0":1}}'})).partitions()
    BatchReader(parse({**given, option: '{"orders":{"0":1}}'})).partitions()
