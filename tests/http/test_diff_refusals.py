"""Refused reads, one case per row."""

from __future__ import annotations

import httpx
import pytest

from tests.http.calls import JSON, fill, refused, refused_field

NUMBERS = ["from_seq", "limit", "max_batch_bytes", "max_bytes", "wait_ms", "from_ts", "epoch"]
FLAGS = ["include_tags", "include_meta", "include_data", "include_stored", "skip_corrupt"]
NO_U64 = ["-1", "18446744073709551616", "1.5", "true", '"1"', "[]"]


async def refuse(client: httpx.AsyncClient, text: str, field: str) -> None:
    await fill(client, "t", 1)
    refused_field(await client.post("/v0/topics/t/diff", content=text, headers=JSON), field)


@pytest.mark.parametrize("field", NUMBERS)
@pytest.mark.parametrize("value", NO_U64)
async def test_a_number_is_a_u64(client: httpx.AsyncClient, field: str, value: str) -> None:
    await refuse(client, f'{{"{field}":{value}}}', field)


@pytest.mark.parametrize("field", FLAGS)
@pytest.mark.parametrize("value", ["0", "1", '"true"', "[]"])
async def test_a_flag_must_be_true_or_false(client: httpx.AsyncClient, field: str, value: str) -> None:
    await refuse(client, f'{{"{field}":{value}}}', field)


@pytest.mark.parametrize(("value", "field"), [("1", "node"), ("{}", "node"), ("[1]", "node[0]"), ("[null]", "node[0]")])
async def test_a_node_must_be_text_or_a_list_of_texts(client: httpx.AsyncClient, value: str, field: str) -> None:
    await refuse(client, f'{{"node":{value}}}', field)


@pytest.mark.parametrize(
    "predicate",
    [
        "1",
        "true",
        "{}",
        "[]",
        '["tag"]',
        '["tag","Eq"]',
        '["tag","Eq",1]',
        '["node","Eq","x"]',
        '["tag","Like","x"]',
        '["tag","eq","x"]',
        '["tag","Glob","x"]',
        '["tag","Glob",""]',
        '["tag","Glob","*x"]',
        '["tag","Glob","x**"]',
        '["tag","Glob","a*b*"]',
        '["tag","Eq","x","y"]',
    ],
)
async def test_an_invalid_tag_predicate_is_refused(client: httpx.AsyncClient, predicate: str) -> None:
    await refuse(client, f'{{"tag":{predicate}}}', "tag")


@pytest.mark.parametrize("body", ["null", "[]", "1"])
async def test_a_body_is_an_object(client: httpx.AsyncClient, body: str) -> None:
    await refuse(client, body, "body")


@pytest.mark.parametrize("field", NUMBERS)
@pytest.mark.parametrize("value", ["-1", "18446744073709551616", "1.5", "true", "", "x", "%D9%A3", "%FF"])
async def test_a_number_in_a_query_is_digits(client: httpx.AsyncClient, field: str, value: str) -> None:
    await fill(client, "t", 1)
    refused_field(await client.get(f"/v0/topics/t/records?{field}={value}"), field)


@pytest.mark.parametrize("field", FLAGS)
async def test_a_flag_in_a_query_is_true_or_false(client: httpx.AsyncClient, field: str) -> None:
    await fill(client, "t", 1)
    refused_field(await client.get(f"/v0/topics/t/records?{field}=yes"), field)


async def test_an_invalid_field_is_reported_before_an_absent_topic(client: httpx.AsyncClient) -> None:
    refused_field(await client.post("/v0/topics/absent/diff", json={"limit": -1}), "limit")


async def test_unknown_fields_are_ignored(client: httpx.AsyncClient) -> None:
    await fill(client, "t", 1)
    assert (await client.post("/v0/topics/t/diff", json={"colour": 1})).is_success
    assert (await client.get("/v0/topics/t/records?colour=1")).is_success


async def test_null_fields_are_absent_fields(client: httpx.AsyncClient) -> None:
    await fill(client, "t", 1)
    fields = dict.fromkeys([*NUMBERS, *FLAGS, "node", "tag"])
    answer = await client.post("/v0/topics/t/diff", json=fields)
    assert len(answer.json()["records"]) == 1


async def test_an_absent_topic_is_not_found(client: httpx.AsyncClient) -> None:
    refused(await client.get("/v0/topics/absent/records"), 404, "topic_not_found")
    refused(await client.get("/v0/topics/absent/records/1"), 404, "topic_not_found")
