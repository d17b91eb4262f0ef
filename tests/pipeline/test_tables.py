"""Exports as tables, Delta and Iceberg: the commit is the bookmark, and the readers of both formats find every record
once."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import parquet_files_to_data_files

from pipeline.errors import BadOption, ManifestDamaged, StoreRefused
from pipeline.export.catalogs import Catalogs
from pipeline.export.chains import chain_of
from pipeline.export.delta import DeltaChain
from pipeline.export.exporter import Limits
from pipeline.export.iceberg import IcebergChain
from pipeline.export.maintenance import DAY_S, collect, compact, status, vacuum
from pipeline.export.part_settings import PartSettings
from pipeline.export.store import open_store
from pipeline.export.tables import TableChain
from pipeline.export.verification import Verification
from pipeline.schema import arrow_schema
from pipeline.values import ValueShape, value_shape
from tests.pipeline.exports import Exports, Overtaken, aged, command, ended_pid
from tests.support.small_segments import SmallSegments
from topics_client import NewRecord

FORMATS = ("delta", "iceberg")
CHAINS: dict[str, type[TableChain]] = {"delta": DeltaChain, "iceberg": IcebergChain}


@pytest.fixture(params=FORMATS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


def read(exports: Exports, topic: str) -> list[dict[str, Any]]:
    """What the format's own reader finds, by seq."""
    chain = exports.chain(topic)
    assert isinstance(chain, TableChain)
    table = chain.table()
    assert table is not None
    found = table.to_pyarrow_table() if isinstance(chain, DeltaChain) else table.scan().to_arrow()
    return sorted(found.to_pylist(), key=lambda row: row["seq"])


def values(count: int) -> list[bytes]:
    return [b'{"n":%d}' % n for n in range(count)]


def tagged(broker: SmallSegments, topic: str, count: int, tags: Sequence[str | None]) -> None:
    """Append records whose tags alternate."""
    records = [NewRecord(data=b'{"n":%d}' % n, tag=tags[n % len(tags)]) for n in range(count)]
    broker.client.append(topic, records)
    broker.append(topic, 0)


def in_pieces(exports: Exports, topic: str, kind: str, records: int, piece: int, **job: Any) -> None:
    for _ in range(records // piece):
        exports.export(topic, parts=PartSettings(kind=kind), limits=Limits(max_records=piece), **job)


def test_every_record_once_over_several_runs(broker: SmallSegments, exports: Exports, kind: str) -> None:
    topic, parts = f"runs-{kind}", PartSettings(kind=kind)
    broker.append(topic, 1300)
    broker.await_sealed(topic, 1001)
    assert exports.export(topic, parts=parts).records == 1300
    assert exports.export(topic, parts=parts).manifests == []
    broker.append(topic, 70, first=1300)
    assert exports.export(topic, parts=parts).records == 70
    assert [row["value"] for row in read(exports, topic)] == values(1370)
    assert exports.chain(topic).numbers() == [1, 2]
    found = Verification(exports.store, topic).run(exports.origin)
    assert (found.compared, found.problems) == (1370, [])
    shown = status(exports.store, topic, exports.origin)
    assert (shown.lag, shown.rows, shown.state) == (0, 1370, "up to date")


def test_the_bookmark_is_in_the_table_and_in_the_snapshot(broker: SmallSegments, exports: Exports) -> None:
    broker.append("marked", 20)
    in_pieces(exports, "marked", "iceberg", 20, 10)
    chain = exports.chain("marked")
    assert isinstance(chain, IcebergChain)
    table = chain.table()
    assert table is not None
    assert (table.properties["topics.end"], table.properties["commit.retry.num-retries"]) == ('{"0": 21}', "0")
    summaries = [each.summary.additional_properties for each in table.snapshots()]
    assert [each["topics.end"] for each in summaries] == ['{"0": 11}', '{"0": 21}']
    assert [each["topics.seqs"] for each in summaries] == ['{"0": [1, 10]}', '{"0": [11, 20]}']


def test_a_table_that_its_catalog_has_lost_is_not_begun_again(broker: SmallSegments, exports: Exports) -> None:
    broker.append("lost-table", 30)
    in_pieces(exports, "lost-table", "iceberg", 20, 10)
    before = exports.parts("lost-table")
    database = Path(exports.job.to, "_topics", "iceberg.db")
    database.rename(there := database.with_name("elsewhere.db"))
    arguments = ("--to", exports.job.to, "--topics", "lost-table")
    for said in (
        command("export", "--url", exports.job.url, *arguments, status=1),
        command("verify", *arguments, status=1),
        command("vacuum", *arguments, status=1),
    ):
        assert "no table topics.lost_2Dtable, but 1 manifest was committed to it" in " ".join(said.split())
    assert exports.parts("lost-table") == before
    there.rename(database)
    assert exports.export("lost-table", parts=PartSettings(kind="iceberg")).records == 10
    assert [row["seq"] for row in read(exports, "lost-table")] == list(range(1, 31))


class Killed(BaseException):
    """Replaces SIGKILL: no code handles it."""


@pytest.mark.parametrize("after", [False, True])
def test_an_export_killed_at_its_commit_loses_and_repeats_no_row(
    broker: SmallSegments, exports: Exports, monkeypatch: pytest.MonkeyPatch, kind: str, after: bool
) -> None:
    topic, parts = f"killed-{kind}-{after}", PartSettings(kind=kind)
    broker.append(topic, 40)
    commit = CHAINS[kind].commit

    def killed(*arguments: Any) -> None:
        if after:
            assert commit(*arguments) is None
        raise Killed

    monkeypatch.setattr(CHAINS[kind], "commit", killed)
    with pytest.raises(Killed):
        exports.export(topic, parts=parts, pid=ended_pid())
    monkeypatch.undo()
    assert exports.export(topic, parts=parts).records == (0 if after else 40)
    assert [row["value"] for row in read(exports, topic)] == values(40)


def test_commit_with_a_lost_answer_is_not_repeated(
    broker: SmallSegments, exports: Exports, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    topic = f"unanswered-{kind}"
    broker.append(topic, 10)
    commit = CHAINS[kind].commit

    def unanswered(*arguments: Any) -> Exception:
        return commit(*arguments) or TimeoutError()

    monkeypatch.setattr(CHAINS[kind], "commit", unanswered)
    assert exports.export(topic, parts=PartSettings(kind=kind)).manifests == [1]
    assert [row["value"] for row in read(exports, topic)] == values(10)


def test_of_two_racing_commits_only_the_first_counts(
    broker: SmallSegments, exports: Exports, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Between the read of the table and the commit another exporter commits the same rows."""
    topic, parts = f"raced-{kind}", PartSettings(kind=kind)
    broker.append(topic, 30)
    commit = CHAINS[kind].commit
    others: list[int] = []

    def late(*arguments: Any) -> Any:
        monkeypatch.undo()
        others.append(exports.export(topic, parts=parts).records)
        return commit(*arguments)

    monkeypatch.setattr(CHAINS[kind], "commit", late)
    outcome = exports.export(topic, parts=parts, pid=ended_pid())
    assert (others, outcome.records, outcome.lost_races) == ([30], 0, 1)
    assert [row["value"] for row in read(exports, topic)] == values(30)


def test_a_race_for_a_commit_without_rows_has_one_winner(
    broker: SmallSegments, exports: Exports, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """All records were deleted meanwhile: the commits have a bookmark, but no files."""
    topic, parts = f"empty-{kind}", PartSettings(kind=kind)
    broker.append(topic, 5)
    exports.export(topic, parts=parts)
    broker.append(topic, 5, first=5)
    broker.client.delete_records(topic, before_seq=11)
    commit = CHAINS[kind].commit

    def late(*arguments: Any) -> Any:
        monkeypatch.undo()
        assert exports.export(topic, parts=parts, fail_on_loss=False).end == 11
        broker.append(topic, 5, first=10)
        return commit(*arguments)

    monkeypatch.setattr(CHAINS[kind], "commit", late)
    outcome = exports.export(topic, parts=parts, pid=ended_pid(), fail_on_loss=False)
    assert (outcome.lost_races, outcome.records, outcome.end) == (1, 5, 16)
    assert [row["seq"] for row in read(exports, topic)] == [*range(1, 6), *range(11, 16)]


def test_only_one_of_two_concurrent_exports_commits(broker: SmallSegments, exports: Exports, kind: str) -> None:
    topic, parts = f"overtaken-{kind}", PartSettings(kind=kind)
    broker.append(topic, 30)

    def overtake() -> None:
        assert exports.export(topic, parts=parts).records == 30
        broker.append(topic, 5, first=30)

    outcome = exports.export(topic, parts=parts, engine=Overtaken(overtake), pid=ended_pid())
    assert (outcome.lost_races, outcome.records, outcome.manifests) == (1, 5, [2])
    assert [row["value"] for row in read(exports, topic)] == values(35)


@pytest.mark.parametrize("hourly", [False, True])
def test_partitions_by_time_and_tag(broker: SmallSegments, exports: Exports, kind: str, hourly: bool) -> None:
    topic = f"by.tag-{kind}-{hourly}"
    parts = PartSettings(kind=kind, hourly=hourly, tagged=True)
    tagged(broker, topic, 30, [None, "x/ y%20=", "ü"])
    assert exports.export(topic, parts=parts).files == 3
    rows = read(exports, topic)
    assert [row["tag"] for row in rows] == [None, "x/ y%20=", "ü"] * 10
    found = Verification(exports.store, topic).run(exports.origin)
    assert (found.compared, found.problems) == (30, [])
    chain = exports.chain(topic)
    assert isinstance(chain, TableChain)
    assert chain.partitions(chain.table()) == (["date", "hour", "tag"] if hourly else ["date", "tag"])
    with pytest.raises(BadOption, match=f"partitioned by date,{'hour,' if hourly else ''}tag"):
        exports.export(topic, parts=PartSettings(kind=kind))


def test_a_column_is_added_and_none_is_dropped(broker: SmallSegments, exports: Exports, kind: str) -> None:
    topic, parts = f"wider-{kind}", PartSettings(kind=kind)
    broker.append(topic, 3)
    exports.export(topic, parts=parts)
    broker.append(topic, 3, first=3)
    exports.export(topic, parts=parts, headers=True)
    rows = read(exports, topic)
    assert [row["value"] for row in rows] == values(6)
    assert [row["headers"] is None for row in rows] == [True, True, True, False, False, False]
    broker.append(topic, 3, first=6)
    with pytest.raises(BadOption, match="has the columns headers, but this export does not"):
        exports.export(topic, parts=parts)
    assert exports.export(topic, parts=parts, headers=True).records == 3
    assert Verification(exports.store, topic).run(exports.origin).problems == []


@pytest.fixture
def shaped(monkeypatch: pytest.MonkeyPatch) -> Callable[[pa.DataType], None]:
    """Makes the column `timestampType` of exports one of another type."""
    from pipeline.export import chains, parts

    real_part, real_shape = parts._Part, chains.Shape  # pyright: ignore[reportPrivateUsage]

    def change(kind: pa.DataType) -> None:
        def schema(given: pa.Schema) -> pa.Schema:
            return given.set(given.get_field_index("timestampType"), pa.field("timestampType", kind))

        class Shape(real_shape):
            def schema(self) -> pa.Schema:
                return schema(real_shape.schema(self))

        class Part(real_part):
            def __init__(self, writer: Any, slot: Any, given: pa.Schema) -> None:
                super().__init__(writer, slot, schema(given))

            def add(self, batch: pa.RecordBatch) -> None:
                super().add(batch.cast(schema(batch.schema)))

        monkeypatch.setattr(chains, "Shape", Shape)
        monkeypatch.setattr(parts, "_Part", Part)

    return change


def test_a_type_is_widened_or_refused_by_name(
    broker: SmallSegments, exports: Exports, kind: str, shaped: Callable[[pa.DataType], None]
) -> None:
    topic, parts = f"types-{kind}", PartSettings(kind=kind)
    broker.append(topic, 3)
    exports.export(topic, parts=parts)
    broker.append(topic, 3, first=3)
    shaped(pa.string())
    with pytest.raises(BadOption, match=r"column timestampType of the table .* is int, but .* makes it string"):
        exports.export(topic, parts=parts)
    shaped(pa.int64())
    if kind == "delta":
        with pytest.raises(
            BadOption, match=r"timestampType of the Delta table .* would become bigint: first run `widen` with the same"
        ):
            exports.export(topic, parts=parts)
        return
    assert exports.export(topic, parts=parts).records == 3
    assert [row["timestampType"] for row in read(exports, topic)] == [1] * 6
    shaped(pa.int32())
    with pytest.raises(BadOption, match="is bigint, but this export makes it int:"):
        exports.export(topic, parts=parts)


def typed(ddl: str) -> ValueShape | None:
    """The typed columns of an export with that `--value-schema`."""
    return value_shape(ddl, arrow_schema().names) if ddl else None


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("", "n int"),
        ("n int", "n int, m string"),
        ("n int", "`first n` string, m array<int>, n int"),
        ("n int not null", "n int, m string not null"),
    ],
)
def test_typed_columns_are_added(broker: SmallSegments, exports: Exports, kind: str, earlier: str, later: str) -> None:
    topic, parts = f"typed-{kind}-{len(later)}", PartSettings(kind=kind)
    broker.append(topic, 3)
    exports.export(topic, parts=parts, values=typed(earlier))
    broker.append(topic, 3, first=3)
    assert exports.export(topic, parts=parts, values=typed(later)).records == 3
    rows = read(exports, topic)
    assert [row["value"] for row in rows] == values(6)
    assert [row["n"] for row in rows] == ([0, 1, 2, 3, 4, 5] if earlier else [None, None, None, 3, 4, 5])
    shape = typed(later)
    assert shape is not None
    assert all(row[each.name] is None for row in rows[:3] for each in shape.columns if each.name != "n")
    with pytest.raises(BadOption, match=r"but this export does not: give the options of .* --value-schema for typed"):
        exports.export(topic, parts=parts, values=typed(earlier if earlier != "n int not null" else "m string"))
    broker.append(topic, 3, first=6)
    assert exports.export(topic, parts=parts, values=typed(later)).records == 3
    assert compact(exports.store, topic, version="test")[:3] == (3, 1, 9)
    assert [row["n"] for row in read(exports, topic)][3:] == [3, 4, 5, 6, 7, 8]
    assert Verification(exports.store, topic).run(exports.origin).problems == []


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("n int", "n bigint"),
        ("n smallint", "n int"),
        ("n tinyint", "n bigint"),
        ("n float", "n double, m int"),
        ("n decimal(5,0)", "n decimal(7,0)"),
    ],
)
def test_typed_columns_are_widened_or_refused_by_name(
    broker: SmallSegments, exports: Exports, kind: str, earlier: str, later: str
) -> None:
    topic, parts = f"widened-{kind}-{earlier[2:6]}", PartSettings(kind=kind)
    broker.append(topic, 3)
    exports.export(topic, parts=parts, values=typed(earlier))
    broker.append(topic, 3, first=3)
    if kind == "delta":
        with pytest.raises(BadOption, match=r"column n of the Delta table .*: first run `widen` with the same"):
            exports.export(topic, parts=parts, values=typed(later))
        said = command("widen", "--to", exports.job.to, "--topics", topic, "--value-schema", later)
        assert said == f"{topic}: 1 file with 3 records written again\n"
    assert exports.export(topic, parts=parts, values=typed(later)).records == 3
    assert [row["n"] for row in read(exports, topic)] == [0, 1, 2, 3, 4, 5]
    table = exports.chain(topic)
    assert isinstance(table, TableChain)
    if isinstance(table, DeltaChain):
        two = type(read(exports, topic)[0]["n"])(2)
        found = table.table().to_pyarrow_table(filters=[("n", ">=", two)])
    else:
        found = table.table().scan(row_filter="n >= 2").to_arrow()  # with the bounds of the narrower type
    assert sorted(found.column("n").to_pylist()) == [2, 3, 4, 5]
    if kind == "delta" or earlier not in ("n smallint", "n tinyint"):  # to Iceberg these are int
        with pytest.raises(BadOption, match=r"The column n of the table .*, but this export makes it .* earlier type"):
            exports.export(topic, parts=parts, values=typed(f"{earlier}, m int" if "m int" in later else earlier))
    assert compact(exports.store, topic, version="test")[:3] == (2, 1, 6)
    assert [row["n"] for row in read(exports, topic)] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("n bigint", "n int"),
        ("n int", "n string"),
        ("n int", "n double"),
        ("n decimal(5,0)", "n decimal(7,1)"),
        ("n struct<a:int>", "n struct<a:int,b:int>"),
    ],
)
def test_other_changes_of_a_typed_column_are_refused_by_name(
    broker: SmallSegments, exports: Exports, kind: str, earlier: str, later: str
) -> None:
    topic, parts = f"kept-{kind}-{later[2:8].strip('<').replace('(', '')}", PartSettings(kind=kind)
    broker.append(topic, 3)
    exports.export(topic, parts=parts, values=typed(earlier))
    broker.append(topic, 3, first=3)
    with pytest.raises(BadOption, match=r"The column n of the table .* is .*, but this export makes it .* Give it the"):
        exports.export(topic, parts=parts, values=typed(later))
    assert exports.export(topic, parts=parts, values=typed(earlier)).records == 3
    assert [row["value"] for row in read(exports, topic)] == values(6)


def test_an_export_whose_columns_another_has_changed_meanwhile_adds_nothing(
    broker: SmallSegments, exports: Exports, kind: str
) -> None:
    topic, parts = f"meanwhile-{kind}", PartSettings(kind=kind)
    broker.append(topic, 3)
    exports.export(topic, parts=parts, values=typed("n int"))
    broker.append(topic, 3, first=3)

    def overtake() -> None:
        exports.export(topic, parts=parts, values=typed("n int, m string"), pid=ended_pid())
        broker.append(topic, 3, first=6)

    engine = Overtaken(overtake)
    slow = exports.exporter(parts=parts, values=typed("n int"), engine=engine, pid=ended_pid())
    with pytest.raises(BadOption, match="has the columns m, but this export does not"):
        slow.export(topic)
    assert [row["value"] for row in read(exports, topic)] == values(6)
    assert exports.export(topic, parts=parts, values=typed("n int, m string")).records == 3
    assert [row["value"] for row in read(exports, topic)] == values(9)
    assert Verification(exports.store, topic).run(exports.origin).problems == []


def test_compaction_and_vacuum_leave_every_record_once(broker: SmallSegments, exports: Exports, kind: str) -> None:
    topic = f"small-{kind}"
    broker.append(topic, 60)
    in_pieces(exports, topic, kind, 60, 10)
    before = read(exports, topic)
    found = compact(exports.store, topic, version="test")
    assert (found.before, found.after, found.rows) == (6, 1, 60)
    assert read(exports, topic) == before
    broker.append(topic, 5, first=60)
    assert exports.export(topic, parts=PartSettings(kind=kind)).records == 5
    verified = Verification(exports.store, topic).run(exports.origin)
    assert (verified.compared, verified.problems, verified.files, verified.rows) == (65, [], 2, 65)
    # Readers of older versions still have the replaced files.
    assert collect(exports.store, topic, 4e9) == []
    assert vacuum(exports.store, topic, retain_s=DAY_S, now_s=4e9) == 0
    assert [row["value"] for row in read(exports, topic)] == values(65)
    with pytest.raises(BadOption, match="--retain must be at least 1d"):
        vacuum(exports.store, topic, retain_s=60, now_s=4e9)


def test_compaction_by_tag(broker: SmallSegments, exports: Exports, kind: str) -> None:
    topic, parts = f"small.tags-{kind}", PartSettings(kind=kind, tagged=True)
    tagged(broker, topic, 12, ["a", "x/ y%20="])
    for _ in range(3):
        exports.export(topic, parts=parts, limits=Limits(max_records=4))
    before = read(exports, topic)
    assert compact(exports.store, topic, version="test")[:3] == (6, 2, 12)
    assert read(exports, topic) == before
    assert Verification(exports.store, topic).run(exports.origin).problems == []


def test_compaction_of_files_with_and_without_an_added_column(
    broker: SmallSegments, exports: Exports, kind: str
) -> None:
    topic, parts = f"small-wider-{kind}", PartSettings(kind=kind)
    for first, headers in ((0, False), (4, True), (8, True)):
        broker.append(topic, 4, first=first)
        exports.export(topic, parts=parts, headers=headers)
    before = read(exports, topic)
    assert [row["headers"] is None for row in before] == [True] * 4 + [False] * 8
    assert compact(exports.store, topic, version="test")[:3] == (3, 1, 12)
    assert read_lists(exports, topic) == before
    assert Verification(exports.store, topic).run(exports.origin).problems == []
    broker.append(topic, 4, first=12)
    assert exports.export(topic, parts=parts, headers=True).records == 4
    assert compact(exports.store, topic, version="test")[:3] == (2, 1, 16)
    assert read_lists(exports, topic)[:12] == before


def read_lists(exports: Exports, topic: str) -> list[dict[str, Any]]:
    """As `read`, but pyiceberg makes an empty list of one that is null within a file: these come from the files."""
    if not isinstance(exports.chain(topic), IcebergChain):
        return read(exports, topic)
    stored = {row["seq"]: row["headers"] for row in exports.rows(topic)}
    rows = read(exports, topic)
    assert [row["headers"] for row in rows] == [stored[row["seq"]] or [] for row in rows]
    return [row | {"headers": stored[row["seq"]]} for row in rows]


def test_verification_of_rewritten_files_finds_what_is_missing(
    broker: SmallSegments, exports: Exports, kind: str
) -> None:
    topic = f"verified-{kind}"
    broker.append(topic, 40)
    in_pieces(exports, topic, kind, 40, 10)
    chain = exports.chain(topic)
    assert isinstance(chain, TableChain)
    table = chain.table()
    assert table is not None
    if isinstance(chain, DeltaChain):
        table.delete("seq = 7")
    else:
        _replace_file(exports, table, chain.files()[0].file)
    problems = Verification(exports.store, topic).run(exports.origin).problems
    assert "Rewritten files have 9 records, but the files that they replace had 10." in problems
    assert "Seq 7 is at the broker, but not in the export." in problems


def _replace_file(exports: Exports, table: Any, file: str) -> None:
    """As a tool that rewrites a file, and loses seq 7."""
    found = pq.ParquetFile(exports.path(file)).read()
    target = exports.path(file).with_name("rewritten.parquet")
    pq.write_table(found.filter(pc.not_equal(found.column("seq"), 7)), target)
    with table.transaction() as step, step.update_snapshot().overwrite() as swap:
        for task in table.scan().plan_files():
            if task.file.file_path.endswith(file):
                swap.delete_data_file(task.file)
        for each in parquet_files_to_data_files(table.io, table.metadata, iter([f"file://{target}"])):
            swap.append_data_file(each)


def test_compaction_does_not_repeat_rows_that_another_tool_has_rewritten(
    broker: SmallSegments, exports: Exports, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.append("overtaken", 40)
    in_pieces(exports, "overtaken", "iceberg", 40, 10)
    from pipeline.export import maintenance

    rewrite = maintenance._rewrite  # pyright: ignore[reportPrivateUsage]

    def rewrite_late(*arguments: Any) -> object:
        done = rewrite(*arguments)
        chain = exports.chain("overtaken")
        assert isinstance(chain, TableChain)
        _replace_file(exports, chain.table(), chain.files()[0].file)
        return done

    monkeypatch.setattr(maintenance, "_rewrite", rewrite_late)
    with pytest.raises(StoreRefused, match="another tool has rewritten"):
        compact(exports.store, "overtaken", version="test")
    assert [row["value"] for row in read(exports, "overtaken")] == [b'{"n":%d}' % n for n in range(40) if n != 6]
    monkeypatch.undo()
    compact(exports.store, "overtaken", version="test")
    assert [row["value"] for row in read(exports, "overtaken")] == [b'{"n":%d}' % n for n in range(40) if n != 6]


def test_properties_that_another_tool_has_damaged_are_an_error(broker: SmallSegments, exports: Exports) -> None:
    broker.append("damaged", 10)
    in_pieces(exports, "damaged", "iceberg", 10, 10)
    chain = exports.chain("damaged")
    assert isinstance(chain, IcebergChain)
    for change in ({"topics.end": "{"}, {"topics.number": "many"}):
        table = chain.table()
        assert table is not None
        table.transaction().set_properties(change).commit_transaction()
        with pytest.raises(ManifestDamaged, match="damaged"):
            exports.export("damaged", parts=PartSettings(kind="iceberg"))


def test_vacuum_leaves_files_of_other_tools(
    broker: SmallSegments, exports: Exports, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.append("foreign", 10)
    in_pieces(exports, "foreign", "iceberg", 10, 10)
    hint, stray = (exports.path(f"foreign/metadata/{name}") for name in ("version-hint.text", "snap-0.avro"))
    hint.write_text("1")
    stray.write_bytes(b"of a run that was killed")
    now = hint.stat().st_mtime + 9 * DAY_S
    monkeypatch.setattr("pipeline.export.iceberg.time.time", lambda: now)
    vacuum(exports.store, "foreign", retain_s=7 * DAY_S, now_s=now)
    assert (hint.exists(), stray.exists()) == (True, False)
    monkeypatch.undo()
    assert [row["value"] for row in read(exports, "foreign")] == values(10)


#: Other spellings of the directory `out`, beside which is the link `link`.
SPELLINGS = {
    "link": "{}/link",
    "dots": "{}/out/../out",
    "relative": "out",
    "url": "file:{}/out",
    "local url": "file://localhost{}/out/",
    "slashes": "/{}//out//",
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_vacuum_removes_the_same_files_however_the_place_is_spelled(
    broker: SmallSegments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, spelling: str
) -> None:
    """Each step spells the place in the other way than the step before."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "out")
    plain, other = str(tmp_path / "out"), SPELLINGS[spelling].format(tmp_path)
    topic = f"spelled-{spelling.replace(' ', '-')}-{kind}"
    broker.append(topic, 40)
    first, second = Exports(broker.url, other), Exports(broker.url, plain)
    with first, second:
        first.export(topic, parts=PartSettings(kind=kind), limits=Limits(max_records=10))
        second.export(topic, parts=PartSettings(kind=kind), limits=Limits(max_records=10))
        assert compact(first.store, topic, version="test")[:3] == (2, 1, 20)
        second.export(topic, parts=PartSettings(kind=kind), limits=Limits(max_records=10))
        first.export(topic, parts=PartSettings(kind=kind), limits=Limits(max_records=10))
        aged(tmp_path / "out" / topic, 9)
        now = 4e9 if kind == "iceberg" else time.time()
        monkeypatch.setattr("pipeline.export.iceberg.time.time", lambda: now)
        for each, gone in ((second, 2), (first, 0)):
            before = len([*tmp_path.glob("out/**/part-*")])
            vacuum(each.store, topic, retain_s=7 * DAY_S, now_s=now)
            assert before - len([*tmp_path.glob("out/**/part-*")]) == gone
            assert [row["value"] for row in read(each, topic)] == values(40)
        monkeypatch.undo()
        assert Verification(first.store, topic).run(first.origin).problems == []


def test_vacuum_of_a_copy_of_a_table_is_refused(broker: SmallSegments, exports: Exports, tmp_path: Path) -> None:
    """The catalog that was copied with it names the table at its first place."""
    broker.append("copied", 10)
    in_pieces(exports, "copied", "iceberg", 10, 10)
    shutil.copytree(tmp_path / "out", tmp_path / "copy")
    before = sorted((tmp_path / "copy").rglob("copied/**/*"))
    with pytest.raises(BadOption, match=r"is at file://.*/out/copied, not at file://.*/copy/copied: give --to as"):
        vacuum(open_store(str(tmp_path / "copy")), "copied", retain_s=7 * DAY_S, now_s=4e9)
    assert sorted((tmp_path / "copy").rglob("copied/**/*")) == before


def test_a_table_that_was_rolled_back_is_an_error(broker: SmallSegments, exports: Exports) -> None:
    broker.append("back", 20)
    in_pieces(exports, "back", "iceberg", 20, 10)
    chain = exports.chain("back")
    assert isinstance(chain, IcebergChain)
    table = chain.table()
    assert table is not None
    first = table.snapshots()[0].snapshot_id
    table.manage_snapshots().rollback_to_snapshot(first).commit()
    with pytest.raises(ManifestDamaged, match="rolled back"):
        exports.export("back", parts=PartSettings(kind="iceberg"))


def test_expired_snapshots_leave_the_bookmark(
    broker: SmallSegments, exports: Exports, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.append("expired", 20)
    in_pieces(exports, "expired", "iceberg", 20, 10)
    compact(exports.store, "expired", version="test")
    replaced = [exports.path(entry.file) for each in (1, 2) for entry in exports.chain("expired").load(each).added]
    assert [path.exists() for path in replaced] == [True, True]
    now = replaced[0].stat().st_mtime + 9 * DAY_S
    monkeypatch.setattr("pipeline.export.iceberg.time.time", lambda: now)
    gone = vacuum(exports.store, "expired", retain_s=7 * DAY_S, now_s=now)
    assert gone >= 2
    assert [path.exists() for path in replaced] == [False, False]
    monkeypatch.undo()
    assert [row["value"] for row in read(exports, "expired")] == values(20)
    broker.append("expired", 5, first=20)
    assert exports.export("expired", parts=PartSettings(kind="iceberg")).records == 5
    assert exports.chain("expired").numbers() == [1, 2, 3, 4]
    assert Verification(exports.store, "expired").run(exports.origin).problems == []


def test_a_library_that_retries_is_stopped(broker: SmallSegments, exports: Exports) -> None:
    broker.append("retried", 5)
    parts = PartSettings(kind="iceberg")
    exports.export("retried", parts=parts)
    chain = exports.chain("retried")
    assert isinstance(chain, IcebergChain)
    table = chain.table()
    assert table is not None
    with table.transaction() as step:
        step.set_properties({"commit.retry.num-retries": "4"})
    broker.append("retried", 5, first=5)
    assert exports.export("retried", parts=parts).records == 5
    again = chain.table()
    assert again is not None
    assert again.properties["commit.retry.num-retries"] == "0"


def test_a_table_of_another_topic_is_not_touched(broker: SmallSegments, exports: Exports, tmp_path: Path) -> None:
    broker.append("mine", 5)
    uri = f"sqlite:///{tmp_path}/shared.db"
    job = {"parts": PartSettings(kind="iceberg"), "catalog": uri, "namespace": "n"}
    exports.export("mine", **job)
    chain = chain_of(exports.store, "mine")
    assert isinstance(chain, IcebergChain)
    table = chain.table()
    assert table is not None
    with table.transaction() as step:
        step.set_properties({"topics.topic": "theirs"})
    with pytest.raises(BadOption, match="is not an export of mine"):
        exports.export("mine", **job)
    with pytest.raises(BadOption, match="leave --catalog and --namespace out"):
        exports.export("mine", parts=PartSettings(kind="iceberg"), catalog=uri, namespace="other")


@pytest.mark.parametrize(
    ("catalog", "what"),
    [
        ("ftp://x", "--catalog must be a URL of sqlite, postgresql, http, https, thrift"),
        ("postgresql://user:secret@host/db", "--catalog must not contain a password"),
    ],
)
def test_unusable_catalogs_are_refused(exports: Exports, catalog: str, what: str) -> None:
    with pytest.raises(BadOption, match=what) as caught:
        Catalogs(catalog=catalog).open(exports.store)
    assert "secret" not in str(caught.value)


def test_a_catalog_in_the_environment(
    broker: SmallSegments, exports: Exports, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.append("named", 5)
    monkeypatch.setenv("PYICEBERG_CATALOG__MINE__URI", f"sqlite:///{tmp_path}/mine.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__MINE__TYPE", "sql")
    # pyiceberg reads its configuration when it is imported.
    from pyiceberg import catalog
    from pyiceberg.utils.config import Config

    monkeypatch.setattr(catalog, "_ENV_CONFIG", Config())
    exports.export("named", parts=PartSettings(kind="iceberg"), catalog="mine")
    assert (tmp_path / "mine.db").exists()
    assert [row["value"] for row in read(exports, "named")] == values(5)


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, exports: Exports, kind: str) -> None:
    package = {"delta": "deltalake", "iceberg": "pyiceberg.catalog"}[kind]
    monkeypatch.setitem(__import__("sys").modules, package, None)
    with pytest.raises(StoreRefused, match=rf"pip install 'topics-broker\[{kind}\]'"):
        exports.export("any", parts=PartSettings(kind=kind))
