"""Corrections to fields in the OpenAPI document, where models and framework describe them incompletely."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from schemas import MAX_PARTITION

_NULL: Final[dict[str, Any]] = {"type": "null"}
#: Keys that belong beside a field's type, not in it.
_NOTES: Final = ("title", "description", "examples", "deprecated")
_DEFAULT: Final = "default"


def say_what_null_means(doc: dict[str, Any]) -> None:
    """Let every optional field of a request be null, but no parameter, and remove defaults of null.

    Type generators take a field for required if its default is beside its type. So in requests the default moves into
    the type; in answers it is removed, because a client never needs it.
    """
    schemas: dict[str, Any] = doc["components"]["schemas"]
    asked = set(_names_in(doc, schemas))
    for name, schema in schemas.items():
        required = schema.get("required", ())
        for field, described in schema.get("properties", {}).items():
            if field not in required and name in asked:
                schema["properties"][field] = _or_null(described)
            else:
                described.pop(_DEFAULT, None)
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
    described = {key: value for key, value in described.items() if (key, value) != (_DEFAULT, None)}
    kinds = [each for each in described.pop("anyOf", ()) if each != _NULL]
    if len(kinds) == 1:
        described |= kinds[0]
    elif kinds:
        described["anyOf"] = kinds
    if name == "partition":
        described["maximum"] = MAX_PARTITION
    return described


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


def _names_in(doc: dict[str, Any], schemas: dict[str, Any]) -> set[str]:
    """The names of the schemas of all requests, and of the schemas within them."""
    found: set[str] = set()
    waiting = [
        name
        for operations in doc["paths"].values()
        for operation in operations.values()
        for name in _own_names(operation.get("requestBody", {}))
    ]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += _own_names(schemas[name])
    return found
