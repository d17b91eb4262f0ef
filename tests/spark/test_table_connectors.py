"""Spark's own connectors of Delta and Iceberg, and DuckDB's own scans, read the tables that exports make: every record
once, in each version."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipeline.export.exporter import Limits
from pipeline.export.maintenance import compact, widen
from pipeline.export.part_settings import DELTA, TABLES, PartSettings
from pipeline.export.versions import whereabouts_of
from pipeline.schema import arrow_schema
from pipeline.values import value_shape
from tests.pipeline.exports import Exports, command
from tests.support import duckdb_scans
from tests.support.other_packages import Counts
from tests.support.small_segments import SmallSegments
from tests.support.table_connectors import count
from topics_client import NewRecord

pytestmark = pytest.mark.soak
TOPIC = "read"


@pytest.mark.parametrize("kind", TABLES)
def test_every_version_has_the_records_that_versions_names(tmp_path: Path, java_home: str, kind: str) -> None:
    out = str(tmp_path / "out")
    Path(out).mkdir()
    with SmallSegments(tmp_path / "broker") as broker, Exports(broker.url, out) as exports:
        parts = PartSettings(kind=kind, tagged=True)
        broker.append(TOPIC, 60)
        for _ in range(3):
            exports.export(TOPIC, parts=parts, limits=Limits(max_records=20))
        assert compact(exports.store, TOPIC, version="test").rows == 60
        broker.append(TOPIC, 10, first=60)
        exports.export(TOPIC, parts=parts, headers=True)  # adds a column
        shown = command("versions", "--to", out, "--topics", TOPIC)
    first, *_ = lines = shown.splitlines()
    path = first.removeprefix(f"{TOPIC}: ")
    records = 0
    wanted: dict[str, Counts] = {}
    for line in lines[2:]:
        version, _day, _time, *what = line.split()
        if what[0] == "append":
            first_seq, last_seq = map(int, what[-1].split("-"))
            assert (int(what[1]), first_seq) == (last_seq - records, records + 1), shown
            records = last_seq
        wanted[version] = {0: (records, records, 1, records)} if records else {}
    for found in (count(kind, path, java_home, [*wanted, None]), duckdb_scans.count(kind, path, [*wanted, None])):
        assert dict(zip(wanted, found, strict=False)) == wanted, shown
        assert found[-1] == {0: (70, 70, 1, 70)}
    assert records == 70, shown


#: How many of the 70 rows each finds: files lack columns that were added later, and have texts too long for a bound.
CONDITIONS = {
    "seq > 65": 5,
    "n IS NULL": 20,
    "n IS NOT NULL": 50,
    "n >= 40": 30,
    "text > 'c'": 10,
    "text IS NULL": 60,
    "ratio > 1": 4,
    "ratio <= 1": 6,
    "timestamp > TIMESTAMP '2020-01-01 00:00:00'": 70,
    "topic = 'read'": 70,
}


@pytest.mark.parametrize("kind", TABLES)
def test_filters_find_every_row_of_a_table_whose_columns_have_changed(
    tmp_path: Path, java_home: str, kind: str
) -> None:
    out = str(tmp_path / "out")
    Path(out).mkdir()
    with SmallSegments(tmp_path / "broker") as broker, Exports(broker.url, out) as exports:
        for first, many, ddl in ((0, 20, ""), (20, 40, "n int"), (60, 10, "n int, text string, ratio double")):
            data = [{"n": first + at} for at in range(many)]
            if first == 60:
                data = [each | {"text": "c" * 5000, "ratio": at / 5} for at, each in enumerate(data)]
            broker.client.append(TOPIC, [NewRecord(data=json.dumps(each).encode()) for each in data])
            broker.append(TOPIC, 0)
            values = value_shape(ddl, arrow_schema().names) if ddl else None
            exports.export(TOPIC, parts=PartSettings(kind=kind), values=values)
        check_filters(exports, kind, java_home)
        if kind == DELTA:
            shape = value_shape("n bigint", arrow_schema().names)
            assert widen(exports.store, TOPIC, shape, lambda done, of: None).rows == 70
            check_filters(exports, kind, java_home)


def check_filters(exports: Exports, kind: str, java_home: str) -> None:
    path = whereabouts_of(exports.store, TOPIC)
    for found in (
        duckdb_scans.count(kind, path, conditions=[*CONDITIONS]),
        count(kind, path, java_home, conditions=[*CONDITIONS]),
    ):
        rows = [sum(rows for rows, *_ in each.values()) for each in found]
        assert dict(zip(CONDITIONS, rows, strict=True)) == CONDITIONS
