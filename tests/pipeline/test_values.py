"""Typed columns: the same as a plain reading with the json module, for any schema and any values."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import BadOption
from pipeline.values import Column, Texts, ValueShape, arrow_field, parse, parse_schema, type_named, value_shape
from tests.pipeline.values_reference import row_of
from topics_client import column_types as t

NAMES = ("a", "b", "é", "two words", "quo`te", "Z9")
scalars = st.sampled_from([*map(t.Scalar, t.SCALARS), t.Decimal(38, 9), t.Decimal(9, 2), t.Decimal(5, 5)])


def _parts(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    members = st.lists(st.tuples(st.sampled_from(NAMES), inner), min_size=1, max_size=3, unique_by=lambda pair: pair[0])
    return st.one_of(
        inner.map(t.Array),
        inner.map(t.Map),
        members.map(lambda pairs: t.Struct(tuple(t.Field(*pair) for pair in pairs))),
    )


types = st.recursive(scalars, _parts, max_leaves=5)
schemas = st.lists(
    st.tuples(st.sampled_from(NAMES), types), min_size=1, max_size=4, unique_by=lambda pair: pair[0]
).map(lambda pairs: tuple(t.Field(*pair) for pair in pairs))
numerals = st.one_of(
    st.integers(-(1 << 70), 1 << 70).map(str),
    st.integers(-200, 200).map(str),
    st.from_regex(r"\A-?(0|[1-9][0-9]{0,24})(\.[0-9]{1,24})?([eE][+-]?[0-9]{1,3})?\Z"),
)
strings = st.one_of(
    st.text(max_size=8),
    numerals,
    st.datetimes().map(lambda moment: moment.isoformat()),
    st.dates().map(lambda day: day.isoformat()),
    st.sampled_from(
        ["NaN", "-Infinity", "INF", "nan", "", "YWJj", "YWI=", "2024-02-30", "2024-02-29 10:00+01", "\ud800"]
    ),
)  # fmt: skip


class _Encoded:
    """The JSON text of a value, written with the given spaces and escapes."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _dump(value: Any, ascii: bool) -> str:
    if isinstance(value, _Encoded):
        return value.text
    if isinstance(value, list):
        return "[" + ",".join(_dump(each, ascii) for each in value) + "]"
    if isinstance(value, dict):
        return (
            "{"
            + ",".join(json.dumps(k, ensure_ascii=ascii) + ":" + _dump(each, ascii) for k, each in value.items())
            + "}"
        )
    return json.dumps(value, ensure_ascii=ascii or (isinstance(value, str) and "\ud800" in value))


def _fitting(kind: t.ColumnType) -> st.SearchStrategy[Any]:
    """Values that mostly fit."""
    if isinstance(kind, t.Struct):
        members = {each.name: _fitting(each.type) for each in kind.fields}
        return st.one_of(st.fixed_dictionaries(members), st.fixed_dictionaries({}, optional=members))
    if isinstance(kind, t.Array):
        return st.lists(_fitting(kind.element), max_size=3)
    if isinstance(kind, t.Map):
        return st.dictionaries(st.text('xyé"', max_size=3), _fitting(kind.value), max_size=3)
    numbers = numerals.map(_Encoded)
    if isinstance(kind, t.Decimal):
        return numbers
    if kind.name == "boolean":
        return st.booleans()
    if kind.name == "string":
        return st.one_of(strings, st.booleans(), st.lists(st.booleans(), max_size=2))
    return numbers if kind.name in ("tinyint", "smallint", "int", "bigint", "float", "double") else strings


def _values(kind: t.ColumnType) -> st.SearchStrategy[Any]:
    return st.one_of(
        _fitting(kind), _fitting(kind), _fitting(kind), st.none(), st.booleans(), strings, st.just([]), st.just({})
    )


@st.composite
def samples(draw: st.DrawFn) -> tuple[tuple[t.Field, ...], list[bytes | None]]:
    fields = draw(schemas)
    members = {each.name: _values(each.type) for each in fields} | {"other": st.just([{"deep": "x"}])}
    objects = st.one_of(
        st.fixed_dictionaries({}, optional=members),
        st.fixed_dictionaries({each.name: _fitting(each.type) for each in fields}),
    )
    texts = st.tuples(objects, st.booleans()).map(lambda pair: _dump(*pair).encode())
    odd = st.sampled_from(
        [None, b"", b"null", b" null ", b"[1]", b'"text"', b"7", b"nope", b'{"a":1', b"\xff", b' {"a" : 1 , "a":2 }\n']
    )
    return fields, draw(st.lists(st.one_of(texts, texts, texts, odd), max_size=6))


def shape(fields: tuple[t.Field, ...], **more: Any) -> ValueShape:
    return ValueShape(tuple(Column(each.name, each.name, each.type) for each in fields), **more)


def parsed(fields: tuple[t.Field, ...], values: list[bytes | None]) -> tuple[list[dict[str, Any]], list[bool]]:
    wanted = shape(fields)
    found = parse(wanted, Texts.of(pa.array(values, pa.binary())))
    batch = pa.RecordBatch.from_arrays(found.arrays, schema=pa.schema(wanted.fields()))
    batch.validate(full=True)
    return batch.to_pylist(), found.bad.tolist()


def same(one: Any, other: Any) -> bool:
    """Equal, and NaN equals NaN."""
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


def ordered(value: Any, kind: t.ColumnType) -> Any:
    """The value with the entries of its maps in order."""
    if value is None:
        return None
    if isinstance(kind, t.Struct):
        return {each.name: ordered(value[each.name], each.type) for each in kind.fields}
    if isinstance(kind, t.Array):
        return [ordered(each, kind.element) for each in value]
    return sorted((name, ordered(each, kind.value)) for name, each in value) if isinstance(kind, t.Map) else value


@given(samples())
def test_columns_are_those_of_the_plain_reading(sample: tuple[tuple[t.Field, ...], list[bytes | None]]) -> None:
    fields, values = sample
    rows, bad = parsed(fields, values)
    for value, row, is_bad in zip(values, rows, bad, strict=True):
        expected = row_of(value, fields)
        assert is_bad == (expected is None)
        if expected is None:
            assert value is not None
            assert row.pop("_corrupt_record") == value.decode("utf-8", "replace")
            assert set(row.values()) == {None}
        else:
            assert row.pop("_corrupt_record") is None
            found = {each.name: ordered(row[each.name], each.type) for each in fields}
            assert same(found, {each.name: ordered(expected[each.name], each.type) for each in fields})


@given(schemas)
def test_a_schema_is_read_as_it_is_written(fields: tuple[t.Field, ...]) -> None:
    assert parse_schema(t.ddl_of(fields)) == fields
    assert parse_schema(str(t.Struct(fields))) == fields


def test_decimals_keep_every_digit() -> None:
    fields = parse_schema("d decimal(38,18)")
    text = b'{"d":12345678901234567890.123456789012345678}'
    assert parsed(fields, [text])[0][0]["d"] == Decimal("12345678901234567890.123456789012345678")
    # A float cannot hold this number; the last digit counts.
    assert parsed(parse_schema("d decimal(20,0)"), [b'{"d":9007199254740993}'])[0][0]["d"] == Decimal(9007199254740993)
    assert parsed(parse_schema("d decimal(3,2)"), [b'{"d":1.005}', b'{"d":-1.005}', b'{"d":9.995}'])[1] == [
        False,
        False,
        True,
    ]


def test_text_columns_show_other_values_as_they_are_written() -> None:
    rows, _ = parsed(parse_schema("s string"), [b'{"s": {"b" : 1.50, "a":[ ]} }', b'{"s":1e5}', b'{"s":"a\\u00e9\\n"}'])
    assert [row["s"] for row in rows] == ['{"b" : 1.50, "a":[ ]}', "1e5", "aé\n"]


def test_fields_of_structs_in_arrays_and_maps_are_found() -> None:
    ddl = "o struct<lines:array<struct<sku:string,n:int>>,by map<string,struct<x:double>>>"
    text = b'{"o":{"lines":[{"sku":"a","n":1,"more":{}},null,{"n":2}],"by":{"k":{"x":1.5},"l":null,"k":{"x":2}}}}'
    (row,), _ = parsed(parse_schema(ddl), [text])
    assert row["o"] == {
        "lines": [{"sku": "a", "n": 1}, None, {"sku": None, "n": 2}],
        "by": [("l", None), ("k", {"x": 2.0})],
    }


def test_a_column_of_a_slice_has_the_values_of_the_slice() -> None:
    array = pa.array([b'{"a":1}', None, b'{"a":2}', b'{"a":"x"}', b'{"a":3}'], pa.binary()).slice(1, 3)
    found = parse(shape(parse_schema("a int")), Texts.of(array))
    assert found.arrays[0].to_pylist() == [None, 2, None]
    assert found.bad.tolist() == [False, False, True]


@pytest.mark.parametrize(
    ("ddl", "fields"),
    [
        ("a int", [("a", "int")]),
        ("a INTEGER, b Long,c: byte", [("a", "int"), ("b", "bigint"), ("c", "tinyint")]),
        ("a decimal, b numeric(5), c DEC(5,2)", [("a", "decimal(10,0)"), ("b", "decimal(5,0)"), ("c", "decimal(5,2)")]),
        ("`a b` string NOT NULL COMMENT 'it''s', ` `` ` real", [("a b", "string"), (" ` ", "float")]),
        ("a array<array<int>>, m map<string,array<double>>",
         [("a", "array<array<int>>"), ("m", "map<string,array<double>>")]),
        ("s struct<x: int COMMENT \"c\", y struct<z timestamp_ltz>>", [("s", "struct<x:int,y:struct<z:timestamp>>")]),
        ("struct<a:int,b:string>", [("a", "int"), ("b", "string")]),
        ("`` int, a struct<``:int>", [("", "int"), ("a", "struct<``:int>")]),
        ("date date, timestamp timestamp", [("date", "date"), ("timestamp", "timestamp")]),
        ("a timestamp without time zone, b array<TIMESTAMP WITH LOCAL TIME ZONE>",
         [("a", "timestamp_ntz"), ("b", "array<timestamp>")]),
        ("a int, -- the first, int\nb/**/int /* a b,\n */ not /**/ null -- end", [("a", "int"), ("b", "int")]),
        (r"""a int comment 'x' "y" 'it\'s', b int comment r'\', c int comment '--', `--` int""",
         [("a", "int"), ("b", "int"), ("c", "int"), ("--", "int")]),
        ("a string collate UTF8_BINARY not null, `r` int", [("a", "string"), ("r", "int")]),
        ('{"properties":{"a":{"type":"integer"},"b":{"type":["string","null"]}}}', [("a", "bigint"), ("b", "string")]),
    ],
)  # fmt: skip
def test_ways_to_write_a_schema(ddl: str, fields: list[tuple[str, str]]) -> None:
    assert [(each.name, str(each.type)) for each in parse_schema(ddl)] == fields


@pytest.mark.parametrize(
    ("ddl", "message"),
    [
        ("", "has no columns"),
        ("a", "ends where a type should be"),
        ("a int b int", r"a comma or the end should be where 'b' is \(character 7\)"),
        ("a int,, b int", r"the name of a column should be where ',' is \(character 7\)"),
        ("a integers", r"a type \(boolean, tinyint.* should be where 'integers' is"),
        ("a array<int", "ends where > should be"),
        ("a array int", "< should be where 'int' is"),
        ("a map<int,int>", "the keys of a map are strings"),
        ("a struct<>", "the name of a column should be where '>' is"),
        ("a decimal(39,0)", r"decimal\(39,0\) must have 1 to 38 digits"),
        ("a decimal(5,6)", r"decimal\(5,6\) must have"),
        ("a decimal(x)", "a number should be where 'x' is"),
        ("a varchar(5)", "varchar is not a type of typed columns: use string"),
        ("a int not", "ends where NULL should be"),
        ("a int comment 5", "a text in quotes should be"),
        ("a int,", "ends where the name of a column should be"),
        ("a struct<b:int,>", "valueSchema: a: the name of a column should be where '>' is"),
        ("a int, b array<struct<`x.y`:map<int,int>>>", "valueSchema: b.`x.y`: the keys of a map are strings"),
        ("a int, b struct<c:struct<d:decimal(39)>>", r"valueSchema: b.c.d: decimal\(39,0\) must have"),
        ("a struct<b:int, c:variant>", "valueSchema: a.c: variant is not a type"),
        ("a struct<b:int>, c nonsense", r"valueSchema: c: a type \(boolean"),
        ("a timestamp with time zone", "a comma or the end should be where 'with' is"),
        ("a timestamp_ltz without time zone", "a comma or the end should be where 'without' is"),
        ("a string collate UNICODE", "valueSchema: a: typed columns have no collation but UTF8_BINARY"),
        ("a int /* open", "a comma or the end should be where '/' is"),
        ("a int, A string", "has both a and A"),
        ("a int, a string", "has a twice"),
        ("s struct<x:int,X:int>", "valueSchema: s has both x and X"),
        ("a " + "array<" * 65 + "int" + ">" * 65, "nested more than 64 deep"),
        ("`" + "n" * 1025 + "` int", "a name of more than 1024 bytes"),
        ("{nope", "neither a DDL nor JSON"),
        ('{"type":"array"}', "must describe an object with `properties`"),
        ('{"properties":{"a":{"$ref":"https://x"}}}', "leads out of the document"),
        ('{"properties":{"a":{"$ref":"#"}}}', "refers to itself"),
    ],
)
def test_a_wrong_schema_is_refused_where_it_is_wrong(ddl: str, message: str) -> None:
    with pytest.raises(BadOption, match=message):
        parse_schema(ddl)


def test_a_name_of_the_record_is_refused_or_gets_a_prefix() -> None:
    record = ["key", "seq", "topic"]
    with pytest.raises(BadOption, match=r"has a column Seq, but seq is a column of the record. Set valuePrefix"):
        value_shape("Seq bigint", record)
    found = value_shape("Seq bigint, x int", record, prefix="value_")
    assert [(each.name, each.member) for each in found.columns] == [("value_Seq", "Seq"), ("value_x", "x")]
    arrays = parse(found, Texts.of(pa.array([b'{"Seq":5,"x":6,"value_x":7}'], pa.binary()))).arrays
    assert [each.to_pylist() for each in arrays] == [[5], [6], [None]]
    for corrupt in ("", "x", "KEY"):
        with pytest.raises(BadOption, match="columnNameOfCorruptRecord"):
            value_shape("x int", record, corrupt=corrupt)
    with pytest.raises(BadOption, match="mode must be permissive, failfast or dropmalformed, not 'strict'"):
        value_shape("x int", record, mode="strict")


def test_only_what_is_requested_is_parsed() -> None:
    found = value_shape("a int, b int", [])
    assert found.only(["seq"]) is None
    narrow = found.only(["b"])
    assert narrow is not None
    result = parse(narrow, Texts.of(pa.array([b'{"a":"no number","b":1}'], pa.binary())))
    assert [each.to_pylist() for each in result.arrays] == [[1]]
    assert not result.bad.any()


def _is_json(text: bytes | None) -> bool:
    try:
        json.loads(text or b"")
    except ValueError:
        return False
    return True


@given(samples())
def test_values_that_are_known_to_be_json_are_read_the_same(
    sample: tuple[tuple[t.Field, ...], list[bytes | None]],
) -> None:
    fields, values = sample
    texts = Texts.of(pa.array(filter(_is_json, values), pa.binary()))
    expected, found = parse(shape(fields), texts), parse(shape(fields), texts._replace(sure=True))
    assert found.bad.tolist() == expected.bad.tolist()
    assert same([each.to_pylist() for each in found.arrays], [each.to_pylist() for each in expected.arrays])


@pytest.mark.parametrize("ddl", ["a array<int>", "a map<string,int>", "a struct<b:int>", "a array<struct<b:int>>"])
@pytest.mark.parametrize("text", ["[1,]", "[1 2]", '{"b":1,}', '{"b":x}', '[{"b":1},{"b":01}]', '{"b"}', "[nul]"])
def test_parts_of_a_requested_value_are_checked_also_in_text_that_is_known_to_be_json(ddl: str, text: str) -> None:
    """A defect of the writer does not become an empty list."""
    texts = Texts.of(pa.array([f'{{"a":{text}}}'.encode(), b'{"a":null}'], pa.binary()))
    found = parse(shape(parse_schema(ddl)), texts._replace(sure=True))
    assert found.bad.tolist() == [True, False]
    assert found.arrays[0].to_pylist() == [None, None]


@pytest.mark.parametrize(
    "ddl",
    ["a bigint, b tinyint, c timestamp, d timestamp_ntz", "a decimal(10,2), b array<struct<`x y`:map<string,date>>>"],
)
def test_the_types_of_arrow_have_the_words_of_ddl(ddl: str) -> None:
    for field in parse_schema(ddl):
        assert type_named(arrow_field(field).type) == field.type
