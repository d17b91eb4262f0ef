"""The declared schemas agree with Kafka's, as kafka-python ships them: fields, types and nullable fields."""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
from importlib import resources
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

import pytest

import broker.kafka.messages
from broker.kafka.apis import APIS, ApiKey
from broker.kafka.codec import schema
from broker.kafka.codec.schema import Message, Part, Since, Until

#: Types of fields by their codec, with Kafka's names.
NAMES = {
    schema.Int8: "int8", schema.Int16: "int16", schema.Int32: "int32", schema.Int64: "int64", schema.UInt16: "uint16",
    schema.Bool: "bool", schema.Uuid: "uuid", schema.String: "string", schema.NullableString: "string",
    schema.Bytes: "bytes", schema.NullableBytes: "bytes",
}  # fmt: skip
TYPES = {get_args(kind)[1]: name for kind, name in NAMES.items() if "str" not in name and name not in ("bytes",)}
RANGES = re.compile(r"(\d+)(?:-(\d+)|(\+))?$")
#: Answers whose name may be null here in more versions than in Kafka. Null is only written in Kafka's versions.
NULL_SINCE = {("MetadataResponse", "topics.name"): 12, ("DeleteTopicsResponse", "responses.name"): 6}
#: Requests that may not be null in Kafka, and are accepted here because a client sends them so.
LENIENT = {
    # kafka-python 2.0.2 asks version 0 for all topics with null.
    ("MetadataRequest", "topics"),
    ("MetadataRequest", "topics.name"),
    ("OffsetFetchRequest", "topics"),
}


class Field(NamedTuple):
    """A field on the wire. `path` names it within its message."""

    path: str
    type: str
    array: bool
    nullable: bool


def messages() -> dict[str, type[Message]]:
    found: dict[str, type[Message]] = {}
    for module in pkgutil.iter_modules(broker.kafka.messages.__path__):
        loaded = importlib.import_module(f"broker.kafka.messages.{module.name}")
        found |= {
            name: kind
            for name, kind in vars(loaded).items()
            if isinstance(kind, type) and issubclass(kind, Message) and kind is not Message
        }
    return found


def theirs_of(name: str) -> dict[str, Any] | None:
    path = resources.files("kafka.protocol.schemas.resources") / f"{name}.json"
    if not path.is_file():
        return None
    return json.loads(re.sub(r"^\s*//.*$", "", path.read_text(), flags=re.MULTILINE))


def _within(version: int, said: str | None) -> bool:
    found = RANGES.match(said) if said else None
    if found is None:
        return False
    first, last, open_end = found.groups()
    return int(first) <= version and (bool(open_end) or version <= int(last or first))


def span(said: str) -> tuple[int, int]:
    """The first and the last version of a range."""
    first, _, last = said.partition("-")
    return int(first), int(last or first)


def kafka_fields(described: dict[str, Any], version: int) -> list[Field]:
    common = {each["name"]: each["fields"] for each in described.get("commonStructs", ())}

    def walk(fields: list[dict[str, Any]], before: str) -> list[Field]:
        found: list[Field] = []
        for each in fields:
            if not _within(version, each["versions"]) or "tag" in each:
                continue
            path = before + re.sub(r"(?<!^)(?=[A-Z])", "_", each["name"]).lower()
            type_ = each["type"].removeprefix("[]")
            inner = each.get("fields") or common.get(type_)
            nullable = _within(version, each.get("nullableVersions"))
            type_ = "bytes" if type_ == "records" else type_
            found.append(Field(path, "struct" if inner else type_, each["type"].startswith("[]"), nullable))
            if inner:
                found += walk(inner, f"{path}.")
        return found

    return walk(described["fields"], "")


def our_fields(kind: type[Part], version: int, before: str = "") -> list[Field]:
    found: list[Field] = []
    hints = get_type_hints(kind, include_extras=True)
    for name in kind.__struct_fields__:
        hint, marks = _opened(hints[name])
        if any(
            (isinstance(mark, Since) and version < mark.version) or (isinstance(mark, Until) and version > mark.version)
            for mark in marks
        ):
            continue
        plain, nullable = _without_none(hint)
        array = get_origin(plain) is list
        if array:
            plain, marks = _opened(get_args(plain)[0])
            plain, _ = _without_none(plain)
        type_ = next((_name(mark, plain) for mark in marks if isinstance(mark, schema.Kind)), "struct")
        found.append(Field(before + name, type_, array, nullable))
        if type_ == "struct":
            found += our_fields(plain, version, f"{before}{name}.")
    return found


def _opened(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    if get_origin(hint) is Annotated:
        plain, *marks = get_args(hint)
        return plain, tuple(marks)
    return hint, ()


def _without_none(hint: Any) -> tuple[Any, bool]:
    if isinstance(hint, UnionType):
        [plain] = [each for each in get_args(hint) if each is not NoneType]
        return plain, True
    return hint, False


def _name(kind: schema.Kind, plain: type) -> str:
    return {str: "string", bytes: "uuid" if kind == get_args(schema.Uuid)[1] else "bytes"}.get(plain) or TYPES[kind]


KNOWN = sorted(
    (name, version)
    for name, kind in messages().items()
    if (described := theirs_of(name)) is not None
    for api in [APIS[described["apiKey"]]]
    for version in range(api.first, api.last + 1)
)


def test_kafka_knows_every_declared_message() -> None:
    """Only share groups are missing in kafka-python's schemas. Java's client tests them."""
    missing = {name for name in messages() if theirs_of(name) is None}
    assert all("Share" in name for name in missing), missing
    assert len({name for name, _ in KNOWN}) >= 50


def agrees(kind: type[Message], described: dict[str, Any], version: int) -> None:
    """Whether one version of a message has Kafka's fields, and is null only where Kafka allows it."""
    name = kind.__name__
    assert (version >= kind.flexible_since) is _within(version, described["flexibleVersions"])
    is_request = described["type"] == "request"
    theirs, ours = kafka_fields(described, version), our_fields(kind, version)
    assert [each[:3] for each in ours] == [each[:3] for each in theirs], (name, version)
    for mine, other in zip(ours, theirs, strict=True):
        where = (name, mine.path)
        if is_request:
            assert mine.nullable >= other.nullable, f"{where} may come as null"
            assert mine.nullable == other.nullable or where in LENIENT, f"{where} is never null"
        else:
            since = NULL_SINCE.get(where, 0)
            assert version < since or mine.nullable <= other.nullable, f"{where} must not be null"


@pytest.mark.parametrize(("name", "version"), KNOWN)
def test_fields_are_the_fields_of_kafka(name: str, version: int) -> None:
    described = theirs_of(name)
    assert described is not None
    agrees(messages()[name], described, version)


@pytest.mark.parametrize("key", APIS)
def test_served_versions_are_versions_of_kafka(key: int) -> None:
    """Except Produce, which is listed from 0 on for old clients, and answered as unsupported there."""
    name = re.sub(r"(?:^|_)(.)", lambda found: found[1].upper(), ApiKey(key).name.lower())
    described = theirs_of(f"{name}Request")
    if described is None:
        assert "SHARE" in ApiKey(key).name
        return
    assert _within(APIS[key].last, described["validVersions"])
