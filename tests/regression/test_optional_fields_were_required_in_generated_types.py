"""Type generators treat a field with a default as always present, so `default: null` made optional fields of answers
and requests required."""

from __future__ import annotations

from typing import Any

from broker.api.app import OPERATIONS
from broker.api.openapi import document

DOCUMENT = document(OPERATIONS)
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]


def test_no_schema_of_a_field_has_a_default() -> None:
    found = [
        f"{name}.{field}"
        for name, schema in SCHEMAS.items()
        for field, described in schema.get("properties", {}).items()
        if "default" in described
    ]
    assert found == []


def test_no_parameter_defaults_to_null_or_accepts_null() -> None:
    parameters = [
        parameter
        for operations in DOCUMENT["paths"].values()
        for operation in operations.values()
        for parameter in operation.get("parameters", ())
    ]
    assert parameters
    for parameter in parameters:
        schema = parameter["schema"]
        assert schema.get("default", ...) is not None, parameter["name"]
        assert {"type": "null"} not in schema.get("anyOf", ()), parameter["name"]


def test_optional_request_fields_accept_null_and_keep_their_default() -> None:
    limit = SCHEMAS["DiffRequest"]["properties"]["limit"]
    assert {"type": "null"} in limit["anyOf"]
    assert limit["anyOf"][0]["default"] == 256
    assert {"type": "null"} not in SCHEMAS["CommitRequest"]["properties"]["seq"].get("anyOf", ())
