"""Reading what no broker serves: sets of cells, backups, and clusters in their buckets. Each gives the same records as
a broker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pipeline.batches import Shape
from pipeline.errors import SegmentDamaged, SourceUnreadable
from pipeline.options import ReadOptions
from pipeline.origins import FullOrigin, open_origin
from pipeline.planning import batch_ranges, splits_for
from pipeline.split_reader import SplitReader
from pipeline.splits import Split
from storage import Durability, NewRecord, ReadQuery, TopicConfig
from storage.bucket import IN_BUCKET, Candidate, parse_location
from storage.bucket.driver import open_bucket
from storage.cells.founding import make_cluster
from storage.cells.owner import CellOwner
from storage.options import Options
from storage.records import TagMatch
from tests.pipeline.exports import command
from tests.pipeline.test_local import read
from tests.support.small_segments import SmallSegments
from tests.unit.storage.cold.servers import BUCKET, credentials, s3_server

TOPIC = "t"


def everything(origin: FullOrigin) -> list[dict[str, Any]]:
    return sorted(read(origin, TOPIC), key=lambda row: (row["partition"], row["seq"]))


def back_up(broker: SmallSegments) -> None:
    broker.ok("POST", "/v0/admin/backup", {})
    broker.until(lambda: broker.ok("GET", "/v0/admin/backup")["state"] != "running")
    assert broker.ok("GET", "/v0/admin/backup")["state"] == "done"


def read_all(path: str) -> list[dict[str, Any]]:
    with open_origin(path=path) as origin:
        assert origin.topics() == [TOPIC]
        return everything(origin)


def planned(origin: FullOrigin) -> list[Split]:
    wanted = ReadOptions(path=URL, topics=(TOPIC,), fail_on_loss=False)
    return list(splits_for(origin, batch_ranges(origin, TOPIC, wanted), wanted, lambda _: None))


def rows_of(origin: FullOrigin, splits: list[Split]) -> list[dict[str, Any]]:
    readers = [SplitReader(origin, split, Shape(), lambda _: None) for split in splits]
    return [row for reader in readers for batch in reader.batches() for row in batch.to_pylist()]


def test_newest_backup_reads_as_the_broker_did_when_it_was_taken(tmp_path: Path) -> None:
    backups = tmp_path / "backups"
    with SmallSegments(tmp_path / "broker", backup_dir=backups) as broker:
        broker.append(TOPIC, 1600)
        broker.await_sealed(TOPIC, 1001)
        back_up(broker)
        broker.client.delete_records(TOPIC, match="third")
        broker.client.delete_records(TOPIC, before_seq=5)
        broker.append(TOPIC, 7, first=1600)
        with open_origin(url=broker.url) as origin:
            expected = everything(origin)
        back_up(broker)
        broker.append(TOPIC, 7, first=1607)
        broker.client.delete_records(TOPIC, before_seq=50)
        before = sorted((path, path.stat().st_mtime_ns) for path in backups.rglob("*"))
        with open_origin(path=str(backups)) as origin:
            assert origin.topics() == [TOPIC]
            assert everything(origin) == expected
            [counts] = origin.held(TOPIC)
            assert counts.live == len(expected)
            with open_origin(path=str(backups)) as second:
                assert everything(second) == expected
        assert sorted((path, path.stat().st_mtime_ns) for path in backups.rglob("*")) == before


def test_damaged_segment_of_a_backup_is_reported_and_not_returned(tmp_path: Path) -> None:
    backups = tmp_path / "backups"
    with SmallSegments(tmp_path / "broker", backup_dir=backups) as broker:
        broker.append(TOPIC, 600)
        broker.await_sealed(TOPIC, 501)
        back_up(broker)
    [data] = backups.glob("segments/*/*.data.*")
    content = bytearray(data.read_bytes())
    content[content.index(b'{"n":77}') + 5] ^= 1
    data.write_bytes(content)
    with open_origin(path=str(backups)) as origin, pytest.raises(SegmentDamaged, match="seg-"):
        everything(origin)


def test_set_of_cells_and_its_backup_read_as_the_broker_did(tmp_path: Path) -> None:
    backups = tmp_path / "backups"
    with SmallSegments(tmp_path / "broker", cells=2, backup_dir=backups) as broker:
        broker.client.put_topic(TOPIC, partitions=3, durability="fsync")
        for partition in range(3):
            broker.append(TOPIC, 600 + partition, partition=partition)
        broker.client.delete_records(TOPIC, match="third")
        back_up(broker)
        with open_origin(url=broker.url) as origin:
            expected = everything(origin)
        with pytest.raises(SourceUnreadable, match=r"A broker has .* open"), open_origin(path=str(broker.data_dir)):
            pass
        broker.kill()
        for path in (broker.data_dir, backups):
            assert read_all(str(path)) == expected
        export = ("export", "--engine", "arrow", "--topics", TOPIC, "--format", "parquet", "--to", str(tmp_path / "to"))
        command(*export, "--path", str(broker.data_dir))
        command(*export, "--path", str(broker.data_dir))  # nothing is new, and no partition is another one
        assert f"{len(expected):,} records" in command("verify", "--to", str(tmp_path / "to"), "--topics", TOPIC)


def test_cold_tier_of_a_set_has_the_partitions_of_all_cells(tmp_path: Path) -> None:
    cold = tmp_path / "cold"
    with SmallSegments(tmp_path / "broker", cells=2, cold_dir=cold, hot_retain_segments=1) as broker:
        broker.client.put_topic(TOPIC, partitions=2, durability="fsync")
        for partition in range(2):
            broker.append(TOPIC, 1100, partition=partition)
        broker.until(lambda: len(list(cold.glob("*/topics/*/topic.json"))) == 2)
        with open_origin(url=broker.url) as origin:
            expected = everything(origin)
        rows = read_all(str(cold))
    assert {row["partition"] for row in rows} == {0, 1}
    known = {(row["partition"], row["seq"]): row for row in expected}
    assert all(known[row["partition"], row["seq"]] == row for row in rows)


async def test_cluster_reads_from_its_bucket_while_its_owner_writes(tmp_path: Path, cluster: list[CellOwner]) -> None:
    owner = cluster[0]
    await owner.engine.put_topic(TOPIC, TopicConfig(durability=Durability.FSYNC))
    for number in range(70):
        await owner.engine.append(TOPIC, [NewRecord(msgspec.Raw(json.dumps({"n": number}).encode()), tag=str(number))])
    await owner.engine.segment_worker.flush_all()
    await owner.put_base()
    segments = owner.engine.topic(TOPIC).log.held.manifest.segments
    if owner.engine.moves_segments:
        while not all(each.tier == "cold" for each in segments if each.sealed):
            await asyncio.sleep(0.02)
        await owner.put_base()
    await owner.engine.delete_records(TOPIC, match=TagMatch(b"7"))
    await owner.engine.delete_records(TOPIC, before_seq=3)
    await owner.engine.append(TOPIC, [NewRecord(msgspec.Raw(b"71"))])
    await owner.engine.segment_worker.flush_all()  # into files that no base has
    await owner.engine.append(TOPIC, [NewRecord(msgspec.Raw(b"72"))])
    found = await owner.engine.read(TOPIC, ReadQuery(limit=1000))
    rows = await asyncio.to_thread(read_all, URL)
    assert [(row["seq"], row["value"]) for row in rows] == [(each.seq, bytes(each.data)) for each in found.records]
    assert len(rows) == 69
    await owner.engine.append(TOPIC, [NewRecord(msgspec.Raw(b"73"))])  # it still owns the cell


async def test_segments_of_a_cluster_that_were_deleted_since_the_plan_are_planned_again(
    cluster: list[CellOwner],
) -> None:
    owner = cluster[0]
    await owner.engine.put_topic(TOPIC, TopicConfig(durability=Durability.FSYNC))
    for number in range(40):
        await owner.engine.append(TOPIC, [NewRecord(msgspec.Raw(b"%d" % number))])
    await owner.engine.segment_worker.flush_all()
    await owner.put_base()
    with open_origin(path=URL) as origin:
        splits = await asyncio.to_thread(planned, origin)
        await owner.engine.delete_records(TOPIC, before_seq=25)
        for _ in range(3):
            await owner.engine.append(TOPIC, [NewRecord(msgspec.Raw(b"0"))])
            await owner.engine.segment_worker.flush_all()
            await owner.put_base()
            await owner.trim()
        rows = await asyncio.to_thread(rows_of, origin, splits)
    assert {row["seq"] for row in rows} >= set(range(25, 41))


URL = f"s3://{BUCKET}/clusters/read"


@pytest.fixture(params=["", IN_BUCKET], ids=["hot", "cold"])
async def cluster(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[list[CellOwner]]:
    """A cluster of two cells with their owners. Sealed segments have files at the owner, or are in the bucket alone."""
    with s3_server() as endpoint:
        credentials(monkeypatch, endpoint)
        make_cluster(parse_location(URL), 2)
        owners: list[CellOwner] = []
        for cell in range(2):
            options = Options(
                segment_max_events=20,
                checkpoint_interval_ms=20,
                cold_dir=request.param,
                hot_retain_segments=0,
                cell=cell,
                cells=2,
            )
            owner = CellOwner(
                open_bucket("s3", BUCKET, "clusters/read"),
                f"cell-{cell:02d}",
                str(tmp_path / f"cell-{cell}"),
                Candidate(f"node-{cell}", f"{cell + 1:032x}"),
                options=options,
            )
            await owner.start()
            owners.append(owner)
        yield owners
        for owner in owners:
            await owner.close()
