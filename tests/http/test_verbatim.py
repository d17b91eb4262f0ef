"""`data` and `meta` come back byte for byte."""

from __future__ import annotations

import httpx
import pytest

from tests.http.calls import JSON

ODD = rb'{"a":1.10,"a":2,"n":1e400,"big":123456789012345678901234567890,"s":"\u00e9\ud83d\ude00"}'
PAYLOADS = [
    ODD,
    b"null",
    b"true",
    b"-0",
    b"0.10",
    b"1E+5",
    b'""',
    b"{}",
    b'{ "spaces" : [ 1 , 2 ] }',
    b'{"line":\n\t1}',
    '{"é":"日本\U0001f600"}'.encode(),
    rb'"\/\b\u0000\\"',
    rb'{"data":{"meta":1},"$seq":7}',
    b"[" * 250 + b"]" * 250,
]


async def put_in(client: httpx.AsyncClient, record: bytes) -> None:
    answer = await client.post("/v0/topics/t", content=b'{"records":[%b]}' % record, headers=JSON)
    assert answer.status_code == 201, answer.text


@pytest.mark.parametrize("data", PAYLOADS)
async def test_data_is_returned_byte_for_byte(client: httpx.AsyncClient, data: bytes) -> None:
    await put_in(client, b'{"data":%b}' % data)
    assert b',"data":%b}]' % data in (await client.get("/v0/topics/t/records")).content
    assert b',"data":%b,"topic"' % data in (await client.get("/v0/topics/t/records/1")).content


@pytest.mark.parametrize("meta", [payload for payload in PAYLOADS if payload != b"null"])
async def test_meta_is_returned_byte_for_byte(client: httpx.AsyncClient, meta: bytes) -> None:
    await put_in(client, b'{"data":1,"meta":%b}' % meta)
    expected = b',"data":1,"meta":%b}' % meta
    assert expected + b"]" in (await client.get("/v0/topics/t/records")).content
    assert b',"meta":%b}]' % meta in (await client.get("/v0/topics/t/records?include_data=false")).content


async def test_a_field_name_may_be_escaped(client: httpx.AsyncClient) -> None:
    await put_in(client, rb'{"d\u0061ta":1.10,"m\u0065ta":2.20}')
    assert b'"data":1.10,"meta":2.20' in (await client.get("/v0/topics/t/records")).content


async def test_of_a_field_given_twice_the_last_counts(client: httpx.AsyncClient) -> None:
    await put_in(client, b'{"data":1,"data":2}')
    assert (await client.get("/v0/topics/t/records")).json()["records"][0]["data"] == 2


async def test_nodes_and_tags_are_returned_as_the_same_text(client: httpx.AsyncClient) -> None:
    await put_in(client, rb'{"data":1,"node":"n\"\\\u00e9","tag":"t\n\ud83d\ude00"}')
    [record] = (await client.get("/v0/topics/t/records?include_tags=true")).json()["records"]
    assert record["$node"] == 'n"\\é'
    assert record["$tag"] == "t\n\U0001f600"
