"""Typed columns and JSON Schema: each as the other. Pure.

A part of a schema that fits no column type becomes `string`, which takes any value as JSON text.

Source: docs/guides/spark.md#types-from-a-json-schema.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, cast

from topics_client.column_types import MAX_DIGITS, Array, ColumnType, Decimal, Field, Map, Scalar, Struct, is_list

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
#: The most references that lead from one to the next.
_MAX_DEPTH = 64
_DECIMAL = re.compile(r"decimal\(([0-9]{1,2}),([0-9]{1,2})\)")
_TEXT = Scalar("string")
_FORMATS = {"date-time": "timestamp", "local-date-time": "timestamp_ntz", "date": "date"}
_INTEGERS = {"int8": "tinyint", "int16": "smallint", "int32": "int", "int64": "bigint"}
_BITS = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}
_KINDS = ("object", "array", "string", "number", "integer", "boolean", "null")


class NotATable(ValueError):
    """The schema does not describe an object with known members. `str(error)` says why."""


def struct_of(text: str | bytes) -> Struct:
    """The columns that a JSON Schema describes. Raises NotATable."""
    try:
        root = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NotATable(f"it is neither a DDL nor JSON: {error}.") from error
    found = _Schema(root).type(root, 0)
    if not isinstance(found, Struct):
        raise NotATable("the JSON Schema must describe an object with `properties`, each of which becomes a column.")
    return found


class _Schema:
    """One document, whose parts may refer to each other."""

    def __init__(self, root: Any) -> None:
        self._root = root

    def type(self, schema: Any, depth: int) -> ColumnType:
        if depth > _MAX_DEPTH:
            raise NotATable(f"the JSON Schema refers to itself, or is nested more than {_MAX_DEPTH} deep.")
        if not isinstance(schema, dict):
            return _TEXT
        given = cast("dict[str, Any]", schema)
        if "$ref" in given:
            return self.type(self._referred(given["$ref"]), depth + 1)
        for word in ("anyOf", "oneOf"):
            if isinstance(given.get(word), list):
                return _common([self.type(each, depth + 1) for each in given[word] if not _is_null(each)])
        if isinstance(given.get("allOf"), list):
            return self._all_of(given, depth)
        return self._by_kind(given, depth)

    def _referred(self, reference: Any) -> Any:
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise NotATable(f"$ref {reference!r} leads out of the document: write the schema that it means instead.")
        found = self._root
        for name in reference[1:].split("/")[1:]:
            name = name.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or name not in found:
                raise NotATable(f"$ref {reference!r} leads to nothing.")
            found = cast("dict[str, Any]", found)[name]
        return found

    def _all_of(self, given: dict[str, Any], depth: int) -> ColumnType:
        rest = {name: each for name, each in given.items() if name != "allOf"}
        parts = [self.type(each, depth + 1) for each in [*given["allOf"], *([rest] if "properties" in rest else [])]]
        structs = [each for each in parts if isinstance(each, Struct)]
        if not structs:
            return _common(parts)
        fields = {field.name: field for each in structs for field in each.fields}
        return Struct(tuple(fields.values()))

    def _by_kind(self, given: dict[str, Any], depth: int) -> ColumnType:
        kinds = _kinds_of(given)
        if kinds == ["object"]:
            return self._object(given, depth)
        if kinds == ["array"]:
            return Array(self.type(given.get("items"), depth + 1))
        if kinds == ["string"]:
            return _string(given)
        if kinds == ["boolean"]:
            return Scalar("boolean")
        if kinds and set(kinds) <= {"integer", "number"}:
            return _number(given, "number" not in kinds)
        return _TEXT

    def _object(self, given: dict[str, Any], depth: int) -> ColumnType:
        properties = given.get("properties")
        if isinstance(properties, dict) and properties:
            members = cast("dict[str, Any]", properties)
            return Struct(tuple(Field(name, self.type(each, depth + 1)) for name, each in members.items()))
        others = given.get("additionalProperties")
        return Map(self.type(others, depth + 1)) if isinstance(others, dict) else _TEXT


def _is_null(schema: Any) -> bool:
    return isinstance(schema, dict) and cast("dict[str, Any]", schema).get("type") == "null"


def _kinds_of(given: dict[str, Any]) -> list[str]:
    said = given.get("type")
    if said is None and "properties" in given:
        said = "object"
    values: Any = given.get("enum")
    if said is None and is_list(values):
        said = sorted({_kind_of(each) for each in values})
    if said is None and "const" in given:
        said = _kind_of(given["const"])
    words: list[Any] = said if is_list(said) else [said]
    return [word for word in words if word in _KINDS and word != "null"]


def _kind_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    kinds = {int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return kinds[type(value)]


def _string(given: dict[str, Any]) -> ColumnType:
    if given.get("contentEncoding") == "base64":
        return Scalar("binary")
    return Scalar(_FORMATS.get(str(given.get("format")), "string"))


def _number(given: dict[str, Any], is_whole: bool) -> ColumnType:
    said = str(given.get("format"))
    if (match := _DECIMAL.fullmatch(said)) and 0 <= int(match[2]) <= int(match[1]) <= MAX_DIGITS and int(match[1]):
        return Decimal(int(match[1]), int(match[2]))
    if not is_whole:
        return Scalar("float" if said == "float" else "double")
    bounds = [given[name] for name in ("minimum", "maximum") if type(given.get(name)) is int]
    if any(not -(1 << 63) <= each < 1 << 63 for each in bounds):
        return Decimal(MAX_DIGITS, 0)
    return Scalar(_INTEGERS.get(said, "bigint"))


def _common(types: Iterable[ColumnType]) -> ColumnType:
    """The one type of all alternatives; `string` if there are several."""
    different = list(dict.fromkeys(types))
    if different and all(isinstance(each, Scalar) and each.name in ("bigint", "double") for each in different):
        return Scalar("double") if Scalar("double") in different else different[0]
    return different[0] if len(different) == 1 else _TEXT


# -- the other way -----------------------------------------------------------------------------------------------------


def schema_of(fields: Iterable[Field]) -> dict[str, Any]:
    """The JSON Schema of an object with these members, each of which may be missing or null."""
    return {"$schema": _DIALECT, **_described(Struct(tuple(fields)))}


def _described(kind: ColumnType) -> dict[str, Any]:
    if isinstance(kind, Decimal):
        return {"type": "integer" if not kind.scale else "number", "format": str(kind)}
    if isinstance(kind, Array):
        return {"type": "array", "items": _or_null(kind.element)}
    if isinstance(kind, Map):
        return {"type": "object", "additionalProperties": _or_null(kind.value)}
    if isinstance(kind, Struct):
        return {"type": "object", "properties": {each.name: _or_null(each.type) for each in kind.fields}}
    if kind.name in _BITS:
        names = {name: said for said, name in _INTEGERS.items()}
        return {"type": "integer", "format": names[kind.name]}
    if kind.name in ("double", "float"):
        return {"type": "number", "format": kind.name}
    if kind.name == "boolean":
        return {"type": "boolean"}
    if kind.name == "binary":
        return {"type": "string", "contentEncoding": "base64"}
    said = {name: form for form, name in _FORMATS.items()}.get(kind.name)
    if kind.is_any:
        return {}
    return {"type": "string"} if said is None else {"type": "string", "format": said}


def _or_null(kind: ColumnType) -> dict[str, Any]:
    found = _described(kind)
    return {**found, "type": [found["type"], "null"]} if found else {}
