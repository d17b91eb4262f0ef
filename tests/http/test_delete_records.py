"""Deleting records permanently."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from schemas.records import DeleteRecordsAnswer
from tests.http.calls import JSON, append, fill, read, refused, refused_field, state

TAGGED = ({"data": 1, "tag": "a"}, {"data": 2, "tag": "ab"}, {"data": 3}, {"data": 4, "tag": "b"})


async def left(client: httpx.AsyncClient) -> list[Any]:
    return [record["data"] for record in (await read(client, "t"))["records"]]


async def test_records_below_a_seq_are_deleted_without_a_tombstone(client: httpx.AsyncClient) -> None:
    await fill(client, "t", 5)
    answer = await client.post("/v0/topics/t/delete", json={"before_seq": 3})
    done = DeleteRecordsAnswer.model_validate(answer.json())
    assert (done.deleted, done.earliest_seq, done.head_seq, done.count, done.bytes) == (2, 3, 5, 3, 3)
    assert await left(client) == [3, 4, 5]
    assert (await read(client, "t"))["tombstone"] is None


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ({"match": "a"}, [2, 3, 4]),
        ({"match": ["tag", "Eq", "ab"]}, [1, 3, 4]),
        ({"match": ["tag", "Glob", "a*"]}, [3, 4]),
        ({"match": ["tag", "Glob", "*"]}, [3]),
        ({"match": "none"}, [1, 2, 3, 4]),
        ({"match": ["tag", "Glob", "a*"], "before_seq": 2}, [2, 3, 4]),
        ({"before_seq": 0}, [1, 2, 3, 4]),
        ({"before_seq": 2**64 - 1}, []),
        ({"before_seq": 2, "match": None}, [2, 3, 4]),
    ],
)
async def test_matching_records_are_deleted(client: httpx.AsyncClient, fields: dict[str, Any], kept: list[int]) -> None:
    await append(client, "t", *TAGGED)
    answer = await client.post("/v0/topics/t/delete", json=fields)
    assert answer.json()["deleted"] == 4 - len(kept)
    assert await left(client) == kept


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("{}", "before_seq"),
        ("", "before_seq"),
        ('{"before_seq":null,"match":null}', "before_seq"),
        ('{"before_seq":-1}', "before_seq"),
        ('{"before_seq":1.5}', "before_seq"),
        ('{"before_seq":true}', "before_seq"),
        ('{"before_seq":"1"}', "before_seq"),
        ('{"before_seq":18446744073709551616}', "before_seq"),
        ('{"match":1}', "match"),
        ('{"match":["tag","Glob","x"]}', "match"),
        ('{"match":["tag","Glob","*x*"]}', "match"),
        ('{"match":["node","Eq","x"]}', "match"),
        ("[]", "body"),
        ("null", "body"),
    ],
)
async def test_an_invalid_delete_is_refused_and_deletes_no_record(
    client: httpx.AsyncClient, text: str, field: str
) -> None:
    refused_field(await client.post("/v0/topics/absent/delete", content=text, headers=JSON), field)
    await append(client, "t", *TAGGED)
    refused_field(await client.post("/v0/topics/t/delete", content=text, headers=JSON), field)
    assert (await state(client, "t"))["count"] == 4


async def test_an_absent_topic_is_not_found(client: httpx.AsyncClient) -> None:
    refused(await client.post("/v0/topics/absent/delete", json={"before_seq": 1}), 404, "topic_not_found")
