"""Reading without a broker: a stopped data directory, and a cold tier. Both give the same records as the broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.batches import Shape
from pipeline.errors import DataLoss, SegmentDamaged, SourceUnreadable
from pipeline.options import ReadOptions
from pipeline.origins import FullOrigin, open_origin
from pipeline.planning import batch_ranges, splits_for
from pipeline.split_reader import SplitReader, fail_on_gap
from tests.support.small_segments import SmallSegments

COUNT = 1780


def read(origin: FullOrigin, topic: str, **options: Any) -> list[dict[str, Any]]:
    """Every record of a batch read."""
    wanted = ReadOptions(url="any", topics=(topic,), **options)
    splits = splits_for(origin, batch_ranges(origin, topic, wanted), wanted, fail_on_gap)
    readers = [SplitReader(origin, split, Shape(), fail_on_gap) for split in splits]
    return [row for reader in readers for batch in reader.batches() for row in batch.to_pylist()]


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[SmallSegments]:
    """A broker with a cold tier, with records in cold, hot and unsealed segments and in the log, some deleted."""
    cold = tmp_path / "cold"
    with SmallSegments(tmp_path / "broker", cold_dir=cold, hot_retain_segments=1) as broker:
        broker.append("t", COUNT)
        broker.await_sealed("t", 1501)
        broker.client.delete_records("t", match="third")
        broker.client.delete_records("t", before_seq=5)
        broker.append("t", 7, first=COUNT)
        broker.client.append("t", [b'{"$base64":"AAH/"}', b'"last"'])
        broker.until(lambda: any(cold.glob("*/topics/*/topic.json")))
        broker.until(lambda: broker.is_durable("t"))
        yield broker


def folders(rig: SmallSegments) -> tuple[str, str]:
    return str(rig.data_dir), str(rig.data_dir.parents[1] / "cold")


def test_a_killed_brokers_directory_reads_as_the_broker_did(rig: SmallSegments) -> None:
    with open_origin(url=rig.url) as origin:
        expected = read(origin, "t")
        part = read(origin, "t", starting={"t": {0: 700}}, ending={"t": {0: 1600}})
    assert len(expected) > COUNT // 2
    data, cold = folders(rig)
    with pytest.raises(SourceUnreadable, match=r"A broker has .* open"), open_origin(path=data) as origin:
        pass
    rig.kill()
    before = sorted((path, path.stat().st_mtime_ns) for path in Path(data).rglob("*"))
    with open_origin(path=data, cold_path=cold) as origin:
        assert origin.topics() == ["t"]
        assert read(origin, "t") == expected
        assert b'{"$base64":"AAH/"}' in [row["value"] for row in expected], "it looks like raw bytes, and is none"
        assert read(origin, "t", starting={"t": {0: 700}}, ending={"t": {0: 1600}}) == part
    assert sorted((path, path.stat().st_mtime_ns) for path in Path(data).rglob("*")) == before
    rig.start_again()
    assert rig.client.get_record("t", 8).seq == 8


def test_a_cold_tier_reads_as_the_broker_did_up_to_its_end(rig: SmallSegments) -> None:
    with open_origin(url=rig.url) as origin:
        expected = read(origin, "t")
    _, cold = folders(rig)

    def agrees() -> bool:
        with open_origin(path=cold) as origin:
            assert origin.topics() == ["t"]
            end = origin.view("t").end
            assert end > 500
            # topic.json has the floor of deletions; it is written again when the next segment moves.
            found = [row for row in read(origin, "t") if row["seq"] >= 5]
            return found == [row for row in expected if row["seq"] < end]

    # Deletions reach the tier a little later.
    rig.until(agrees)


def test_damaged_frame_is_reported_and_not_returned(rig: SmallSegments) -> None:
    data, cold = folders(rig)
    # Stopped, not killed: after a kill the recovery would find the damage before any read.
    rig.stop()
    hot = sorted(Path(data, "topics").rglob("*.data"))[-1]
    for path in (hot, sorted(Path(cold).rglob("*.data"))[0]):
        content = bytearray(path.read_bytes())
        at = content.index(b'{"data":') + 12
        content[at] ^= 1
        path.write_bytes(content)
    with open_origin(path=data, cold_path=cold) as origin, pytest.raises(SegmentDamaged) as caught:
        read(origin, "t", starting={"t": {0: 1000}})
    assert (caught.value.file, caught.value.offset) == (str(hot), 0)
    assert "checksum mismatch" in str(caught.value)
    with open_origin(path=cold) as origin, pytest.raises(SegmentDamaged, match=r"\.data at offset 0 .*checksum"):
        read(origin, "t")


def test_evicted_records_are_a_gap_without_a_broker_too(tmp_path: Path) -> None:
    with SmallSegments(tmp_path / "broker") as broker:
        broker.client.put_topic("capped", cap_records=50)
        broker.append("capped", 120)
        broker.stop()
        with open_origin(path=str(broker.data_dir)) as origin:
            assert [row["seq"] for row in read(origin, "capped")] == list(range(71, 121))
            with pytest.raises(DataLoss, match=r"seqs 1 to 70 are lost \(reason: cap\)"):
                read(origin, "capped", starting={"capped": {0: 0}})


def test_directory_opened_since_the_plan_is_not_read(tmp_path: Path) -> None:
    with SmallSegments(tmp_path / "broker") as broker:
        broker.append("t", 5)
        broker.kill()
        wanted = ReadOptions(url="any", topics=("t",))
        with open_origin(path=str(broker.data_dir)) as origin:
            splits = splits_for(origin, batch_ranges(origin, "t", wanted), wanted, fail_on_gap)
        broker.start_again()
        broker.kill()
        with open_origin(path=str(broker.data_dir)) as origin, pytest.raises(SourceUnreadable, match="read again"):
            list(SplitReader(origin, splits[0], Shape(), fail_on_gap).batches())
