"""Corrections to fields in the OpenAPI document, where models and framework describe them incompletely."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from schemas import ERROR_CODE_FORMAT, MAX_PARTITION

_NULL: Final[dict[str, Any]] = {"type": "null"}
#: Keys that belong beside a field's type, not in it.
_NOTES: Final = ("title", "description", "examples", "deprecated")
_DEFAULT: Final = "default"
_ERROR_CODE: Final = "ErrorCode"


def describe_nulls(doc: dict[str, Any], commands: Iterable[str] = ()) -> None:
    """Let every optional field of a request be null, but no parameter and no optional field of an answer, and remove
    defaults of null. `commands`: further schemas that clients send.

    Type generators take a field for required if its default is beside its type. So in requests the default moves into
    the type; in answers it is removed, because a client never needs it. An answer leaves out what it does not have.
    """
    schemas: dict[str, Any] = doc["components"]["schemas"]
    asked = _names_in(doc, schemas, commands)
    for name, schema in schemas.items():
        required = schema.get("required", ())
        for field, described in schema.get("properties", {}).items():
            if field not in required and name in asked:
                schema["properties"][field] = _or_null(described)
            else:
                described.pop(_DEFAULT, None)
                if field not in required:
                    schema["properties"][field] = _without_null(described)
    for operations in doc["paths"].values():
        for operation in operations.values():
            for parameter in operation.get("parameters", ()):
                parameter["schema"] = _of_parameter(parameter["name"], parameter["schema"])
            body = operation.get("requestBody")
            if body is not None:
                body["required"] = any(schemas[name].get("required") for name in _own_names(body))


def _or_null(described: dict[str, Any]) -> dict[str, Any]:
    notes = {key: value for key, value in described.items() if key in _NOTES}
    kind = {key: value for key, value in described.items() if key not in _NOTES}
    if kind.get(_DEFAULT, ...) is None:
        del kind[_DEFAULT]
    if not kind:
        return notes  # any value is allowed, null included
    kinds: list[dict[str, Any]] = kind.pop("anyOf", None) or [kind]
    if kind and kinds[0] is not kind:
        kinds[0] = {**kinds[0], **kind}
    return {**notes, "anyOf": [*(each for each in kinds if each != _NULL), _NULL]}


def _of_parameter(name: str, described: dict[str, Any]) -> dict[str, Any]:
    described = _without_null({key: value for key, value in described.items() if (key, value) != (_DEFAULT, None)})
    if name == "partition":
        described["maximum"] = MAX_PARTITION
    return described


def _without_null(described: dict[str, Any]) -> dict[str, Any]:
    described = {**described}
    kinds = [each for each in described.pop("anyOf", ()) if each != _NULL]
    if len(kinds) == 1:
        described |= kinds[0]
    elif kinds:
        described["anyOf"] = kinds
    return described


def name_error_codes(doc: dict[str, Any], codes: list[str]) -> None:
    """Add the schema of error codes, and refer to it wherever a string is described as one."""
    schemas: dict[str, Any] = doc["components"]["schemas"]
    for schema in schemas.values():
        _refer_to_codes(schema)
    schemas[_ERROR_CODE] = {
        "type": "string",
        "title": _ERROR_CODE,
        "description": "Why a request was refused. Later versions may have more codes.",
        "enum": codes,
    }


def _refer_to_codes(value: Any) -> None:
    if isinstance(value, dict):
        fields: dict[str, Any] = value  # pyright: ignore[reportUnknownVariableType]
        if fields.get("format") == ERROR_CODE_FORMAT:
            del fields["format"], fields["type"]
            fields["$ref"] = f"#/components/schemas/{_ERROR_CODE}"
        value = [*fields.values()]
    if isinstance(value, list):
        for each in value:  # pyright: ignore[reportUnknownVariableType]
            _refer_to_codes(each)


def _own_names(value: Any) -> Iterator[str]:
    """The names of the schemas that this value refers to directly."""
    if isinstance(value, dict):
        fields: dict[str, Any] = value  # pyright: ignore[reportUnknownVariableType]
        if "$ref" in fields:
            yield fields["$ref"].rpartition("/")[2]
        value = [*fields.values()]
    if isinstance(value, list):
        for each in value:  # pyright: ignore[reportUnknownVariableType]
            yield from _own_names(each)


def _names_in(doc: dict[str, Any], schemas: dict[str, Any], more: Iterable[str]) -> set[str]:
    """The names of the schemas of all requests, of `more`, and of the schemas within them."""
    found: set[str] = set()
    waiting = [
        name
        for operations in doc["paths"].values()
        for operation in operations.values()
        for name in _own_names(operation.get("requestBody", {}))
    ]
    waiting += more
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += _own_names(schemas[name])
    return found
