"""Topics of several partitions: all partitions are read, exported, verified and streamed, also after an increase."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from pipeline.batches import Shape
from pipeline.errors import BadOption, DataLoss, PipelineError, Recreated
from pipeline.export import verification
from pipeline.export.exporter import Limits
from pipeline.export.maintenance import compact, status
from pipeline.export.parts import PartSettings
from pipeline.export.verification import Verification
from pipeline.options import parse
from pipeline.origins import FullOrigin, open_origin
from pipeline.planning import batch_ranges, splits_for, wanted
from pipeline.source.batch import SplitPartition
from pipeline.source.stream import StreamReader
from pipeline.split_reader import SplitReader, fail_on_gap
from pipeline.splits import splits_of
from tests.pipeline.exports import Exports, command
from tests.support.small_segments import SmallSegments

COUNTS = (700, 30, 1100)


def spread(broker: SmallSegments, topic: str, *counts: int) -> list[tuple[int, int]]:
    """A topic with this many records in each partition: (partition, seq) of all records."""
    broker.client.put_topic(topic, partitions=len(counts))
    for partition, count in enumerate(counts):
        if count:
            broker.append(topic, count, partition=partition)
    return pairs(*counts)


def pairs(*counts: int) -> list[tuple[int, int]]:
    return [(partition, seq) for partition, count in enumerate(counts) for seq in range(1, count + 1)]


def batch(origin: FullOrigin, topic: str, **options: Any) -> list[tuple[int, int]]:
    """(partition, seq) of the records that a batch read finds."""
    given = parse({"url": "http://any", **({} if "assign" in options else {"topic": topic}), **options})
    ranges = [each for name in wanted(origin, given) for each in batch_ranges(origin, name, given)]
    return tasks(origin, splits_for(origin, ranges, given, fail_on_gap))


def tasks(origin: FullOrigin, splits: list[Any]) -> list[tuple[int, int]]:
    readers = [SplitReader(origin, split, Shape(), fail_on_gap) for split in splits]
    rows = [row for reader in readers for batch in reader.batches() for row in batch.to_pylist()]
    assert all(row["offset"] == row["seq"] - 1 for row in rows)
    return sorted((row["partition"], row["seq"]) for row in rows)


def exported(exports: Exports, topic: str) -> list[tuple[int, int]]:
    return sorted((row["partition"], row["seq"]) for row in exports.rows(topic))


def problems(exports: Exports, topic: str) -> list[str]:
    return Verification(exports.store, topic).run(exports.origin).problems


# -- reading -----------------------------------------------------------------------------------------------------------


def test_broker_directory_and_cold_tier_give_the_same_partitions(tmp_path: Path) -> None:
    cold = tmp_path / "cold"
    with SmallSegments(tmp_path / "broker", cold_dir=cold, hot_retain_segments=0) as broker:
        everything = spread(broker, "t", *COUNTS)
        broker.await_sealed("t", 501)
        broker.await_sealed("t", 1001, partition=2)
        broker.until(lambda: len(list(cold.glob("*/topics/*/topic.json"))) == 2)
        with open_origin(url=broker.url) as origin:
            assert batch(origin, "t") == everything
            assert [each.live for each in origin.held("t")] == list(COUNTS)
        broker.client.delete_records("t", before_seq=4, partition=2)
        broker.stop()
        left = [each for each in everything if each[0] != 2 or each[1] >= 4]
        with open_origin(path=str(broker.data_dir), cold_path=str(cold)) as origin:
            assert origin.topics() == ["t"], "an address of a partition is no topic"
            assert batch(origin, "t") == left
            assert [each.live for each in origin.held("t")] == [700, 30, 1097]
        with open_origin(path=str(cold)) as origin:
            found = batch(origin, "t")
            # No segment of partition 1 has moved yet.
            assert {partition for partition, _ in found} == {0, 2}
            assert origin.partitions("t") == 3
            ends = [origin.view("t", partition).end for partition in range(3)]
            there = [each for each in left if each[1] < ends[each[0]]]
            # The tier gets the deletion with the next segment that moves there.
            assert [each for each in found if each in left] == there
            assert [each.live for each in origin.held("t")] == [
                len([p for p, _ in found if p == at]) for at in range(3)
            ]


def test_assigned_partitions_and_offsets_as_in_kafka(broker: SmallSegments, exports: Exports) -> None:
    everything = spread(broker, "assigned", 40, 30, 20)
    origin = exports.origin
    assert batch(origin, "assigned", assign='{"assigned":[2,0]}') == [each for each in everything if each[0] != 1]
    found = batch(
        origin,
        "assigned",
        startingOffsets='{"assigned":{"0":23,"1":-2,"2":5}}',
        endingOffsets='{"assigned":{"0":-1,"1":10,"2":6}}',
    )
    assert found == [(0, seq) for seq in range(24, 41)] + [(1, seq) for seq in range(1, 11)] + [(2, 6)]
    for options, what in (
        ({"assign": '{"assigned":[3]}'}, "partition 3 of assigned, which has 3"),
        ({"startingOffsets": '{"assigned":{"0":1}}'}, "startingOffsets does not name partition 1, 2 of topic assigned"),
        ({"endingOffsets": '{"assigned":{"0":1,"1":1,"2":1,"3":1}}'}, "endingOffsets names partition 3"),
        ({"assign": '{"assigned":[1]}', "startingOffsets": '{"assigned":{"0":1,"1":1}}'}, "names partition 0"),
    ):
        with pytest.raises(BadOption, match=what):
            batch(origin, "assigned", **options)


# -- exports -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_every_record_of_every_partition_once(broker: SmallSegments, exports: Exports, kind: str) -> None:
    topic, settings = f"every-{kind}", PartSettings(kind=kind)
    everything = spread(broker, topic, *COUNTS)
    outcome = exports.export(topic, parts=settings)
    assert (outcome.records, outcome.end, outcome.partitions) == (1830, 1831, 3)
    assert exports.export(topic, parts=settings).manifests == []
    broker.append(topic, 5, first=30, partition=1)
    shown = status(exports.store, topic, exports.origin)
    assert (shown.partitions, shown.lag, shown.exported, shown.state) == (3, 5, 1830, "behind")
    exports.export(topic, parts=settings)
    everything = pairs(700, 35, 1100)
    assert exported(exports, topic) == everything
    found = Verification(exports.store, topic).run(exports.origin)
    assert (found.compared, found.problems) == (1835, [])
    assert status(exports.store, topic, exports.origin).state == "up to date"
    newest = exports.chain(topic).newest()
    assert newest is not None
    assert newest.end == {"0": 701, "1": 36, "2": 1101}
    if kind == "delta":
        table = DeltaTable(exports.path(topic))
        rows = table.to_pyarrow_table(columns=["partition", "seq"]).to_pylist()
        assert sorted((row["partition"], row["seq"]) for row in rows) == everything
        assert table.transaction_version(f"{newest.cluster_id}/{topic}/2") == 1101
    else:
        assert compact(exports.store, topic, version="test").after == 3
        assert exported(exports, topic) == exports.seen(topic) == everything
        assert problems(exports, topic) == []


def test_a_limit_is_shared_by_the_partitions(broker: SmallSegments, exports: Exports) -> None:
    everything = spread(broker, "limited", 40, 10, 0)
    limits = Limits(max_records=10)
    assert exports.export("limited", limits=limits).records == 10
    assert exported(exports, "limited") == [*pairs(8, 2)]
    assert [exports.export("limited", limits=limits).records for _ in range(5)] == [10, 10, 10, 10, 0]
    assert exported(exports, "limited") == everything


def test_chain_of_an_older_program_continues_with_all_partitions(broker: SmallSegments, exports: Exports) -> None:
    broker.append("older", 20)
    for _ in range(2):
        exports.export("older", limits=Limits(max_records=10))
    for number in (1, 2):
        path = exports.path(f"_topics/older/{number:020d}.json")
        manifest = msgspec.json.decode(path.read_bytes())
        del manifest["logs"]
        path.write_bytes(msgspec.json.encode(manifest))
    spread(broker, "older", 0, 30, 0)
    broker.append("older", 5, first=20, partition=0)
    [missing] = problems(exports, "older")
    assert "Partition 1 is missing: the broker has 30 records in it" in missing
    assert "PROBLEM: older: Partition 1" in command(
        "verify", "--url", broker.url, "--to", exports.job.to, "--topics", "older", status=1
    )
    shown = status(exports.store, "older", exports.origin)
    assert (shown.partitions, shown.lag, shown.state) == (3, 35, "behind")
    assert exports.export("older").records == 35
    assert exported(exports, "older") == pairs(25, 30, 0)
    assert problems(exports, "older") == []
    # The older program runs once more and records partition 0 only. The other partitions are not exported again.
    path = exports.path("_topics/older/00000000000000000003.json")
    newest = msgspec.json.decode(path.read_bytes())
    older = {**newest, "number": 4, "prev": 3, "end": {"0": 26}, "added": [], "removed": []}
    del older["logs"]
    exports.path("_topics/older/00000000000000000004.json").write_bytes(msgspec.json.encode(older))
    broker.append("older", 1, first=25, partition=0)
    broker.append("older", 2, first=30, partition=1)
    exports.export("older")
    assert exported(exports, "older") == pairs(26, 32)


def test_added_partitions_are_exported_from_their_first_seq(broker: SmallSegments, exports: Exports) -> None:
    broker.append("grown", 10)
    exports.export("grown")
    spread(broker, "grown", 0, 3)
    assert exports.export("grown", limits=Limits(since_ms=4_000_000_000_000)).records == 3
    broker.client.put_topic("grown", partitions=4, cap_records=10)
    broker.append("grown", 25, partition=3)
    with pytest.raises(DataLoss, match=r"grown \(partition 3\): seqs 1 to 15 are lost \(reason: cap\)"):
        exports.export("grown")
    assert status(exports.store, "grown", exports.origin).state == "gap"
    outcome = exports.export("grown", fail_on_loss=False)
    assert [(gap.partition, gap.first, gap.last) for gap in outcome.gaps] == [(3, 1, 15)]
    assert exported(exports, "grown") == [*pairs(10, 3), *((3, seq) for seq in range(16, 26))]


def test_recreated_topic_with_fewer_partitions_is_reported_once(broker: SmallSegments, exports: Exports) -> None:
    spread(broker, "again", 5, 6, 7)
    exports.export("again")
    broker.client.delete_topic("again")
    spread(broker, "again", 2, 3)
    with pytest.raises(Recreated):
        exports.export("again")
    assert status(exports.store, "again", exports.origin).state == "recreated"
    outcome = exports.export("again", fail_on_loss=False)
    assert [(gap.partition, gap.reason) for gap in outcome.gaps] == [(at, "recreated") for at in range(3)]
    assert exports.export("again").manifests == []
    spread(broker, "again", 0, 0, 4)
    assert exports.export("again").records == 4
    assert exported(exports, "again") == sorted([*pairs(5, 6, 7), *pairs(2, 3, 4)])
    assert problems(exports, "again") == []


def test_fewer_partitions_of_the_same_topic_are_an_error(broker: SmallSegments, exports: Exports) -> None:
    spread(broker, "fewer", 5, 6)
    exports.export("fewer")
    path = exports.path("_topics/fewer/00000000000000000001.json")
    manifest = msgspec.json.decode(path.read_bytes())
    for name in ("end", "logs"):
        manifest[name]["2"] = manifest[name]["1"]
    path.write_bytes(msgspec.json.encode(manifest))
    with pytest.raises(PipelineError, match="3 partitions are exported, but the topic has 2"):
        exports.export("fewer")


def test_verification_compares_the_brokers_counts(
    broker: SmallSegments, exports: Exports, monkeypatch: pytest.MonkeyPatch
) -> None:
    spread(broker, "counted", 20, 1100)
    exports.export("counted")
    monkeypatch.setattr(verification, "GRACE_S", 0.0)
    assert problems(exports, "counted") == []
    broker.append("counted", 7, first=1100, partition=1)
    assert problems(exports, "counted") == [], "what is not exported yet is no problem"

    def blind(*arguments: Any) -> Any:
        # A reader that does not see the last task's work, neither in an export nor in a verification.
        return list(splits_of(*arguments, target_bytes=1 << 14))[:-1]

    monkeypatch.setattr(verification, "splits_of", blind)
    told = problems(exports, "counted")
    assert any(each.startswith("The broker counts 1,107 records of partition 1 up to seq 1107, but") for each in told)


# -- streams -----------------------------------------------------------------------------------------------------------


def stream(broker: SmallSegments, topic: str, **options: str) -> StreamReader:
    given = {"url": broker.url, "startingOffsets": "earliest", "subscribe": topic, **options}
    if "assign" in options:
        del given["subscribe"]
    return StreamReader(parse(given))


def read_stream(exports: Exports, reader: StreamReader, start: Any, end: Any) -> list[tuple[int, int]]:
    parts = reader.partitions(start, end)
    return tasks(exports.origin, [each.split for each in parts if isinstance(each, SplitPartition)])


def seqs_of(offsets: Any, topic: str) -> dict[str, int]:
    return {at: each["seq"] for at, each in offsets[topic].items()}


def test_stream_reads_all_partitions_and_added_ones(broker: SmallSegments, exports: Exports) -> None:
    spread(broker, "streamed", 10, 20)
    reader = stream(broker, "streamed")
    start = reader.initialOffset()
    assert seqs_of(start, "streamed") == {"0": 1, "1": 1}
    end = reader.latestOffset(start, ReadAllAvailable())
    assert read_stream(exports, reader, start, end) == pairs(10, 20)
    spread(broker, "streamed", 0, 0, 30)
    broker.append("streamed", 2, first=10, partition=0)
    later = reader.latestOffset(end, ReadAllAvailable())
    assert seqs_of(later, "streamed") == {"0": 13, "1": 21, "2": 31}
    assert read_stream(exports, reader, end, later) == [(0, 11), (0, 12), *((2, seq) for seq in range(1, 31))]
    # An old checkpoint, from when only partition 0 was read.
    old = {"streamed": {"0": end["streamed"]["0"]}}
    assert read_stream(exports, reader, old, reader.latestOffset(old, ReadAllAvailable())) == [
        *((0, seq) for seq in (11, 12)),
        *((1, seq) for seq in range(1, 21)),
        *((2, seq) for seq in range(1, 31)),
    ]
    limited = reader.latestOffset(start, ReadMaxRows(31))
    assert seqs_of(limited, "streamed") == {"0": 7, "1": 11, "2": 16}


def test_stream_from_latest_reads_added_partitions_completely(broker: SmallSegments, exports: Exports) -> None:
    spread(broker, "late", 10, 20)
    reader = stream(broker, "late", startingOffsets="latest")
    start = reader.initialOffset()
    assert seqs_of(start, "late") == {"0": 11, "1": 21}
    broker.client.put_topic("late", partitions=3, cap_records=5)
    broker.append("late", 8, partition=2)
    end = reader.latestOffset(start, ReadAllAvailable())
    with pytest.raises(DataLoss, match=r"late \(partition 2\): seqs 1 to 3 are lost"):
        reader.partitions(start, end)
    lenient = stream(broker, "late", startingOffsets="latest", failOnDataLoss="false")
    assert read_stream(exports, lenient, start, end) == [(2, seq) for seq in range(4, 9)]
    assert seqs_of(stream(broker, "late", assign='{"late":[1]}').initialOffset(), "late") == {"1": 16}


def test_repeated_batch_has_the_same_tasks_after_the_log_has_changed(broker: SmallSegments, exports: Exports) -> None:
    def ranges(reader: StreamReader) -> list[tuple[int, int, int]]:
        splits = [each.split for each in reader.partitions(start, end) if isinstance(each, SplitPartition)]
        return [(split.partition, split.start, split.end) for split in splits]

    spread(broker, "same", 600, 5)
    reader = stream(broker, "same", minPartitions="4")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    before = ranges(reader)
    assert before == [(0, 1, 153), (0, 153, 305), (0, 305, 457), (0, 457, 601), (1, 1, 6)]
    broker.append("same", 600, first=600, partition=0)
    broker.await_sealed("same", 501)
    broker.client.delete_records("same", before_seq=200, partition=0)
    assert ranges(reader) == before
    assert read_stream(exports, reader, start, end) == [*((0, seq) for seq in range(200, 601)), *pairs(0, 5)]


def test_plain_reader_finds_all_partitions(broker: SmallSegments, exports: Exports) -> None:
    everything = spread(broker, "plain", 30, 40)
    exports.export("plain")
    table = pq.read_table(exports.path("plain"))
    found = zip(table.column("partition").to_pylist(), table.column("seq").to_pylist(), strict=True)
    assert sorted(found) == everything
