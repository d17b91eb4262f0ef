"""JSON Schemas as columns, and columns as JSON Schemas."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from topics_client.column_types import ddl_of
from topics_client.inference import Inference
from topics_client.json_schema import NotATable, schema_of, struct_of


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"type": "integer"}, "bigint"),
        ({"type": ["null", "integer"], "format": "int32"}, "int"),
        ({"type": "integer", "maximum": 2**64}, "decimal(38,0)"),
        ({"type": "number"}, "double"),
        ({"type": ["integer", "number"]}, "double"),
        ({"type": "number", "format": "float"}, "float"),
        ({"type": "number", "format": "decimal(20,4)"}, "decimal(20,4)"),
        ({"type": "number", "format": "decimal(4,20)"}, "double"),
        ({"type": "boolean"}, "boolean"),
        ({"type": "string"}, "string"),
        ({"type": "string", "format": "date-time"}, "timestamp"),
        ({"type": "string", "format": "local-date-time"}, "timestamp_ntz"),
        ({"type": "string", "format": "date"}, "date"),
        ({"type": "string", "format": "email"}, "string"),
        ({"type": "string", "contentEncoding": "base64"}, "binary"),
        ({"type": ["string", "integer"]}, "string"),
        ({"type": "null"}, "string"),
        ({}, "string"),
        (True, "string"),
        ({"enum": ["a", None]}, "string"),
        ({"enum": [1, 2]}, "bigint"),
        ({"const": True}, "boolean"),
        ({"type": "array", "items": {"type": "number"}}, "array<double>"),
        ({"type": "array"}, "array<string>"),
        ({"type": "object"}, "string"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "map<string,bigint>"),
        ({"properties": {"b": {"type": "integer"}}}, "struct<b:bigint>"),
        ({"anyOf": [{"type": "null"}, {"type": "integer"}]}, "bigint"),
        ({"oneOf": [{"type": "number"}, {"type": "integer"}]}, "double"),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, "string"),
        ({"$ref": "#/$defs/x~1y"}, "struct<z:bigint>"),
        ({"allOf": [{"$ref": "#/$defs/x~1y"}, {"properties": {"w": {}}}]}, "struct<z:bigint,w:string>"),
    ],
)  # fmt: skip
def test_types_of_a_schema(schema: Any, kind: str) -> None:
    defs = {"x/y": {"type": "object", "properties": {"z": {"type": "integer"}}}}
    document = {"type": "object", "properties": {"a": schema}, "$defs": defs}
    assert ddl_of(struct_of(json.dumps(document)).fields) == f"a {kind}"


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("[1]", "must describe an object"),
        ("{}", "must describe an object"),
        ('{"type":"object"}', "must describe an object"),
        ('{"properties":{"a":{"$ref":"other.json"}}}', "leads out of the document"),
        ('{"properties":{"a":{"$ref":"#/$defs/x"}}}', "leads to nothing"),
        ('{"$ref":"#"}', "refers to itself"),
        ("nope", "neither a DDL nor JSON"),
    ],
)
def test_what_gives_no_columns_is_refused(schema: str, message: str) -> None:
    with pytest.raises(NotATable, match=message):
        struct_of(schema)


def test_the_schema_of_a_sample_accepts_the_sample() -> None:
    rows = [
        {"id": 1, "x": 1.5, "s": "a", "o": {"p": [1, None], "q": "2024-01-01"}, "mixed": 1, "big": 1 << 64},
        {"id": None, "s": "b", "o": None, "mixed": "x", "b": True, "t": "2024-01-01T00:00:00Z"},
    ]
    found = Inference()
    for row in rows:
        found.add(json.dumps(row))
    schema = schema_of(found.fields())
    for row in rows:
        jsonschema.validate(row, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"o": {"p": "no array"}}, schema)
    assert struct_of(json.dumps(schema)).fields == found.fields()
