"""The body of an append is decoded by structs and documented by a model. Both accept the same values, field by
field."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from pydantic import ValidationError

from broker.api.routes import append
from broker.content import strict_json
from broker.content.errors import wrong_model
from schemas.records import AppendRecord, AppendRequest
from storage.errors import InvalidRequest
from storage.records.values import NewRecord

#: Values of every JSON kind, and the limits of numbers.
VALUES: list[str] = [
    "null", "true", "false", "0", "1", "-1", "1.0", "1e1", "1.5", str(2**64 - 1), str(2**64), '""', '"x"', "[]",
    '["x"]', "{}", '{"x":1}',
]  # fmt: skip
_OWN_RULES = {
    #: A job is delayed by at most 366 days, according to the queue and to the schema of the model.
    ("delay_ms", str(2**64 - 1)),
    ("deliver_at", str(2**64 - 1)),
}


def bodies() -> Iterator[tuple[str, str, bytes]]:
    """Field, value and body: each field of a record and of the body with each value, and without the field."""
    for field in ("data", "meta", "tag", "node", "delay_ms", "deliver_at", "unknown"):
        for value in VALUES:
            record = f'"{field}":{value}' if field == "data" else f'"data":1,"{field}":{value}'
            yield field, value, f'{{"records":[{{{record}}}]}}'.encode()
    for field in sorted({*AppendRequest.model_fields, "unknown"}):
        for value in VALUES:
            records = "" if field == "records" else '"records":[{"data":1}],'
            yield field, value, f'{{{records}"{field}":{value}}}'.encode()
    yield "data", "nothing", b'{"records":[{}]}'
    yield "records", "nothing", b"{}"
    yield "body", "a list", b"[]"
    for value in VALUES:
        yield "records[0]", value, f'{{"records":[{value}]}}'.encode()


def refused_by_the_model(body: bytes) -> str | None:
    """The first field that it refuses; None if it accepts all."""
    try:
        AppendRequest.model_validate(strict_json.loads(body))
    except ValidationError as error:
        first: Any = error.errors()[0]
        return wrong_model(first, ("at",), "body").detail["field"].removeprefix("at").removeprefix(".") or "body"
    return None


async def test_the_endpoint_and_the_model_accept_and_refuse_the_same_bodies(
    client: httpx.AsyncClient,
) -> None:
    await client.put("/v0/topics/q", json={"type": "queue"})
    differences: list[str] = []
    for field, value, body in bodies():
        answer = await client.post("/v0/topics/q", content=body, headers={"content-type": "application/json"})
        named = answer.json()["error"]["detail"]["field"] if answer.status_code == 400 else None
        if named != refused_by_the_model(body) and (field, value) not in _OWN_RULES:
            differences.append(f"{field}: {value}: {named}, model: {refused_by_the_model(body)}")
    assert differences == []


@pytest.mark.parametrize("count", [0, 10_001])
async def test_the_model_and_the_endpoint_have_the_same_limits_on_the_number_of_records(
    client: httpx.AsyncClient, count: int
) -> None:
    body = b'{"records":[' + b",".join([b'{"data":1}'] * count) + b"]}"
    answer = await client.post("/v0/topics/t", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["error"]["detail"]["field"] == "records" == refused_by_the_model(body)


def test_structs_and_model_have_the_same_fields() -> None:
    names = {*AppendRequest.model_fields}
    assert {*append.PlainBody.__struct_fields__} == {*append.AnyBody.__struct_fields__} == names
    assert {*NewRecord.__struct_fields__} == {*AppendRecord.model_fields}


@pytest.mark.parametrize("text", [b"1.10", b' {"a" : [ 1e5 ] } ', b"null", '"\\u00e4ä"'.encode(), b"9" * 4000])
def test_payloads_are_decoded_byte_for_byte(text: bytes) -> None:
    value = text.strip()
    _, plain = append.decode(b'{"records":[{"data":%b}]}' % text)
    assert [bytes(each) for each in plain] == [value]  # pyright: ignore[reportArgumentType]
    _, full = append.decode(b'{"records":[{"data":%b,"meta":%b}]}' % (text, text))
    expected = None if value == b"null" else value
    assert [(bytes(each.data), each.meta and bytes(each.meta)) for each in full] == [(value, expected)]  # pyright: ignore


def test_deep_nesting_in_an_unknown_field_is_refused() -> None:
    deep = "[" * 300 + "]" * 300
    for text in (f'{{"records":[{{"data":1}}],"x":{deep}}}', f'{{"records":[{{"data":1,"x":{deep}}}]}}'):
        with pytest.raises((append.MayBeDeep, InvalidRequest)):
            append.decode(text.encode())


async def test_a_long_body_with_brackets_in_a_string_is_accepted() -> None:
    text = json.dumps({"records": [{"data": "[" * 2000}]}).encode()
    with pytest.raises(append.MayBeDeep):
        append.decode(text)
    body, records = await append.decode_any(text)
    assert (len(body.records), len(records)) == (1, 1)


async def test_config_of_an_append_is_validated_by_its_model() -> None:
    body: Any
    body, _ = await append.decode_any(b'{"records":[{"data":1}],"config":{"durabilty":"fsync"}}')
    with pytest.raises(InvalidRequest, match=r"unknown field config\.durabilty: did you mean durability\?"):
        append.settings_of(body)
