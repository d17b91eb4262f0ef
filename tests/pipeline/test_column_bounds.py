"""Readers of Delta tables leave files out by the statistics of their columns: they lose no row by that."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from hypothesis import given
from hypothesis import strategies as st

from pipeline.export.column_bounds import ColumnBounds
from pipeline.export.part_settings import PartSettings
from pipeline.schema import arrow_schema
from pipeline.values import value_shape
from tests.pipeline.exports import Exports
from tests.support.small_segments import SmallSegments
from topics_client import NewRecord

AT = datetime(2026, 1, 31, 12, 0, 0, 1, UTC)
#: Values of each type that is a column's, least first; some texts are longer than a bound.
VALUES: dict[str, tuple[Any, list[Any]]] = {
    "text": (
        pa.string(),
        ["", "a", "b" * 31 + "é", "b" * 40, "b" * 5000, "b" * 31 + "\ud7ff\ue000", "c\U0010ffff" * 40],
    ),
    "whole": (pa.int64(), [-(2**63), -1, 0, 7, 2**63 - 1]),
    "small": (pa.int8(), [-128, 0, 127]),
    "number": (pa.float64(), [-1.7e308, -0.0, 1.5, 1.7e308]),
    "single": (pa.float32(), [-1.5, 0.0, 0.10000000149011612]),
    "amount": (pa.decimal128(30, 2), [Decimal("-99999999999999999999.99"), Decimal("0.00"), Decimal("1.50")]),
    "day": (pa.date32(), [date(1, 1, 1), date(2026, 1, 31)]),
    "time": (pa.timestamp("us", "UTC"), [AT, AT.replace(microsecond=999_999)]),
    "local": (pa.timestamp("us"), [AT.replace(tzinfo=None), AT.replace(tzinfo=None, microsecond=999_999)]),
    "flag": (pa.bool_(), [False, True]),
    "raw": (pa.binary(), [b"", b"\x00\xff"]),
}
COLUMNS = pa.schema([pa.field(name, kind) for name, (kind, _) in VALUES.items()])


def stats_of(rows: list[dict[str, Any]], columns: pa.Schema = COLUMNS) -> dict[str, Any]:
    """The statistics of a file with these rows, two of them to a row group."""
    bounds = ColumnBounds(columns)
    for first in range(0, len(rows), 2):
        bounds.add(pa.Table.from_pylist(rows[first : first + 2], columns))
    return json.loads(bounds.stats(), parse_float=Decimal)  # a float would round an amount


def value_of(name: str, text: Any) -> Any:
    """A bound as a value that compares with those of its column."""
    if name in ("time", "local"):
        return datetime.fromisoformat(text)
    if name == "day":
        return date.fromisoformat(text)
    return float(text) if name in ("number", "single") else text


@given(
    st.lists(
        st.fixed_dictionaries({name: st.none() | st.sampled_from(values) for name, (_, values) in VALUES.items()}),
        min_size=1,
        max_size=6,
    )
)
def test_bounds_contain_every_value(rows: list[dict[str, Any]]) -> None:
    found = stats_of(rows)
    assert found["numRecords"] == len(rows)
    for name in VALUES:
        values = [row[name] for row in rows if row[name] is not None]
        assert found["nullCount"][name] == len(rows) - len(values)
        if not values or name in ("flag", "raw"):
            assert name not in found["minValues"]
            assert name not in found["maxValues"]
        else:
            assert value_of(name, found["minValues"][name]) <= min(values)
            assert value_of(name, found["maxValues"][name]) >= max(values)


def test_bounds_are_exact_where_they_can_be() -> None:
    found = stats_of([{"text": "a", "whole": 3, "day": date(2026, 1, 1)}, {"text": "ab", "whole": 5}])
    assert (found["minValues"], found["maxValues"]) == (
        {"text": "a", "whole": 3, "day": "2026-01-01"},
        {"text": "ab", "whole": 5, "day": "2026-01-01"},
    )


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), float("-inf")])
def test_a_file_with_numbers_beyond_all_bounds_has_none(odd: float) -> None:
    assert stats_of([{"number": 1.0}, {"number": odd}, {"number": 2.0}]) == {"numRecords": 3}


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("b" * 32, "b" * 32),
        ("b" * 33, "b" * 31 + "c"),
        ("b" * 31 + "\ud7ff!", "b" * 31 + "\ue000"),
        ("b" * 30 + "\U0010ffff" * 9, "b" * 29 + "c"),
    ],
)
def test_a_bound_that_is_a_long_text_is_cut(text: str, bound: str) -> None:
    found = stats_of([{"text": text}])
    assert (found["minValues"]["text"], found["maxValues"]["text"]) == (text[:32], bound)
    assert bound >= text


def test_a_file_with_a_text_that_no_short_one_is_after_has_none() -> None:
    assert stats_of([{"text": "\U0010ffff" * 40}]) == {"numRecords": 1}


@pytest.mark.parametrize(
    ("microsecond", "bound"), [(999_000, "9999-12-31T23:59:59.999Z"), (998_001, "9999-12-31T23:59:59.999Z")]
)
def test_the_last_time_that_is_a_bound(microsecond: int, bound: str) -> None:
    last = datetime(9999, 12, 31, 23, 59, 59, microsecond, UTC)
    assert stats_of([{"time": last}])["maxValues"] == {"time": bound}


def test_a_file_with_a_time_that_no_millisecond_is_after_has_none() -> None:
    assert stats_of([{"time": datetime.max.replace(tzinfo=UTC)}, {"time": AT}]) == {"numRecords": 2}
    assert stats_of([{"local": datetime.max}]) == {"numRecords": 1}


def test_a_file_with_structs_has_none() -> None:
    columns = pa.schema([pa.field("whole", pa.int64()), pa.field("s", pa.struct([pa.field("a", pa.int64())]))])
    assert stats_of([{"whole": 1, "s": {"a": 1}}], columns) == {"numRecords": 1}


def test_filters_of_all_readers_find_every_row(broker: SmallSegments, exports: Exports) -> None:
    """Over files with and without values of a column, and long texts."""
    typed = "n int, text string, moment timestamp, amount decimal(12,2), ratio double, list array<int>"
    shape = value_shape(typed, arrow_schema(headers=True).names)
    for first, more in ((0, '"text":"b"'), (3, f'"text":"{"c" * 5000}"'), (6, '"ratio":0.5'), (9, '"ratio":"NaN"')):
        members = [more, '"moment":"2026-01-31T12:00:00.000001Z"', '"amount":1.50']
        data = [f'{{"n":{first + count},{",".join(members[: count + 1])}}}'.encode() for count in range(3)]
        broker.client.append("filtered", [NewRecord(data=each) for each in data])
        broker.append("filtered", 0)
        exports.export("filtered", parts=PartSettings(kind="delta"), headers=True, values=shape)
    table: Any = DeltaTable(Path(exports.job.to, "filtered"))
    dataset, whole = table.to_pyarrow_dataset(), table.to_pyarrow_table()
    assert len(whole) == 12
    builder: Any = QueryBuilder().register("filtered", table)
    for condition, count in {
        "n >= 2": 10, "n IS NULL": 0, "seq >= 11": 2, "text = 'b'": 3, "text IS NULL": 6, "text > 'c'": 3,
        "ratio = 0.5": 3, "ratio IS NULL": 6, "ratio IS NOT NULL": 6, "amount = 1.50": 4, "amount IS NULL": 8,
        "moment IS NOT NULL": 8, "moment >= TIMESTAMPTZ '2026-01-31 12:00:00.000001Z'": 8, "key IS NULL": 12,
        "list IS NULL": 12, "timestamp > TIMESTAMPTZ '2020-01-01 00:00:00Z'": 12, "node IS NULL": 12,
    }.items():  # fmt: skip
        with duckdb.connect() as connection:
            for relation in (dataset, whole):
                connection.register("filtered", relation)
                found = connection.sql(f"SELECT count(*) FROM filtered WHERE {condition}").fetchall()
                assert found == [(count,)], condition
        said = condition.replace("TIMESTAMPTZ", "TIMESTAMP")
        assert len(builder.execute(f"SELECT seq FROM filtered WHERE {said}").read_all()["seq"]) == count, condition
