"""The rows of a frame become records of the right form, and what cannot be stored is refused by name."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.types import ArrayType, StructType

from pipeline.errors import BadOption
from pipeline.source.rows import RawRow, Row, row_of
from pipeline.source.writer import Target

#: Spark's names of types in DDL, and those that it understands without a JVM.
_JSON_NAMES = {"int": "integer", "bigint": "long"}
PLACE = {"url": "http://there:1", "topic": "t"}


@pytest.mark.parametrize(
    ("cells", "row"),
    [
        ({"value": '{"a": 1}'}, Row(b'{"a": 1}')),
        ({"value": b'{"a": 1}', "key": b"k"}, Row(b'{"a": 1}', "k")),
        ({"value": "1", "tag": "k", "partition": 2}, Row(b"1", "k", partition=2)),
        ({"value": "1", "key": None, "node": "n", "meta": '{"m":1}'}, Row(b"1", None, "n", b'{"m":1}')),
        # Spaces around JSON text stay where a record can have them.
        ({"value": ' {"a":1}\n', "key": "k"}, RawRow(b' {"a":1}\n', b"k")),
        (
            {"value": "\t1", "meta": '{"h":"x"}', "headers": [{"key": "h", "value": b"x"}]},
            RawRow(b"\t1", None, [("h", b"x")]),
        ),
        ({"value": " 1", "node": "n"}, Row(b" 1", None, "n")),
        ({"value": "text"}, RawRow(b"text")),
        ({"value": "NaN"}, RawRow(b"NaN")),
        ({"value": b"\xff", "key": b"\xfe"}, RawRow(b"\xff", b"\xfe")),
        ({"value": None, "key": "k"}, RawRow(None, b"k")),
        ({"value": "1", "key": ""}, RawRow(b"1", b"")),
        ({"value": "1", "key": "k" * 257}, RawRow(b"1", b"k" * 257)),
        ({"value": "1", "headers": [{"key": "h", "value": None}]}, RawRow(b"1", None, [("h", None)])),
        ({"value": "1", "headers": []}, Row(b"1")),
        # As the source reads a record of /v0, and one of a Kafka client.
        (
            {
                "value": "1",
                "node": "n",
                "meta": '{"m":"x","n":1}',
                "headers": [{"key": "m", "value": b"x"}, {"key": "node", "value": b"n"}],
            },
            Row(b"1", None, "n", b'{"m":"x","n":1}'),
        ),
        (
            {"value": b"\xff", "meta": '{"m":"x"}', "headers": [{"key": "m", "value": b"x"}]},
            RawRow(b"\xff", None, [("m", b"x")]),
        ),
    ],
)
def test_a_row_has_the_form_of_its_contents(cells: dict[str, Any], row: Row | RawRow) -> None:
    assert row_of(cells) == row


@pytest.mark.parametrize(
    ("cells", "what"),
    [
        ({"value": "text", "node": "n"}, "has node or meta"),
        ({"value": "1", "meta": '{"a":1}', "headers": [{"key": "h", "value": b"x"}]}, "has node or meta"),
        ({"value": "1", "key": "a", "tag": "b"}, "a record has one of them"),
        ({"value": "1", "headers": [{"key": None, "value": b"x"}]}, "A header has no name"),
        ({"value": "1", "meta": "no JSON"}, "meta 'no JSON', which is not JSON text"),
        ({"value": "1", "meta": ""}, "For no meta it is null"),
    ],
)
def test_what_no_record_can_have_is_refused(cells: dict[str, Any], what: str) -> None:
    with pytest.raises(BadOption, match=what):
        row_of(cells)


def test_equal_contents_have_equal_digests() -> None:
    assert Row(b' {"a":1} ', "").digest == Row(b'{"a":1}').digest
    different = [
        RawRow(None),
        RawRow(b""),
        RawRow(b"a"),
        RawRow(b"a "),
        RawRow(b"a", b""),
        RawRow(b"a", None, [("h", None)]),
        RawRow(b"a", None, [("h", b"")]),
        RawRow(b"a", None, [("h", b""), ("h", b"")]),
        Row(b'"a"'),
        Row(b'"a"', "k"),
        Row(b'"a"', None, "k"),
    ]
    assert len({row.digest for row in different}) == len(different)


@pytest.mark.parametrize(
    ("ddl", "what"),
    [
        ("value string, headrs string", "Column headrs would be lost. Did you mean headers"),
        ("value string, colour string", "Column colour would be lost. Put it into value"),
        ("value int", "value is of type int, and must be string or binary"),
        ("value string, partition bigint", "partition is of type bigint, and must be int"),
        ("key string", "no column value"),
    ],
)
def test_columns_are_refused_by_name(ddl: str, what: str) -> None:
    with pytest.raises(BadOption, match=what):
        Target(PLACE, schema(ddl))


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({**PLACE, "diferentRows": "append"}, "Did you mean differentRows"),
        ({**PLACE, "kafka.acks": "all"}, "belongs to Spark's connector"),
        ({"kafka.bootstrap.servers": "a:9092", "topic": "t"}, "not a URL"),
        ({**PLACE, "allowShortIdempotencyWindow": "yes"}, "must be true or false"),
        ({"topic": "t"}, "Say where to write"),
        ({"url": "http://there:1"}, "Say which topic"),
    ],
)
def test_options_are_refused_by_name(options: dict[str, str], what: str) -> None:
    with pytest.raises(BadOption, match=what):
        Target(options, schema("value string"))


def test_every_column_of_a_read_can_be_written() -> None:
    names = (
        "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
        "timestampType int, seq bigint, node string, meta string"
    )
    header = StructType().add("key", "string").add("value", "binary")
    headers = schema(names).add("headers", ArrayType(header))
    assert Target({**PLACE, "checkpointLocation": "/c"}, headers).topic == "t"


def schema(ddl: str) -> StructType:
    """A schema from names and types, without a JVM."""
    found = StructType()
    for each in ddl.split(", "):
        name, kind = each.split()
        found = found.add(name, _JSON_NAMES.get(kind, kind))
    return found
