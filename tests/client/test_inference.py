"""Inferred types: the documented table, and that every value of the sample fits the columns made from it."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.values import Column, Texts, ValueShape, parse, parse_schema
from topics_client.column_types import ddl_of
from topics_client.inference import MAX_DEPTH, MAX_MEMBERS, Inference
from topics_client.json_schema import schema_of


def inferred(*texts: str, **options: Any) -> str:
    found = Inference()
    for text in texts:
        found.add(text)
    return ddl_of(found.fields(**options))


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "-5"], "bigint"),
        (["9223372036854775807", "-9223372036854775808"], "bigint"),
        (["1", "9223372036854775808"], "decimal(38,0)"),
        (["1" + "0" * 38], "double"),
        (["1e3"], "double"),
        (["1.0", "5"], "double"),
        (["1.5", "2"], "double"),
        (["0.1", "1e-7"], "double"),
        (["0.12345678901234567890"], "decimal(38,19)"),
        (["1.5", "9007199254740993"], "decimal(38,1)"),
        (["1e400"], "double"),
        (["0.5e-40"], "double"),
        (["true", "false"], "boolean"),
        (["true", "1"], "string"),
        (['"x"', "1"], "string"),
        (['"2024-01-31"'], "date"),
        (['"2024-02-31"'], "string"),
        (['"2024-01-31"', '"2024-01-31T10:00:00"'], "timestamp_ntz"),
        (['"2024-01-31"', '"2024-01-31 10:00:00.5+01:00"'], "timestamp"),
        (['"2024-01-31T10:00:00"', '"2024-01-31T10:00:00Z"'], "timestamp"),
        (['"2024-01-31"', '"soon"'], "string"),
        (['"2024-01-31"', "5"], "string"),
        (["null"], "string"),
        (["null", "5"], "bigint"),
        (["[]"], "array<string>"),
        (["[1,null]", "[2.5]", "[]"], "array<double>"),
        (["[1]", "1"], "string"),
        (["[[1]]"], "array<array<bigint>>"),
        (["{}"], "string"),
        (['{"a":1}', '{"b":"x","a":null}'], "struct<a:bigint,b:string>"),
        (['{"a":1}', "[1]"], "string"),
        (['{"a":{"c d":[{"e":1}]}}'], "struct<a:struct<`c d`:array<struct<e:bigint>>>>"),
        (['{"a":1,"A":2}'], "map<string,bigint>"),
        (["{" + ",".join(f'"k{n}":{n}.5' for n in range(MAX_MEMBERS + 1)) + "}"], "map<string,double>"),
    ],
)
def test_types_of_values(values: list[str], kind: str) -> None:
    assert inferred(*(f'{{"v":{value}}}' for value in values)) == f"v {kind}"
    assert inferred(*(f'{{"v":{value}}}' for value in reversed(values))).split("<")[0] == f"v {kind}".split("<")[0]


def test_decimals_are_preferred_on_request() -> None:
    assert inferred('{"v":1.25}', '{"v":3}', prefer_decimal=True) == "v decimal(38,2)"
    assert inferred('{"v":3}', prefer_decimal=True) == "v bigint"


def test_what_is_nested_too_deep_is_a_string() -> None:
    text = '{"v":' + "[" * 30 + "1" + "]" * 30 + "}"
    assert inferred(text) == "v " + "array<" * (MAX_DEPTH - 1) + "string" + ">" * (MAX_DEPTH - 1)


def test_names_that_differ_in_case_give_one_column() -> None:
    found = Inference()
    found.add('{"id":1,"ID":"x","b":1}')
    assert ddl_of(found.fields()) == "id bigint, b bigint"
    assert found.spellings == [["id", "ID"]]


def test_values_that_are_not_objects_are_counted() -> None:
    found = Inference()
    for text in ('{"a":1}', "null", "[1]", "5", "nope", '"x"', b"\xff", '{"a":NaN}'):
        found.add(text)
    assert (found.objects, found.nulls, found.others) == (1, 1, 6)


numbers = st.one_of(
    st.integers(-(1 << 66), 1 << 66).map(str),
    st.from_regex(r"\A-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,2})?\Z"),
)
texts = st.one_of(
    st.text(max_size=5), st.dates().map(str), st.datetimes().map(str), st.sampled_from(["2024-01-01T00:00Z", "NaN"])
)
leaves = st.one_of(numbers, texts.map(json.dumps), st.sampled_from(["true", "false", "null"]))
names = st.sampled_from(["a", "b", "c c", "`", "é"]).map(lambda name: json.dumps(name))
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda each: "[" + ",".join(each) + "]"),
        st.dictionaries(names, inner, max_size=3).map(
            lambda each: "{" + ",".join(f"{k}:{v}" for k, v in each.items()) + "}"
        ),
    ),
    max_leaves=6,
)
objects = st.dictionaries(names, values, max_size=3).map(
    lambda each: "{" + ",".join(f"{k}:{v}" for k, v in each.items()) + "}"
)


@given(st.lists(objects, min_size=1, max_size=6), st.booleans())
def test_every_value_of_the_sample_fits_its_columns(sample: list[str], prefer_decimal: bool) -> None:
    found = Inference()
    for text in sample:
        found.add(text)
    fields = found.fields(prefer_decimal=prefer_decimal)
    if not fields:
        return
    assert parse_schema(ddl_of(fields)) == fields
    assert parse_schema(json.dumps(schema_of(fields))) == fields
    shape = ValueShape(tuple(Column(each.name, each.name, each.type) for each in fields))
    result = parse(shape, Texts.of(pa.array([text.encode() for text in sample], pa.binary())))
    assert not result.bad.any()
    for text in sample:
        # A null in every row of a column would also fit: what is not null there must not be null here.
        row = result.arrays
        members = json.loads(text)
        at = sample.index(text)
        for field, column in zip(fields, row[:-1], strict=True):
            if members.get(field.name) is not None:
                assert column[at].is_valid
