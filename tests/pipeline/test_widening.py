"""`widen` gives columns of a Delta table wider types in one commit, and changes no record."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, TableFeatures

from pipeline.errors import BadOption, StoreRefused
from pipeline.export.chains import chain_of
from pipeline.export.exporter import Limits
from pipeline.export.maintenance import DAY_S, collect, compact, status, vacuum, widen
from pipeline.export.part_settings import PartSettings
from pipeline.export.store import Directory
from pipeline.export.verification import Verification
from pipeline.export.versions import versions
from pipeline.schema import arrow_schema
from pipeline.values import ValueShape, value_shape
from tests.pipeline.exports import Exports, aged, command
from tests.support.small_segments import SmallSegments
from topics_client import NewRecord

DELTA = PartSettings(kind="delta")
TAGS = (None, "x/ y%20=", "ü")


def typed(ddl: str) -> ValueShape:
    return value_shape(ddl, arrow_schema().names)


def table(exports: Exports, topic: str) -> Any:
    return DeltaTable(exports.path(topic))


def rows(exports: Exports, topic: str) -> list[dict[str, Any]]:
    """What Delta's reader finds, by seq."""
    return sorted(table(exports, topic).to_pyarrow_table().to_pylist(), key=lambda row: row["seq"])


def in_files(exports: Exports, topic: str, ddl: str, files: int, **job: Any) -> None:
    """Export all records, ten to a file."""
    job.setdefault("parts", DELTA)
    for _ in range(files):
        exports.export(topic, values=typed(ddl), limits=Limits(max_records=10), **job)


def widened(exports: Exports, topic: str, ddl: str) -> tuple[int, int]:
    return widen(exports.store, topic, typed(ddl), lambda done, of: None)


@pytest.mark.parametrize("hourly", [False, True])
def test_every_file_is_written_again_with_the_same_records(
    broker: SmallSegments, exports: Exports, hourly: bool
) -> None:
    topic, parts = f"tagged-{hourly}", PartSettings(kind="delta", hourly=hourly, tagged=True)
    broker.client.append(topic, [NewRecord(data=b'{"n":%d}' % n, tag=TAGS[n % 3]) for n in range(30)])
    broker.append(topic, 0)
    in_files(exports, topic, "n int", 3, parts=parts)
    compact(exports.store, topic, version="test")  # its files are in folders of tags
    broker.append(topic, 5, first=30)
    exports.export(topic, values=typed("n int"), parts=parts)
    before, heard, count = rows(exports, topic), list[tuple[int, int]](), len(table(exports, topic).file_uris())
    assert count > 3
    found = widen(exports.store, topic, typed("n bigint, later string"), lambda done, of: heard.append((done, of)))
    assert (found.files, found.rows) == (count, 35)
    assert heard == [(each, count) for each in range(1, count + 1)]
    assert rows(exports, topic) == before
    assert [row["tag"] for row in before[:6]] == [*TAGS, *TAGS]
    kinds = {field.name: str(field.type) for field in table(exports, topic).schema().fields}
    assert kinds["n"] == 'PrimitiveType("long")'
    assert "later" not in kinds
    for path in table(exports, topic).file_uris():
        assert str(pq.ParquetFile(path.removeprefix("file://")).schema_arrow.field("n").type) == "int64"
    assert Verification(exports.store, topic).run(exports.origin).problems == []
    assert status(exports.store, topic, exports.origin).lag == 0
    # An export goes on with values that did not fit before.
    broker.client.append(topic, [NewRecord(data=b'{"n":%d}' % 2**40)])
    broker.append(topic, 0)
    assert exports.export(topic, values=typed("n bigint"), parts=parts).records == 1
    assert [row["n"] for row in rows(exports, topic)] == [*range(30), *range(30, 35), 2**40]
    assert exports.chain(topic).numbers() == [1, 2, 3, 4, 5]


def test_readers_of_earlier_versions_and_of_a_range_of_seqs_find_the_same(
    broker: SmallSegments, exports: Exports
) -> None:
    broker.append("earlier", 30)
    in_files(exports, "earlier", "n int", 3)
    earlier = table(exports, "earlier").version()
    assert widened(exports, "earlier", "n bigint") == (3, 30)
    now = table(exports, "earlier")
    assert now.version() == earlier + 1
    assert now.to_pyarrow_table(filters=[("seq", "in", [7, 25])]).column("n").to_pylist() in ([6, 24], [24, 6])
    assert now.metadata().configuration == {"delta.enableExpiredLogCleanup": "false"}
    now.load_as_version(earlier)
    assert now.to_pyarrow_table().schema.field("n").type == "int32"
    assert sorted(now.to_pyarrow_table().column("n").to_pylist()) == list(range(30))
    assert [(each.kind, each.rows) for each in versions(exports.store, "earlier")][1:] == [
        ("append", 10),
        ("append", 10),
        ("append", 10),
        ("widen", 0),
    ]


def test_nothing_is_written_if_no_type_changes(broker: SmallSegments, exports: Exports) -> None:
    broker.append("same", 10)
    in_files(exports, "same", "n int", 1)
    before = exports.parts("same")
    said = command("widen", "--to", exports.job.to, "--topics", "same", "--value-schema", "n int, other string")
    assert said == "same: 0 files with 0 records written again\n"
    assert exports.parts("same") == before


def test_a_change_that_is_no_widening_changes_nothing(broker: SmallSegments, exports: Exports) -> None:
    broker.append("narrow", 10)
    in_files(exports, "narrow", "n bigint", 1)
    before = exports.parts("narrow")
    with pytest.raises(BadOption, match=r"The column n of the table .* is bigint, but this export makes it int:"):
        widened(exports, "narrow", "n int")
    assert exports.parts("narrow") == before


def test_an_export_in_between_is_widened_too(
    broker: SmallSegments, exports: Exports, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.append("between", 20)
    in_files(exports, "between", "n int", 2)
    broker.append("between", 10, first=20)
    writing, left = Directory.writing, [lambda: in_files(exports, "between", "n int", 1)]

    def overtaken(self: Directory, key: str) -> Any:
        if key.endswith(".zstd.parquet") and left:
            left.pop()()
        return writing(self, key)

    monkeypatch.setattr(Directory, "writing", overtaken)
    assert widened(exports, "between", "n bigint") == (3, 30)
    assert not left
    assert [row["n"] for row in rows(exports, "between")] == list(range(30))
    assert Verification(exports.store, "between").run(exports.origin).problems == []


def test_files_that_are_removed_before_the_commit_are_written_once_more(
    broker: SmallSegments, exports: Exports
) -> None:
    broker.append("removed", 30)
    in_files(exports, "removed", "n int", 3)
    before, heard = set(exports.parts("removed")), list[tuple[int, int]]()

    def progress(done: int, of: int) -> None:
        heard.append((done, of))
        if len(heard) == of:  # a `vacuum` with a --retain that is shorter than this run has been at work
            new = sorted(set(exports.parts("removed")) - before)
            assert len(new) == of
            Path(exports.job.to, new[0]).unlink()

    found = widen(exports.store, "removed", typed("n bigint"), progress)
    assert (found.files, found.rows) == (3, 30)
    assert heard == [(1, 3), (2, 3), (3, 3), (3, 3)]
    assert [row["n"] for row in rows(exports, "removed")] == list(range(30))
    assert Verification(exports.store, "removed").run(exports.origin).problems == []


@pytest.fixture
def exporting(exports: Exports, broker: SmallSegments) -> Iterator[tuple[list[int], threading.Thread]]:
    """The counts of what exports add to the topic `busy`, one after the other, and the thread that exports: until its
    columns are wider, or the test has ended.
    """
    counts, over = list[int](), threading.Event()

    def run() -> None:
        with Exports(exports.job.url, exports.job.to) as mine:
            while not over.is_set():
                broker.append("busy", 10, first=10 * (len(counts) + 1))
                try:
                    counts.append(mine.export("busy", parts=DELTA, values=typed("n int")).records)
                except BadOption:
                    return  # the columns are wider
                time.sleep(0.2)

    broker.append("busy", 10)
    in_files(exports, "busy", "n int", 1)
    thread = threading.Thread(target=run)
    thread.start()
    yield counts, thread
    over.set()
    thread.join()


def test_beside_a_running_exporter(exports: Exports, exporting: tuple[list[int], threading.Thread]) -> None:
    counts, thread = exporting
    deadline = time.monotonic() + 60
    while len(counts) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    files, records = widened(exports, "busy", "n bigint")
    thread.join(60)
    assert not thread.is_alive()
    found = rows(exports, "busy")
    assert [row["n"] for row in found] == list(range(len(found)))
    assert files >= 4
    assert records == len(found) == 10 + sum(counts)


def test_files_of_a_killed_run_do_not_count_and_are_removed(
    broker: SmallSegments, exports: Exports, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        """Replaces SIGKILL: no code handles it."""

    def killed(*_: Any, **__: Any) -> None:
        raise Killed

    broker.append("killed", 20)
    in_files(exports, "killed", "n int", 2)
    before, files = rows(exports, "killed"), set(exports.parts("killed"))
    monkeypatch.setattr(DeltaTable, "create_write_transaction", killed)
    with pytest.raises(Killed):
        widened(exports, "killed", "n bigint")
    monkeypatch.undo()
    strays = set(exports.parts("killed")) - files
    assert len(strays) == 2
    assert rows(exports, "killed") == before
    assert widened(exports, "killed", "n bigint") == (2, 20)
    # What counts is no stray, whatever its name.
    assert collect(exports.store, "killed", time.time() + 30 * DAY_S) == []
    aged(exports.path("killed"), 8)
    assert vacuum(exports.store, "killed", retain_s=7 * DAY_S, now_s=time.time()) == 4
    assert not strays & set(exports.parts("killed"))
    assert rows(exports, "killed") == before


def test_a_table_with_features_of_other_tools_is_refused(broker: SmallSegments, exports: Exports) -> None:
    broker.append("features", 10)
    in_files(exports, "features", "n int", 1)
    table(exports, "features").alter.add_feature([TableFeatures.DeletionVectors], allow_protocol_versions_increase=True)
    with pytest.raises(StoreRefused, match=r"has features that .* switched on \(deletionVectors\): widen its columns"):
        widened(exports, "features", "n bigint")


def test_times_without_a_zone_do_not_stand_in_the_way(broker: SmallSegments, exports: Exports) -> None:
    broker.append("ntz", 10)
    in_files(exports, "ntz", "n int, at timestamp_ntz", 1)
    assert widened(exports, "ntz", "n bigint, at timestamp_ntz") == (1, 10)
    assert [row["n"] for row in rows(exports, "ntz")] == list(range(10))


@pytest.mark.parametrize(
    ("kind", "why"),
    [("iceberg", "the next export with the wider type widens its columns"), ("parquet", "nothing can widen its col")],
)
def test_other_formats_say_what_to_do(broker: SmallSegments, exports: Exports, kind: str, why: str) -> None:
    topic = f"other-{kind}"
    broker.append(topic, 5)
    exports.export(topic, parts=PartSettings(kind=kind), values=typed("n int"))
    said = command("widen", "--to", exports.job.to, "--topics", topic, "--value-schema", "n bigint", status=1)
    assert f"{topic}: it is no Delta table: {why}" in said or f"{topic} is no Delta table: {why}" in said


def test_a_schema_is_needed(tmp_path: Path) -> None:
    said = command("widen", "--to", str(tmp_path), "--topics", "*", "--value-schema", "", status=2)
    assert "--value-schema must name the columns with their wider types." in said


def test_a_mark_without_a_table_is_no_export(exports: Exports) -> None:
    exports.store.create("_topics/bare/delta.json", b'{"topic":"bare"}\n')
    assert chain_of(exports.store, "bare").newest() is None
    with pytest.raises(BadOption, match="bare is not exported there"):
        widened(exports, "bare", "n bigint")
