"""Exports as Delta tables: the commit is the bookmark, and Delta's own reader finds every record once."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from pipeline.errors import BadOption, DataLoss, ManifestDamaged
from pipeline.export.delta import DeltaChain
from pipeline.export.exporter import Limits
from pipeline.export.maintenance import DAY_S, collect, compact, status, vacuum, widen
from pipeline.export.names import component
from pipeline.export.parts import PartSettings
from pipeline.export.verification import Verification
from pipeline.schema import arrow_schema
from pipeline.values import value_shape
from tests.pipeline.exports import Exports, aged, command, ended_pid
from tests.support.small_segments import SmallSegments
from topics_client import NewRecord

DELTA = PartSettings(kind="delta")


def table(exports: Exports, topic: str) -> DeltaTable:
    return DeltaTable(exports.path(topic))


def read(found: DeltaTable) -> list[dict[str, Any]]:
    """What Delta's reader finds, by seq."""
    return sorted(found.to_pyarrow_table().to_pylist(), key=lambda row: row["seq"])


def values(count: int) -> list[bytes]:
    return [b'{"n":%d}' % n for n in range(count)]


def test_every_record_once_over_several_runs(broker: SmallSegments, exports: Exports) -> None:
    broker.append("runs", 1300)
    broker.await_sealed("runs", 1001)
    assert exports.export("runs", parts=DELTA).records == 1300
    assert exports.export("runs", parts=DELTA).manifests == []
    broker.append("runs", 70, first=1300)
    assert exports.export("runs", parts=DELTA).records == 70
    rows = read(table(exports, "runs"))
    assert [row["value"] for row in rows] == values(1370)
    assert {row["timestamp"].strftime("%Y-%m-%d") for row in rows} == {str(row["date"]) for row in rows}
    cluster = exports.chain("runs").load(1).cluster_id
    assert table(exports, "runs").transaction_version(f"{cluster}/runs") == 1371
    assert [key for key, _ in exports.store.list("_topics/runs")] == ["_topics/runs/delta.json"]
    assert exports.chain("runs").numbers() == [1, 2]
    found = Verification(exports.store, "runs").run(exports.origin)
    assert (found.compared, found.problems) == (1370, [])
    shown = status(exports.store, "runs", exports.origin)
    assert (shown.lag, shown.rows, shown.state) == (0, 1370, "up to date")


def test_folders_name_the_tags_as_those_of_deltas_library(broker: SmallSegments, exports: Exports) -> None:
    """Some readers (polars) take partition values from the names of folders, and find null where there is none."""
    tags = [None, "x", "a/b", "a%2Fb", "k=v", "..", "a b", "ü", "'", "x" * 200]
    narrow, wide = (value_shape(ddl, arrow_schema().names) for ddl in ("n int", "n bigint"))
    for hourly in (False, True):
        topic, parts = f"folders-{hourly}", PartSettings(kind="delta", hourly=hourly, tagged=True)
        broker.client.append(topic, [NewRecord(data=b"1", tag=tag) for tag in tags])
        broker.append(topic, 0)
        assert exports.export(topic, parts=parts, values=narrow).files == len(tags)
        assert folders_of_tags(exports, topic) == set(tags)
        widen(exports.store, topic, wide, lambda done, of: None)
        assert folders_of_tags(exports, topic) == set(tags)
        assert [row["tag"] for row in read(table(exports, topic))] == tags
        assert Verification(exports.store, topic).run(exports.origin).problems == []


def folders_of_tags(exports: Exports, topic: str) -> set[str | None]:
    """The tags in the names of the folders of a table's files."""
    found: set[str | None] = set()
    for path in pa.table(table(exports, topic).get_add_actions()).column("path").to_pylist():
        # The log has names of files as a URL has them.
        [folder] = [each for each in unquote(path).split("/") if each.startswith("tag=")]
        found.add(None if folder == "tag=__HIVE_DEFAULT_PARTITION__" else unquote(folder.removeprefix("tag=")))
        assert exports.path(f"{topic}/{unquote(path)}").is_file()
    return found


def test_a_topics_folder_is_no_partition(broker: SmallSegments, exports: Exports) -> None:
    """Some readers (polars) take every folder with = in its name for a partition, and refuse those of no column."""
    names = {"under_score_2026": "under_score_2026", "_first": "-5Ffirst", "a:b_3A": "a_3Ab_5F3A", "__5F": "-5F_5F5F"}
    for topic, folder in names.items():
        broker.append(topic, 3)
        assert exports.export(topic, parts=DELTA).records == 3
        assert [row["value"] for row in read(table(exports, folder))] == values(3)
        assert Verification(exports.store, topic).run(exports.origin).problems == []


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_table_of_an_earlier_version_keeps_its_folder(broker: SmallSegments, exports: Exports, kind: str) -> None:
    topic, parts = f"earlier_{kind}", PartSettings(kind=kind)
    mark = f"_topics/{component(topic)}/{kind}.json"
    text = f'{{"topic":"{topic}","format":"{kind}","catalog":"","namespace":"topics"}}'
    assert exports.store.create(mark, text.encode())
    for first in (0, 3):
        broker.append(topic, 3, first=first)
        assert exports.export(topic, parts=parts).records == 3
    assert {key.split("/")[0] for key, _ in exports.store.list("")} == {"_topics", f"earlier=5F{kind}"}
    assert Verification(exports.store, topic).run(exports.origin).problems == []
    assert collect(exports.store, topic, 4e9) == []
    compact(exports.store, topic, version="test")
    assert exports.chain(topic).counts() == (1, 6)
    assert Verification(exports.store, topic).run(exports.origin).problems == []


def test_a_tag_that_is_too_long_for_a_folder_has_none(broker: SmallSegments, exports: Exports) -> None:
    parts = PartSettings(kind="delta", tagged=True)
    broker.client.append("long.tags", [NewRecord(data=b"1", tag="ü" * 128), NewRecord(data=b"2", tag="a")])
    broker.append("long.tags", 0)
    assert exports.export("long.tags", parts=parts).files == 2
    assert [row["tag"] for row in read(table(exports, "long.tags"))] == ["ü" * 128, "a"]
    assert Verification(exports.store, "long.tags").run(exports.origin).problems == []


def test_hour_and_header_columns_cannot_change(broker: SmallSegments, exports: Exports) -> None:
    broker.append("odd:name", 3)
    hourly = PartSettings(kind="delta", hourly=True)
    exports.export("odd:name", parts=hourly, headers=True)
    [row, *_] = read(table(exports, "odd_3Aname"))
    assert (row["timestamp"].hour, row["headers"][0]) == (row["hour"], {"key": "fifth", "value": b"yes"})
    broker.append("odd:name", 3, first=3)
    with pytest.raises(BadOption, match="partitioned by date,hour"):
        exports.export("odd:name", parts=DELTA, headers=True)
    with pytest.raises(BadOption, match="has the columns headers, but this export does not"):
        exports.export("odd:name", parts=hourly)
    assert exports.export("odd:name", parts=hourly, headers=True).records == 3


def test_export_continues_after_another_tool_has_rewritten_files(broker: SmallSegments, exports: Exports) -> None:
    broker.append("tidied", 20)
    for _ in range(2):
        exports.export("tidied", parts=DELTA, limits=Limits(max_records=10))
    assert collect(exports.store, "tidied", 4e9) == []
    assert table(exports, "tidied").optimize.compact()["numFilesRemoved"] == 2
    broker.append("tidied", 5, first=20)
    assert exports.export("tidied", parts=DELTA).manifests == [3]
    assert [row["value"] for row in read(table(exports, "tidied"))] == values(25)
    assert status(exports.store, "tidied", exports.origin).rows == 25
    # VACUUM deletes the files that OPTIMIZE replaced, `collect` does not: a reader may use an older version.
    assert collect(exports.store, "tidied", 4e9) == []
    with pytest.raises(BadOption, match="has rewritten files of the Delta table"):
        exports.chain("tidied").files()
    found = Verification(exports.store, "tidied").run(exports.origin)
    assert (found.compared, found.problems) == (25, [])


def test_vacuum_removes_nothing_while_an_export_is_at_work(broker: SmallSegments, exports: Exports) -> None:
    broker.append("at-work", 20)
    for _ in range(2):
        exports.export("at-work", parts=DELTA, limits=Limits(max_records=10))
    replaced = [exports.path(entry.file) for entry in exports.chain("at-work").files()]
    compact(exports.store, "at-work", version="test")
    aged(exports.path("at-work"), 8)
    exporter, chain = exports.exporter(parts=DELTA), exports.chain("at-work")
    broker.append("at-work", 5, first=20)
    found = exporter._next(chain, chain.newest(), exporter._job)  # pyright: ignore[reportPrivateUsage]
    exporter._claim(chain, 3, found)  # pyright: ignore[reportPrivateUsage]
    now = time.time()
    assert vacuum(exports.store, "at-work", retain_s=7 * DAY_S, now_s=now) == 0
    assert [path.exists() for path in replaced] == [True, True]
    # The plan expires without a sign of life.
    assert vacuum(exports.store, "at-work", retain_s=7 * DAY_S, now_s=now + 3600) == 2
    assert [path.exists() for path in replaced] == [False, False]
    assert [row["value"] for row in read(table(exports, "at-work"))] == values(20)


def test_strays_are_collected_after_a_day(broker: SmallSegments, exports: Exports) -> None:
    broker.append("stray", 5)
    exports.export("stray", parts=DELTA)
    [entry] = exports.chain("stray").files()
    stray = exports.path(entry.file[:-16] + "00000000.parquet")
    stray.write_bytes(b"of a run that was killed")
    now = stray.stat().st_mtime
    assert collect(exports.store, "stray", now + 60) == []
    assert collect(exports.store, "stray", now + DAY_S + 60) == [stray.relative_to(exports.job.to).as_posix()]
    assert [row["value"] for row in read(table(exports, "stray"))] == values(5)


def test_gaps_and_a_recreated_topic_are_in_the_commit(broker: SmallSegments, exports: Exports) -> None:
    broker.client.put_topic("lossy", cap_records=100)
    broker.append("lossy", 80)
    exports.export("lossy", parts=DELTA)
    broker.append("lossy", 200, first=80)
    with pytest.raises(DataLoss, match=r"seqs 81 to 180 are lost \(reason: cap\)"):
        exports.export("lossy", parts=DELTA)
    exports.export("lossy", parts=DELTA, fail_on_loss=False)
    broker.client.delete_topic("lossy")
    broker.append("lossy", 4)
    exports.export("lossy", parts=DELTA, fail_on_loss=False)
    gaps = [(gap.first, gap.last, gap.reason) for each in exports.chain("lossy").all() for gap in each.gaps]
    assert gaps == [(81, 180, "cap"), (281, 281, "recreated")]
    assert sorted(row["seq"] for row in read(table(exports, "lossy"))) == sorted(
        [*range(1, 81), *range(181, 281), *range(1, 5)]
    )


def test_contradictory_log_is_an_error(broker: SmallSegments, exports: Exports) -> None:
    broker.append("changed", 5)
    exports.export("changed", parts=DELTA)
    log = exports.path("changed/_delta_log/00000000000000000001.json")
    log.write_bytes(log.read_bytes().replace(b'"version":6', b'"version":3'))
    with pytest.raises(ManifestDamaged, match="the table's transaction says 3"):
        exports.export("changed", parts=DELTA)


def test_a_topic_cannot_change_its_format(broker: SmallSegments, exports: Exports, tmp_path: Path) -> None:
    broker.append("kept", 5)
    where = ("--url", broker.url, "--to", exports.job.to, "--topics", "kept", "--engine", "arrow")
    command("export", *where)
    broker.append("kept", 5, first=5)
    command("export", *where)
    assert table(exports, "kept").version() == 2
    for kind in ("iceberg", "json", "parquet"):
        assert "is exported there as delta" in command("export", *where, "--format", kind, status=1)
    assert len(command("files", "--to", exports.job.to, "--topics", "kept").split()) == 2
    other = ("--url", broker.url, "--to", str(tmp_path / "other"), "--topics", "kept", "--engine", "arrow")
    command("export", *other, "--format", "parquet")
    assert "0" in command("export", *other)
    for kind in ("delta", "iceberg", "json"):
        assert "is exported there as parquet" in command("export", *other, "--format", kind, status=1)


def test_a_table_in_a_bucket(broker: SmallSegments, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.append("in:bucket", 30)
    with Exports(broker.url, bucket) as exports:
        exports.export("in:bucket", parts=DELTA, limits=Limits(max_records=10))
        commit = DeltaChain.commit

        def late(*arguments: Any) -> Any:
            monkeypatch.setattr(DeltaChain, "commit", commit)
            assert exports.export("in:bucket", parts=DELTA).records == 20
            return commit(*arguments)

        monkeypatch.setattr(DeltaChain, "commit", late)
        outcome = exports.export("in:bucket", parts=DELTA, pid=ended_pid())
        assert (outcome.records, outcome.lost_races) == (0, 1)
        assert exports.seqs("in:bucket") == list(range(1, 31))
        options = {"AWS_ALLOW_HTTP": "true"}
        rows = read(DeltaTable(f"{bucket}/in_3Abucket", storage_options=options))
        assert [row["value"] for row in rows] == values(30)
